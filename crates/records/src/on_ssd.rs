//! A pool's part of the state as its SSD carries it: a copy that outlives the state directory, and shows when a state is older than the SSD.
//!
//! The state counts the copies (`serial` of a pool's record) and is saved before a copy is written. So an SSD whose copy has a higher serial was
//! used with a newer state, and the reverse says nothing. A copy is written before anything becomes dirty, or gets a number in the log, that the
//! copy of before does not know; all else follows soon ([`control::manager::records`]).
//!
//! The content is JSON, as LZ4 block behind its length.

use crate::state::{DiskRecord, PoolRecord, State, VolumeRecord};
use format::records::CONTENT_BYTES_MAX;
use serde::{Deserialize, Serialize};

/// Version of the content. A later one is not guessed at.
const VERSION: u32 = 1;
/// No content is longer as JSON.
const JSON_BYTES_MAX: usize = 16 << 20;
/// Bytes of the length before the LZ4 block.
const LENGTH_BYTES: usize = 4;

/// What an SSD says of its pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolCopy {
    version: u32,
    /// The machine that wrote it, by its host name.
    pub host: String,
    /// The pool. Its session and its serial stand elsewhere on the SSD.
    pub pool: PoolRecord,
    /// Its volumes, without what changes while they are written.
    pub volumes: Vec<VolumeRecord>,
    /// The disks beside its cache.
    pub disks: Vec<DiskRecord>,
    /// There was no room for all that is known of the volumes: `volumes` is empty, and only the superblock lists them.
    #[serde(default)]
    pub lacks_volumes: bool,
    /// Of which session this copy was left at the end, in order: then the stamps of its volumes' devices are those of that moment, until a later
    /// session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_session: Option<u64>,
}

impl PoolCopy {
    /// The part of the state that concerns the pool; `None` if there is no such pool.
    pub fn of(state: &State, pool: &str) -> Option<PoolCopy> {
        let pool = PoolRecord { session: 0, serial: 0, degraded: None, ..state.pool(pool)?.clone() };
        let volumes = state.volumes_of(&pool.name).cloned().map(at_rest).collect();
        let disks = state.disks_of(&pool.name);
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_string();
        Some(PoolCopy { version: VERSION, host, pool, volumes, disks, lacks_volumes: false, stopped_session: None })
    }

    /// The same for a pool that has stopped in order: whoever takes it in notices what others wrote to its volumes' devices since.
    pub fn at_stop(state: &State, pool: &str) -> Option<PoolCopy> {
        let mut copy = PoolCopy::of(state, pool)?;
        for (volume, record) in copy.volumes.iter_mut().zip(state.volumes_of(pool)).filter(|(_, record)| record.stopped_clean) {
            (volume.stopped_clean, volume.identity) = (true, record.identity.clone());
        }
        copy.stopped_session = Some(state.pool(pool)?.session);
        Some(copy)
    }

    /// The record of a volume as it is to be believed on an SSD of that session.
    pub fn believed(&self, volume: &VolumeRecord, session: u64) -> VolumeRecord {
        if self.stopped_session == Some(session) { volume.clone() } else { at_rest(volume.clone()) }
    }

    /// The content for the SSD: with as much of the volumes as there is room for.
    pub fn encode(&self) -> Vec<u8> {
        let lean =
            |volume: &VolumeRecord| VolumeRecord { rules: Vec::new(), connections: Vec::new(), shares: Vec::new(), ..volume.clone() };
        let whole = self.packed();
        if whole.len() <= CONTENT_BYTES_MAX {
            return whole;
        }
        let without_extras = PoolCopy { volumes: self.volumes.iter().map(lean).collect(), ..self.clone() }.packed();
        if without_extras.len() <= CONTENT_BYTES_MAX {
            return without_extras;
        }
        PoolCopy { volumes: Vec::new(), lacks_volumes: true, ..self.clone() }.packed()
    }

