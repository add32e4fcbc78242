//! What the machine says of devices and files.

use super::{Machine, devices, discovery, finding};
use api::error::ControlError;
use datapath::mapped::MappedDevices;
use datapath::{DeviceFacts, Facts, FoundDevice};
use records::state::{BackingIdentity, VolumeRecord};
use std::time::Duration;
use uuid::Uuid;

impl Facts for Machine {
    fn mapped(&self) -> &dyn MappedDevices {
        &self.mapper
    }

    fn examine_ssd(&self, path: &str) -> Result<DeviceFacts, ControlError> {
        // Who else holds a file may let go of it in a moment; a pool that runs here does not.
        if self.is_file_of_a_pool(path) {
            return Err(devices::is_locked(path));
        }
        self.examine(path)
    }

    fn look_into_ssd(&self, path: &str) -> Result<records::ssd_content::SsdContent, ControlError> {
        self.content_of_ssd(path)
    }

    fn examine_backing(&self, spec: &str) -> Result<DeviceFacts, ControlError> {
        self.examine(spec)
    }

    fn is_silent(&self, spec: &str, patience: Duration) -> bool {
        Machine::is_silent(self, spec, patience)
    }

    fn find_backing(&self, spec: &str, wanted: &BackingIdentity) -> Vec<(String, DeviceFacts)> {
        finding::find(&|spec| self.examine_stranger(spec), &|disk| self.exporters.waits_unseen(disk), spec, wanted)
    }

    fn device_mark(&self, spec: &str) -> u64 {
        finding::mark(spec)
    }

    fn devices(&self) -> Result<Vec<FoundDevice>, ControlError> {
        self.looks.all()
    }

    fn look_at(&self, spec: &str) -> Result<FoundDevice, ControlError> {
        self.looks.one(spec)
    }

    fn canonical(&self, spec: &str) -> String {
        discovery::canonical(spec)
    }

    fn overlap(&self, one: &str, other: &str) -> Result<Option<String>, ControlError> {
        devices::overlap(one, other)
    }

    fn own_volume_below(&self, spec: &str, volumes: &[VolumeRecord]) -> Result<Option<(String, String)>, ControlError> {
        self.volume_below(spec, volumes)
    }

    fn opened_by_others(&self, spec: &str) -> Option<String> {
        devices::opened_by_others(spec)
    }

    fn is_blank(&self, path: &str) -> Result<bool, ControlError> {
        devices::is_blank(path)
    }

    fn find_ssd(&self, uuid: Uuid) -> Option<String> {
        finding::find_ssd(&|spec| self.examine_stranger(spec), &|disk| self.exporters.waits_unseen(disk), uuid)
    }
}
