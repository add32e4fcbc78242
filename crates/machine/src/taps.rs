//! What those who watch loads get from the runtime.

use super::{Machine, failed, locked};
use api::error::ControlError;
use applications::streams::PageAt;
use applications::{Certainty, PageOwner};
use datapath::{Tapped, TappedVolume, Taps};
use engine::api::{Command, Origin, Outcome, Reply, Request, RequestError};
use engine::treatment::{PolicyMap, PolicyRange};
use page::PageVec;
use records::engines::{BLANK_PAGE, kind_of};
use records::state::VolumeRecord;
use runtime::{Context, Endpoint, PageSeen, VolumeRef};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use types::{BLOCK_BYTES, SECTOR_BYTES, Treatment, VolumeId, VolumeIndex};

/// How long a look waits for the reactors.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a read of a dictionary may take.
const READ_PATIENCE: Duration = Duration::from_secs(60);

/// What a page says of itself, by its first 4096 bytes, as far as it tells streams apart or what lies there.
pub fn recognise(bytes: &[u8]) -> Option<PageSeen> {
    let none = u32::MAX;
    let Some(page) = applications::recognise(bytes).filter(|page| page.certainty >= Certainty::Likely) else {
        let blank = PageSeen {
            object: 0,
            page: none,
            neighbours: (none, none),
            kind: BLANK_PAGE,
            level: 0,
            is_leaf: false,
            is_log: false,
            size_log2: BLOCK_BYTES.ilog2() as u8,
        };
        return is_blank(bytes).then_some(blank);
    };
    let seen = PageSeen {
        object: 0,
        page: page.number.unwrap_or(none),
        neighbours: (none, none),
        kind: kind_of(&page),
        level: 0,
        is_leaf: false,
        is_log: false,
        size_log2: page.size_bytes.max(1).ilog2() as u8,
    };
    let Some(at) = PageAt::of(&page, 0, None) else {
        // It tells no streams apart, but that a relation lies there.
        let is_unnamed = page.owner == PageOwner::Unnamed && !page.engine.facts().pages_name_their_object;
        return is_unnamed.then_some(seen);
    };
    Some(PageSeen {
        object: at.owner,
        page: at.number,
        neighbours: (at.prev.unwrap_or(none), at.next.unwrap_or(none)),
        level: u8::try_from(at.level).unwrap_or(u8::MAX),
        is_leaf: at.leaf,
        is_log: at.log,
        ..seen
    })
}

