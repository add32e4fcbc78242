//! The suites: what each plans, prepares and runs. The published figures are in the [`catalogue`](crate::catalogue).

mod advice;
mod backups;
mod blocks;
mod database_skew;
mod databases;
mod depth;
mod fio_job;
mod hotspot;
mod many_guests;
mod many_readers;
mod oltp_live;
mod own;
mod readhit;
mod tpcc;
mod tpcc_guest;

use crate::result::{Arm, Case, Ceiling, Leg, Settings};
use crate::stage::{Backing, Setup, Stage};
use crate::trouble::Trouble;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;
/// No pool is smaller.
const CACHE_BYTES_MIN: u64 = 64 << 20;

fn whole_mib(bytes: u64) -> u64 {
    bytes & !((1 << 20) - 1)
}

/// A cache of about so many bytes: whole mebibytes, and as many as a pool must have.
fn cache_of(bytes: u64) -> u64 {
    whole_mib(bytes).max(CACHE_BYTES_MIN)
}

/// How much is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// As the figures of a report are made.
    Full,
    /// In minutes.
    Quick,
    /// A test of the tests, in seconds.
    Toy,
}

impl Scale {
    /// What was asked for.
    pub fn of(settings: &Settings) -> Scale {
        match (settings.toy, settings.quick) {
            (true, _) => Scale::Toy,
            (_, true) => Scale::Quick,
            _ => Scale::Full,
        }
    }

    /// The one of three that fits.
    pub fn pick<T>(self, full: T, quick: T, toy: T) -> T {
        match self {
            Scale::Full => full,
            Scale::Quick => quick,
            Scale::Toy => toy,
        }
    }
}

/// What planning knows.
#[derive(Clone, Copy, Debug)]
pub struct Planning<'a> {
    /// As it was asked for.
    pub settings: &'a Settings,
    /// How much.
    pub scale: Scale,
    /// A fio job file or a trace, for the suite `own`.
    pub own: Option<&'a Path>,
    /// Length of the real backing device in bytes, if there is one.
    pub backing_bytes: Option<u64>,
}

impl Planning<'_> {
    /// An arm with neither disk nor cache: where a model keeps its data in a file beside the SSD's, that file itself is what nothing can be faster than.
    pub fn ceiling(&self, arm: &str, in_memory: bool) -> Option<Ceiling> {
        let beside = self.settings.backing.is_none() && self.settings.ssd.is_none();
        beside.then(|| Ceiling { arm: arm.into(), in_memory })
    }

    /// The data of a case: as asked for, else as the suite has it; never more than the device holds. Whole mebibytes.
    pub fn data_bytes(&self, full: u64, quick: u64, toy: u64) -> u64 {
        let wanted = self.settings.size_bytes.unwrap_or_else(|| self.scale.pick(full, quick, toy));
        whole_mib(wanted.min(self.backing_bytes.unwrap_or(u64::MAX)))
    }

    /// The model set of a suite, or none where the device is real.
    pub fn model_set(&self, of_suite: &str) -> Option<String> {
        match (&self.settings.backing, &self.settings.model) {
            (Some(_), _) => None,
            (None, Some(model)) => Some(model.clone()),
            (None, None) => Some(of_suite.into()),
        }
    }
}

/// Where legs are run.
pub struct Context<'a> {
    /// Processes and files.
    pub stage: &'a Stage,
    /// As it was asked for.
    pub settings: &'a Settings,
    /// How much.
    pub scale: Scale,
    /// A fio job file or a trace, for the suite `own`.
    pub own: Option<&'a Path>,
    /// What happens, for people.
    pub tell: &'a dyn Fn(&str),
}

impl Context<'_> {
    /// The file with the bytes of a modelled disk.
    pub fn image(&self) -> PathBuf {
        self.stage.path("backing.img")
    }

    /// What lies below in a case.
    pub fn backing(&self, case: &Case) -> Backing {
        match (&self.settings.backing, &case.model_set) {
            (Some(device), None) => Backing::Device(device.into()),
            (_, Some(set)) => Backing::Model { set: set.clone(), image: self.image() },
            (None, None) => unreachable!("a case has a model set or there is a real device"),
        }
    }

    /// A volume for a case: options are those that hearth has by itself, unless the case is about another.
    pub fn setup(&self, case: &Case, mode: &str, options: &[&str]) -> Setup {
        let ssd = match &self.settings.ssd {
            Some(ssd) if Path::new(ssd).is_dir() => format!("{ssd}/hearth-evaluate-ssd.img"),
            Some(ssd) => ssd.clone(),
            None => self.stage.name("ssd.img"),
        };
        Setup {
            backing: self.backing(case),
            ssd,
            ssd_model: None,
            cache_bytes: case.cache_bytes,
            ram_bytes: case.ram_bytes,
            mode: mode.into(),
            pool_options: Vec::new(),
            options: options.iter().map(|&option| option.to_owned()).collect(),
        }
    }
}

/// One suite.
pub trait Suite {
    /// What it would run.
    ///
    /// # Errors
    /// If the settings make no sense for it.
    fn cases(&self, planning: &Planning) -> Result<Vec<Case>, Trouble>;

    /// Makes the data of a case; called before its first leg of a run, and again when a run is resumed.
    ///
    /// # Errors
    /// If that fails: the case is then not measured.
    fn prepare(&self, context: &Context, case: &Case) -> Result<(), Trouble>;

    /// Runs some arms of a case that share a sitting: one arm, or all points of a curve. Gives a leg for each.
    ///
    /// # Errors
    /// If one fails: the case is then not measured further.
    fn legs(&self, context: &Context, case: &Case, arms: &[&Arm], round: u32) -> Result<Vec<Leg>, Trouble>;
}

/// The suite of a name of the catalogue, if it can be run by this version.
pub fn suite(name: &str) -> Option<&'static dyn Suite> {
    Some(match name {
        "readhit" => &readhit::ReadHit,
        "hotspot" => &hotspot::HotSpot,
        "depth" => &depth::Depth,
        "many-readers" => &many_readers::ManyReaders,
        "database-skew" => &database_skew::DatabaseSkew,
        "oltp-live" => &oltp_live::OltpLive,
        "tpcc" => &tpcc::TpccSuite,
        "advice" => &advice::Advice,
        "backups" => &backups::Backups,
        "own" => &own::Own,
        _ => return None,
    })
}
