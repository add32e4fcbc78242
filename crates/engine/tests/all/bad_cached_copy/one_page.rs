//! One page of the SSD that cannot be read, among blocks that are read together.

use super::{Rig, Ssd, VOLUME};
use engine::api::{Command, Op, RequestError};
use engine::packer::ContentOptions;
use page::PageVec;
use types::Content;

/// The page of the SSD where these bytes begin.
fn page_of_bytes(rig: &Rig, bytes: &[u8]) -> u64 {
    let at = rig.ssd.windows(bytes.len()).position(|window| window == bytes).expect("on the SSD");
    at as u64 / 4096
}

/// Clients and destage read many blocks at once; if that fails, each of them is judged by its own page.
#[test]
fn one_page_that_cannot_be_read_harms_no_other() {
    const BAD: usize = 5;
    let mut rig = Rig::new();
    let pages: PageVec = (0..16).map(|block| rig.noise(block, 4096)).collect();
    assert_eq!(rig.request(Op::Write, 0, 16 * 8, pages.clone()).result, Ok(()));
    rig.ssd_is = Ssd::FailsReadsOf(page_of_bytes(&rig, &pages[BAD][..]));
    assert_eq!(rig.request(Op::Read, 0, 16 * 8, PageVec::new()).result, Err(RequestError::Io));
    let errors = rig.shard.volume_stats(VOLUME).expect("attached").ssd_read_errors;
    assert_eq!(errors, 1, "one block cannot be read");
    rig.shard.command(rig.now_ns, Command::Destage { token: 1, volume: VOLUME });
    while rig.done.is_empty() {
        rig.drain();
        rig.now_ns += 1_000_000;
        rig.shard.tick(rig.now_ns);
    }
    assert!(rig.done.pop().expect("ended").is_err(), "one block is not home");
    for block in 0..16 {
        assert_eq!(rig.backing[block * 4096..][..4096] == pages[block][..], block != BAD, "block {block} at home");
        let reply = rig.request(Op::Read, block as u64 * 8, 8, PageVec::new());
        let good = reply.result.is_ok() && reply.pages[0][..] == pages[block][..];
        assert_eq!(good, block != BAD, "block {block}: {:?}", reply.result);
    }
}

/// Dirty packed blocks in a page that cannot be read do not move out of it: they stay errors and take no more room, the others move, and what can be read
/// again after all is as it was.
#[test]
fn what_cannot_be_read_when_it_is_moved_stays_where_it_is() {
    const BLOCKS: usize = 64;
    let mut rig = Rig::new();
    let slots = u64::from(rig.shard.config().place.layout.slots_per_shard());
    rig.shard.set_content(ContentOptions { base_pages: 0, ..ContentOptions::suited(Content::Fast, 5, slots, 0) });
    let pages: PageVec = (0..BLOCKS).map(|block| rig.noise(block as u64, 500)).collect();
    assert_eq!(rig.request(Op::Write, 0, BLOCKS as u32 * 8, pages.clone()).result, Ok(()));
    // Of four blocks one stays: their slots are nearly empty.
    let stays = |block: usize| block.is_multiple_of(4);
    for block in (0..BLOCKS).filter(|block| !stays(*block)) {
        let page = PageVec::from_buf([rig.noise(1000 + block as u64, 500)]);
        assert_eq!(rig.request(Op::Write, block as u64 * 8, 8, page).result, Ok(()));
    }
    let bad_page = page_of_bytes(&rig, &pages[BLOCKS / 2][..400]);
    rig.ssd_is = Ssd::FailsReadsOf(bad_page);
    let (dirty_pages, reinserted) = (rig.shard.dirty_pages(), rig.shard.volume_stats(VOLUME).expect("attached").reinserted_bytes);
    // What fills the other slots lies in pages of its own.
    rig.shard.set_content(ContentOptions::suited(Content::Off, 5, slots, 0));
    rig.home_hangs = true;
    rig.fill_slots(5 * slots);
    let moved = (rig.shard.volume_stats(VOLUME).expect("attached").reinserted_bytes - reinserted) / 4096;
    assert!(moved >= BLOCKS as u64 / 8, "{moved} blocks moved");
    assert!(rig.shard.dirty_pages() <= dirty_pages, "{} before, {} now", dirty_pages, rig.shard.dirty_pages());
    let read = |rig: &mut Rig| {
        let good = |(block, page): (usize, &page::Page)| {
            let reply = rig.request(Op::Read, block as u64 * 8, 8, PageVec::new());
            assert!(reply.result == Err(RequestError::Io) || reply.pages[0][..] == page[..], "block {block}: {:?}", reply.result);
            reply.result.is_ok()
        };
        pages.iter().enumerate().filter(|(block, _)| stays(*block)).map(good).filter(|good| !good).count()
    };
    let bad = read(&mut rig);
    assert!((1..=3).contains(&bad), "as many as lie in that page: {bad}");
    rig.ssd_is = Ssd::Sound;
    assert_eq!(read(&mut rig), 0);
}
