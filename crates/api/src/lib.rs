//! The words of management: what may be asked, what is answered, and how people write it.
//!
//! * [`Action`], [`Answer`]: every request and every answer, as values. The crate `rest` and [`client`] carry them over HTTP; the REST paths,
//!   the command line and the console end here.
//! * [`options`], [`names`], [`words`], [`int64`]: what people write, checked. [`human`]: what people read. [`error`]: every sentence that can
//!   go wrong.
//! * [`stats`]: what is counted. [`memory`]: how much memory this machine has for caches. [`object_rules`], [`on_blank_ssd`]: settings that are chosen by a
//!   word. [`privacy`]: who may read what lies on this machine.
//!
//! Nothing here does I/O on a device or knows the daemon.
#![forbid(unsafe_code)]

mod actions;
pub mod answer;
pub mod client;
pub mod connections;
pub mod devices;
pub mod disks;
pub mod done;
pub mod error;
pub mod events;
pub mod history;
pub mod human;
pub mod import;
pub mod insight;
pub mod int64;
pub mod jobs;
pub mod live;
pub mod memory;
pub mod names;
pub mod object_rules;
pub mod objects;
pub mod on_blank_ssd;
pub mod options;
pub mod privacy;
mod server_events;
pub mod session;
pub mod shares;
pub mod stats;
pub mod why;
pub mod words;

pub use actions::*;
pub use answer::Answer;
pub use connections::{AppConnect, AppDisconnect, Connected, ConnectionView};
pub use devices::{DeviceExamine, DeviceState, DeviceView};
pub use disks::{DiskCreate, DiskPiece, DiskSet, DiskView};
pub use done::Done;
pub use events::{EventView, Severity};
pub use history::{HistoryQuery, HistoryView};
pub use import::{PoolFoundView, PoolImport, VolumeFoundView};
pub use insight::{
    AdviceApplied, AdviceAsk, AdviceObject, AdvicePoint, AdviceVerified, AdviceView, AnalysisStart, AnalysisView, InsightAction,
    StreamRuleNew, StreamRuleView, StreamRules, StreamView, TargetView,
};
pub use jobs::{JobKind, JobState, JobView, VolumeWarm};
pub use live::{DiskSample, Hello, LatencyPoint, PoolSample, Sample, Saved, VolumeSample};
pub use objects::{
    ApplicationView, BlindView, DatabaseView, ObjectPoint, ObjectPreload, ObjectQuery, ObjectSet, ObjectView, PolicyDone, PreloadView,
    VolumeApplications,
};
pub use session::{Login, LoginCode, Role, SessionView, TokenCreate, TokenMade, TokenView};
pub use shares::{ShareAdd, ShareView};
pub use why::{MapObject, MapView, RecentRequest, Run, WhyView};
