//! The copy of a pool's part of the state on its SSD: written while the pool runs, and read before it starts.

use super::assembly::open_error;
use super::{Machine, devices, failed};
use ::records::on_ssd::{self, Age, PoolCopy, Said};
use ::records::state::{PoolRecord, VolumeRecord};
use api::error::{ControlError, Kind};
use datapath::Records;
use device::Access;
use engine::medium::Medium;
use engine::{records, superblock};
use format::Superblock;
use format::records::PoolRecords;
use runtime::SsdMedium;

/// Writes the copy on the SSD of a pool that has stopped in order, and that nobody has started since: its session says so. A pool with packed blocks
/// leaves no checkpoint, so the mark of one does not count.
pub fn write_at_rest(medium: &mut dyn Medium, pool: &PoolRecord, content: &[u8]) -> Result<(), ControlError> {
    let found = superblock::load(medium).map_err(|e| open_error(pool, e))?.superblock;
    if found.uuid != pool.uuid.into_bytes() || found.session != pool.session {
        let problem = "it is not as the pool was left".to_string();
        return Err(ControlError::Device { path: pool.ssd.clone(), problem, remedy: String::new(), kind: Kind::Conflict });
    }
    write(medium, pool, content)
}

/// Writes the copy with the pool's serial.
pub fn write(medium: &mut dyn Medium, pool: &PoolRecord, content: &[u8]) -> Result<(), ControlError> {
    let records = PoolRecords { uuid: pool.uuid.into_bytes(), serial: pool.serial, content: content.to_vec() };
    records::store(medium, &records).map_err(|e| failed(e, "check the SSD"))
}

/// Refuses a state that is older than the SSD and does not know all that matters there. Else gives the serial on the SSD, and what an
/// administrator should know.
pub fn check_age(
    pool: &PoolRecord,
    known: &[VolumeRecord],
    superblock: &Superblock,
    medium: &mut dyn Medium,
) -> Result<(u64, Vec<String>), ControlError> {
    let found = records::load(medium, superblock.uuid).map_err(|e| open_error(pool, e))?;
    let mut warnings = Vec::new();
    // A power cut may have torn one.
    if found.damaged > 1 {
        warnings.push("both copies of hearth's state on its SSD are damaged: they are written again".to_string());
    }
    let said = Said {
        serial: found.records.as_ref().map_or(0, |records| records.serial),
        copy: found.records.map(|records| PoolCopy::decode(&records.content)),
        next_volume_id: superblock.next_volume_id.0,
    };
    match on_ssd::age(pool, known, &said) {
        Age::Newest => {}
        Age::OlderAndGood(why) => {
            warnings.push(format!(
                "hearth's state is older than its SSD, but knows all of its volumes: it is served as the state says ({why})"
            ));
        }
        Age::Older(why) => return Err(ControlError::OlderState { path: pool.ssd.clone(), why }),
    }
    Ok((said.serial, warnings))
}

impl Records for Machine {
    /// See [`datapath::Records::write_records`].
    fn write_records(&self, pool: &PoolRecord, content: &[u8]) -> Result<(), ControlError> {
        self.pool(&pool.name)?.with_medium(|medium| write(medium, pool, content))
    }

    /// See [`datapath::Records::write_records_at_rest`].
    fn write_records_at_rest(&self, pool: &PoolRecord, content: &[u8]) -> Result<(), ControlError> {
        let ssd = devices::open(&pool.ssd, Access::ReadWrite)?;
        let medium = ssd.blocking().map_err(|e| failed(e, "raise the limit on open files"))?;
        write_at_rest(&mut SsdMedium(medium), pool, content)
    }
}
