//! How pools and volumes are: what is known now and goes with the daemon.

use super::*;

/// A pool's condition.
#[derive(Clone, Debug)]
pub(super) struct LivePool {
    pub(super) health: Health,
    pub(super) trouble: Option<Trouble>,
    pub(super) recovery: Vec<String>,
    pub(super) size_bytes: u64,
    /// Its RAM tier, if it is not the one asked for.
    pub(super) ram_bytes: Option<u64>,
    pub(super) damaged: Vec<u32>,
    /// As found by the pool's start, by number of the volume.
    pub(super) dirty_bytes: BTreeMap<u32, u64>,
    /// The start has missed its SSD.
    pub(super) missed: bool,
    /// What its SSD is known to say of it.
    pub(super) copy: Option<PoolCopy>,
    /// Its SSD was used with a newer state than this.
    pub(super) state_is_older: bool,
}

impl LivePool {
    pub(super) fn new(health: Health) -> LivePool {
        LivePool {
            health,
            trouble: None,
            recovery: Vec::new(),
            size_bytes: 0,
            ram_bytes: None,
            damaged: Vec::new(),
            dirty_bytes: BTreeMap::new(),
            missed: false,
            copy: None,
            state_is_older: false,
        }
    }
}

/// A volume's condition.
#[derive(Clone, Debug)]
pub(super) struct LiveVolume {
    pub(super) health: Health,
    pub(super) trouble: Option<Trouble>,
    pub(super) attached: bool,
    /// It starts by itself when its backing device is there as it must be.
    pub(super) waits: bool,
    /// Of a disk: its sector size, since it was served.
    pub(super) sector_bytes: Option<u32>,
    /// How large its backing device is, if that is not the volume's size.
    pub(super) backing_bytes: Option<u64>,
    /// What its backing device refuses lately.
    pub(super) refused: Option<Refused>,
    /// The daemon ends, and the device that it is attached to leads past hearth since.
    pub(super) left: Option<records::state::Kept>,
    /// It was told that there is swap on the device that it is attached to.
    pub(super) swap_told: bool,
    /// What cannot be seen of that device lately, and was told.
    pub(super) unseen: BTreeSet<&'static str>,
    pub(super) exports: BTreeMap<Export, String>,
    /// Exports that could not be made, and why. They are tried again.
    pub(super) lacking: BTreeMap<Export, Trouble>,
    pub(super) on_restart: BTreeMap<Export, OnRestart>,
    pub(super) export_notes: BTreeMap<Export, String>,
    /// Who has its present size, and who gets it when, since it was last changed.
    pub(super) size_reach: Vec<String>,
    pub(super) stable_path: Option<String>,
    /// Why its block device has no stable name.
    pub(super) nameless: Option<Trouble>,
    pub(super) shares: BTreeMap<Protocol, shares::LiveShare>,
}

impl LiveVolume {
    /// The block device that it is offered as, and by which export.
    pub(super) fn block_device(&self) -> Option<(Export, &str)> {
        self.exports.iter().find(|(export, _)| export.is_device()).map(|(export, place)| (*export, place.as_str()))
    }

    pub(super) fn new(health: Health) -> LiveVolume {
        LiveVolume {
            health,
            trouble: None,
            attached: false,
            waits: false,
            sector_bytes: None,
            backing_bytes: None,
            refused: None,
            left: None,
            swap_told: false,
            unseen: BTreeSet::new(),
            exports: BTreeMap::new(),
            lacking: BTreeMap::new(),
            on_restart: BTreeMap::new(),
            export_notes: BTreeMap::new(),
            size_reach: Vec::new(),
            stable_path: None,
            nameless: None,
            shares: BTreeMap::new(),
        }
    }
}

/// What is wrong and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Trouble {
    pub(super) problem: String,
    pub(super) remedy: String,
}

impl From<&ControlError> for Trouble {
    fn from(error: &ControlError) -> Trouble {
        Trouble { problem: error.reason(), remedy: error.remedy() }
    }
}