    fn packed(&self) -> Vec<u8> {
        let text = serde_json::to_vec(self).expect("a record of the state is JSON");
        let length = u32::try_from(text.len()).expect("a state is far smaller than 4 GiB");
        let mut content = vec![0; LENGTH_BYTES + lz4_flex::block::get_maximum_output_size(text.len())];
        content[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        let block_bytes = lz4_flex::block::compress_into(&text, &mut content[LENGTH_BYTES..]).expect("there is room for the worst");
        content.truncate(LENGTH_BYTES + block_bytes);
        content
    }

    /// Reads a content.
    ///
    /// # Errors
    /// Why it cannot be, as a clause.
    pub fn decode(content: &[u8]) -> Result<PoolCopy, String> {
        let (length, block) = content.split_first_chunk::<LENGTH_BYTES>().ok_or("it is cut short")?;
        let length = u32::from_le_bytes(*length) as usize;
        if length > JSON_BYTES_MAX {
            return Err(format!("it has {length} bytes, more than any that this hearth writes"));
        }
        let mut text = vec![0; length];
        let found = lz4_flex::block::decompress_into(block, &mut text).map_err(|e| format!("it is damaged ({e})"))?;
        text.truncate(found);
        let copy: PoolCopy = serde_json::from_slice(&text).map_err(|e| format!("this hearth cannot understand it ({e})"))?;
        if copy.version == VERSION {
            Ok(copy)
        } else {
            Err(format!("it has version {}, this hearth reads version {VERSION}", copy.version))
        }
    }
}

/// A volume's record as a copy has it: without what is only true at one moment.
fn at_rest(volume: VolumeRecord) -> VolumeRecord {
    let mut volume = VolumeRecord { noted: Vec::new(), past: Vec::new(), stopped_clean: false, ..volume };
    volume.identity.stamps.clear();
    if let Some(attachment) = &mut volume.attachment {
        attachment.kept = None;
    }
    volume
}

/// What an SSD says, as far as it can be read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Said {
    /// Of the copy; 0 if there is none.
    pub serial: u64,
    /// The copy; why it cannot be understood.
    pub copy: Option<Result<PoolCopy, String>>,
    /// The number that the next volume gets, by the superblock.
    pub next_volume_id: u32,
}

/// A state beside what the SSD says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Age {
    /// The state is the newest, as far as can be known.
    Newest,
    /// It is older, and knows everything that matters on the SSD. Why.
    OlderAndGood(String),
    /// It is older, and something may be on the SSD that it does not know. Why.
    Older(String),
}

/// Whether the state is older than the SSD, by the records of the pool and of its volumes.
pub fn age(pool: &PoolRecord, volumes: &[VolumeRecord], said: &Said) -> Age {
    if said.serial > pool.serial {
        let (on_ssd, here) = (said.serial, pool.serial);
        let since = format!("the SSD has version {on_ssd} of what is known of the pool, the state has version {here}");
        return match &said.copy {
            Some(Ok(copy)) => match what_is_lacking(volumes, copy) {
                Some(lacking) => Age::Older(format!("{since}; {lacking}")),
                None => Age::OlderAndGood(since),
            },
            Some(Err(why)) => Age::Older(format!("{since}, and {why}")),
            None => Age::Older(since),
        };
    }
    if said.next_volume_id > pool.next_volume_id {
        let (on_ssd, here) = (said.next_volume_id, pool.next_volume_id);
        return Age::Older(format!("volumes were added since (the next has the number {on_ssd} on the SSD, {here} in the state)"));
    }
    Age::Newest
}

