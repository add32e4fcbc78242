//! Pools on SSDs that no test machine has: opened over a medium that keeps what is written, and counts.

use super::assembly::{self, Opened};
use api::error::ControlError;
use engine::medium::{Medium, MediumError};
use engine::superblock;
use format::Layout;
use records::state::{PoolPhase, PoolRecord};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use types::Content;
use uuid::Uuid;

const PAGE_BYTES: usize = 4096;
const SSD_BYTES: u64 = 512 << 30;

/// Zeroes, but for the pages that were written.
#[derive(Clone, Default)]
struct Sparse {
    pages: Arc<Mutex<BTreeMap<u64, Vec<u8>>>>,
    accesses: Arc<AtomicU64>,
}

impl Sparse {
    fn record(&self) -> PoolRecord {
        PoolRecord {
            name: "p".into(),
            uuid: Uuid::from_bytes([7; 16]),
            ssd: "/dev/large".into(),
            size_bytes: None,
            ram_bytes: 64 << 20,
            content: Content::Off,
            phase: PoolPhase::Ready,
            session: 0,
            degraded: None,
            next_volume_id: 1,
            file_made: false,
            disk_room: None,
            serial: 0,
            on_blank_ssd: records::state::OnBlankSsd::Stop,
            layout: Default::default(),
            spare: None,
            ssd_identity: Vec::new(),
        }
    }

    fn open(&self) -> Result<Opened, ControlError> {
        let medium = || -> Result<Box<dyn Medium + Send>, ControlError> { Ok(Box::new(self.clone())) };
        assembly::open(&self.record(), 64 << 20, &medium, 4, &[])
    }

    fn accesses_of<T>(&self, work: impl FnOnce() -> T) -> (T, u64) {
        let before = self.accesses.load(Ordering::Relaxed);
        let result = work();
        (result, self.accesses.load(Ordering::Relaxed) - before)
    }
}

impl Medium for Sparse {
    fn size_bytes(&self) -> u64 {
        SSD_BYTES
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), MediumError> {
        self.accesses.fetch_add(1, Ordering::Relaxed);
        let pages = self.pages.lock().expect("nobody panics with it");
        for (page, into) in (offset_bytes / PAGE_BYTES as u64..).zip(into.chunks_exact_mut(PAGE_BYTES)) {
            match pages.get(&page) {
                Some(bytes) => into.copy_from_slice(bytes),
                None => into.fill(0),
            }
        }
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), MediumError> {
        self.accesses.fetch_add(1, Ordering::Relaxed);
        let pages = (offset_bytes / PAGE_BYTES as u64..).zip(from.chunks_exact(PAGE_BYTES)).map(|(page, bytes)| (page, bytes.to_vec()));
        self.pages.lock().expect("nobody panics with it").extend(pages);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), MediumError> {
        Ok(())
    }

    fn discard(&mut self, _offset_bytes: u64, _length_bytes: u64) -> Result<(), MediumError> {
        Ok(())
    }
}

/// The first start reads the rings, a 48th of the SSD, in large pieces; a later one what the clean stop before it has said.
#[test]
fn half_a_tebibyte_is_opened_and_left_without_reading_or_writing_it() {
    let mut ssd = Sparse::default();
    let layout = Layout::plan_default(SSD_BYTES, 2).expect("fits").with_slots();
    let (made, accesses) = ssd.clone().accesses_of(|| superblock::create(&mut ssd, layout, [7; 16]));
    made.expect("the medium works");
    assert!(accesses < 20, "{accesses} to make it");
    let shards_count = u64::from(layout.shards);
    let ring_pieces = shards_count * u64::from(layout.ring_pages) * PAGE_BYTES as u64 / (512 << 10);
    for session in 1..3 {
        let (opened, accesses) = ssd.accesses_of(|| ssd.open());
        let Opened { mut root, shards, started, .. } = opened.expect("the medium works");
        assert_eq!((started.session, shards.len() as u64), (session, shards_count));
        let most = if session == 1 { ring_pieces + 1000 } else { 1000 };
        assert!(accesses < most * shards_count, "{accesses} to open it");
        let (saved, accesses) = ssd.accesses_of(|| root.checkpoint(&shards));
        saved.expect("the medium works");
        assert!(accesses < 100 * shards_count, "{accesses} to leave it");
    }
}

#[test]
fn logs_that_are_too_long_are_a_sentence() {
    let mut ssd = Sparse::default();
    let planned = Layout::plan_default(300 << 30, 4).expect("fits");
    // As an earlier release made them, of 256 GiB on two processors.
    let layout = Layout { shards: 2, segments_per_shard: 16_384, ..planned };
    superblock::create(&mut ssd, layout, [7; 16]).expect("the medium works");
    let error = ssd.open().map(|_| ()).expect_err("no index can name its slots");
    let expected = "each of its 2 logs has 137438953472 bytes, more than hearth can use: an earlier release made it so, and never cached anything \
                    there";
    assert!(error.reason().contains(expected), "{}", error.reason());
    assert_eq!(error.remedy(), "make a new cache for it with `hearth pool replace p --ssd /dev/large --force`");
    let mut state = superblock::load(&mut ssd).expect("it can be wiped, so it can be loaded");
    assert_eq!(state.superblock.layout, layout);
    state.store(&mut ssd).expect("the medium works");
}
