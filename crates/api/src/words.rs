//! How the shared enums are written in JSON: by the same words as on the command line.

use applications::streams::Subject;
use serde::{Deserialize, Deserializer, Serializer, de::Error as _};
use targets::Protocol;
use types::{Admission, Admit, Content, Mode, ObjectWrites, OnScan, OnSsdLoss, StreamClass};

pub use export::{Export, OnRestart, SOCKET_PATH_BYTES_MAX};

/// A module for `#[serde(with = ...)]`: a value is written as its name.
macro_rules! by_name {
    ($module:ident, $type:ty, $from_name:expr, $noun:literal) => {
        #[doc = concat!("serde for [`", stringify!($type), "`] by name.")]
        pub mod $module {
            use super::*;

            /// Writes the name.
            pub fn serialize<S: Serializer>(value: &$type, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(value.name())
            }

            /// Reads the name.
            pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                let name = String::deserialize(deserializer)?;
                $from_name(&name).ok_or_else(|| D::Error::custom(format!(concat!("there is no ", $noun, " {:?}"), name)))
            }
        }
    };
}

by_name!(mode, Mode, Mode::from_name, "mode");
by_name!(on_ssd_loss, OnSsdLoss, on_ssd_loss_from_name, "way to treat the loss of an SSD");
by_name!(admission, Admission, admission_from_name, "admission policy");
by_name!(protocol, Protocol, Protocol::from_name, "protocol");
by_name!(admit, Admit, Admit::from_name, "admission of an object");
by_name!(object_writes, ObjectWrites, ObjectWrites::from_name, "way of writes");
by_name!(on_scan, OnScan, OnScan::from_name, "way of scans");
by_name!(subject, Subject, Subject::from_name, "subject of a rule");
by_name!(stream_class, StreamClass, StreamClass::from_name, "class of streams");
by_name!(content, Content, Content::from_name, "content level");

/// What a volume does when its SSD is lost, by its name.
pub fn on_ssd_loss_from_name(name: &str) -> Option<OnSsdLoss> {
    [OnSsdLoss::Stop, OnSsdLoss::Continue].into_iter().find(|what| what.name() == name)
}

/// The admission of that name.
pub fn admission_from_name(name: &str) -> Option<Admission> {
    [Admission::Always, Admission::SecondTouch].into_iter().find(|a| a.name() == name)
}