/// What a state lacks of what a newer copy says, where it matters: what may be dirty, and which volumes there are.
fn what_is_lacking(volumes: &[VolumeRecord], copy: &PoolCopy) -> Option<String> {
    if copy.lacks_volumes {
        return Some("what it says of the volumes had no room there".into());
    }
    let lacking = copy.volumes.iter().find_map(|there| {
        let Some(here) = volumes.iter().find(|here| here.uuid == there.uuid) else {
            return Some(format!("the volume \"{}\" on it is not known here", there.name));
        };
        if here.id != there.id {
            return Some(format!("the volume \"{}\" has another number there", there.name));
        }
        let unknown = there.may_have_dirty && !here.may_have_dirty;
        unknown.then(|| format!("the volume \"{}\" may have dirty data on it that is not known here", there.name))
    });
    let gone = || volumes.iter().find(|here| !copy.volumes.iter().any(|there| there.uuid == here.uuid));
    lacking.or_else(|| gone().map(|here| format!("the volume \"{}\" was removed since", here.name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::samples;
    use types::Mode;

    fn state(volumes: usize) -> State {
        let mut pool = samples::pool("p");
        pool.serial = 4;
        let volumes = (0..volumes).map(|nth| samples::volume(&format!("v{nth}"), &mut pool)).collect();
        State { pools: vec![pool], volumes, ..State::default() }
    }

    fn copy(state: &State) -> PoolCopy {
        PoolCopy::of(state, "p").expect("there is one")
    }

    #[test]
    fn what_is_written_is_read_and_what_has_no_room_is_left_out() {
        for volumes in [0, 1, 20, types::VOLUMES_MAX] {
            let copy = copy(&state(volumes));
            let content = copy.encode();
            assert!(content.len() <= CONTENT_BYTES_MAX, "{volumes} volumes take {} bytes", content.len());
            let read = PoolCopy::decode(&content).expect("just written");
            assert!(read == copy || volumes == types::VOLUMES_MAX && read.lacks_volumes && read.volumes.is_empty(), "{volumes}");
        }
    }

    #[test]
    fn no_content_whatever_it_is_does_harm() {
        let content = copy(&state(3)).encode();
        for at in 0..content.len() {
            let mut damaged = content.clone();
            damaged[at] ^= 1 << (at % 8);
            drop((PoolCopy::decode(&damaged), PoolCopy::decode(&content[..at])));
        }
        let huge = [&u32::MAX.to_le_bytes()[..], &[0; 16]].concat();
        assert!(PoolCopy::decode(&huge).is_err() && PoolCopy::decode(&[]).is_err());
    }

    /// The state as it was when the copy was made, and what became of the copy since.
    fn check(serial: u64, change: impl FnOnce(&mut State), expected: &str) {
        let older = state(2);
        let mut newer = older.clone();
        change(&mut newer);
        let said = Said { serial, copy: Some(Ok(copy(&newer))), next_volume_id: newer.pools[0].next_volume_id };
        let age = age(&older.pools[0], &older.volumes, &said);
        assert!(format!("{age:?}").contains(expected), "{age:?} lacks {expected}");
    }

    #[test]
    fn serials_and_numbers_tell_which_is_older() {
        let dirty = |state: &mut State| (state.volumes[1].options.mode, state.volumes[1].may_have_dirty) = (Mode::WriteBack, true);
        check(4, |_| (), "Newest");
        // The state went on after the copy was written: its word is the later one.
        check(4, dirty, "Newest");
        check(3, |state| drop(state.volumes.pop()), "Newest");
        check(5, |_| (), "OlderAndGood");
        check(5, |state| state.volumes[0].exports.clear(), "OlderAndGood");
        check(
            5,
            dirty,
            "Older(\"the SSD has version 5 of what is known of the pool, the state has version 4; the volume \\\"v1\\\" may have",
        );
        check(5, |state| drop(state.volumes.pop()), "was removed since");
        check(5, |state| state.volumes[0].id = 9, "another number");
        let add = |state: &mut State| {
            let volume = samples::volume("new", &mut state.pools[0]);
            state.volumes.push(volume);
        };
        check(5, add, "\\\"new\\\" on it is not known here");
        check(0, add, "volumes were added since");
    }
}