/// Without a single bit. Most pages tell in their first bytes that they are not.
fn is_blank(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

/// Reads once, around the cache.
struct Reader {
    volume: VolumeRef,
    start_sector: u64,
    sectors: u32,
    asked: bool,
    done: Sender<Reply>,
}

impl Reader {
    fn ask(&mut self, cx: &mut Context<'_>) {
        let request = Request::read(0, VolumeIndex(0), self.start_sector, self.sectors, Origin::Look);
        self.asked = self.asked || cx.submit(&self.volume, request).is_ok();
    }

    fn tell(&self, cx: &mut Context<'_>, reply: Reply) {
        if self.done.send(reply).is_err() {
            tracing::debug!("a read ended after it had been given up");
        }
        cx.close();
    }
}

impl Endpoint for Reader {
    fn start(&mut self, cx: &mut Context<'_>) {
        self.ask(cx);
    }

    fn ring(&mut self, _cx: &mut Context<'_>, _token: u32, _result: i32, _flags: u32) {}

    fn reply(&mut self, cx: &mut Context<'_>, reply: Reply) {
        self.tell(cx, reply);
    }

    fn volume_available(&mut self, cx: &mut Context<'_>) {
        self.ask(cx);
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        if !self.asked {
            self.asked = true;
            let result = Err(RequestError::Shutdown);
            self.tell(cx, Reply { id: 0, result, pages: PageVec::new(), outcome: Outcome::Other, range: None });
        }
    }
}

impl Taps for Machine {
    fn volumes_to_tap(&self) -> Vec<TappedVolume> {
        let volumes = locked(&self.volumes);
        let told = volumes.iter().map(|(name, live)| TappedVolume {
            name: name.clone(),
            pool: live.cached.as_ref().map(|(pool, _)| pool.name.clone()),
            reference: live.reference.clone(),
        });
        told.collect()
    }

    fn take_tapped(&self) -> Result<Tapped, ControlError> {
        // Only the first call counts.
        self.runtime.set_recognise(std::sync::Arc::new(recognise));
        self.runtime.take_tapped(PATIENCE).map_err(|error| failed(error, "try again"))
    }

    /// Reads as clients do, and leaves the cache as it is.
    fn read_aside(&self, name: &str, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), ControlError> {
        let volume = self.volume(name)?.reference.clone();
        let block_bytes = u64::from(volume.logical_block_bytes());
        let end_bytes = offset_bytes + bytes.len() as u64;
        let start = offset_bytes / block_bytes * block_bytes;
        let end = end_bytes.next_multiple_of(block_bytes).min(volume.size_bytes());
        if end_bytes > end || bytes.is_empty() {
            return Err(failed("it ends before", "try again"));
        }
        let (done, ended) = channel();
        let sectors = ((end - start) / SECTOR_BYTES) as u32;
        let reader = Reader { volume, start_sector: start / SECTOR_BYTES, sectors, asked: false, done };
        let group = self.runtime.add_endpoint(Box::new(reader));
        let reply = match ended.recv_timeout(READ_PATIENCE) {
            Ok(reply) => reply,
            Err(_) => {
                self.runtime.stop_endpoints(&group, Duration::ZERO).map_err(|error| failed(error, ""))?;
                return Err(failed("the backing device does not answer", "check it, then try again"));
            }
        };
        reply.result.map_err(|error| failed(format!("a read failed ({error:?})"), "check the backing device, then try again"))?;
        // Pages are whole blocks from the one that holds the first sector.
        let skipped = (offset_bytes - start / BLOCK_BYTES * BLOCK_BYTES) as usize;
        let all = reply.pages.iter().flat_map(|page| page.chunks(SECTOR_BYTES as usize));
        let sectors = all.skip(skipped / SECTOR_BYTES as usize);
        let mut filled = 0;
        for (to, from) in bytes.chunks_mut(SECTOR_BYTES as usize).zip(sectors) {
            to.copy_from_slice(&from[..to.len()]);
            filled += to.len();
        }
        if filled == bytes.len() { Ok(()) } else { Err(failed("a read brought less than was asked for", "try again")) }
    }

    fn set_policies(&self, record: &VolumeRecord, ranges: &[(Range<u64>, Treatment)]) -> Result<(), ControlError> {
        let (_, pool, place) = self.cached(record)?;
        let blocks = |bytes: &Range<u64>| bytes.start / BLOCK_BYTES..bytes.end / BLOCK_BYTES;
        let ranges: Vec<PolicyRange> =
            ranges.iter().map(|(bytes, treatment)| PolicyRange { blocks: blocks(bytes), treatment: *treatment }).collect();
        let map = if ranges.is_empty() {
            None
        } else {
            let map = PolicyMap::new(VolumeId(record.id), ranges);
            Some(Arc::new(map.map_err(|error| failed(error.to_string(), "give fewer objects a policy of their own"))?))
        };
        let told = self.runtime.command(&pool.handle, Command::SetPolicies { volume: place, map });
        told.map(drop).map_err(|error| failed(error, "see the log, then try again"))
    }

    fn cool(&self, name: &str, ranges: &[Range<u64>]) {
        let Some((pool, place)) = self.volume(name).ok().and_then(|live| live.cached.clone()) else { return };
        for bytes in ranges {
            let blocks = bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES);
            if let Err(error) = self.runtime.command(&pool.handle, Command::Cold { volume: place, blocks }) {
                tracing::debug!("what a scan read is not forgotten: {error}");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of a heap does not say whose it is, but that a table of PostgreSQL lies there.
    #[test]
    fn pages_of_postgresql_are_seen() {
        let mut page = [0; 4096];
        for (at, field) in [(12, 28_u16), (14, 8160), (16, 8192), (18, 8192 | 4)] {
            page[at..at + 2].copy_from_slice(&field.to_le_bytes());
        }
        page[24..28].copy_from_slice(&(8160_u32 | 1 << 15 | 32 << 17).to_le_bytes());
        let seen = recognise(&page).expect("a page");
        assert_eq!((seen.object, seen.page, seen.kind, seen.size_log2), (0, u32::MAX, 2 << 8, 13));
        assert!(!seen.is_leaf && !seen.is_log, "of no chain");
        assert_eq!(recognise(&[0; 4096]).map(|seen| seen.kind), Some(BLANK_PAGE));
        for at in [0, 15, 16, 4095] {
            let mut other = [0; 4096];
            other[at] = 1;
            assert_eq!(recognise(&other), None, "{at}");
        }
    }
}
