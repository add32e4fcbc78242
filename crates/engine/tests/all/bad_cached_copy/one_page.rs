//! One page of the SSD that cannot be read, among blocks that are read together.

use super::{Rig, Ssd, VOLUME, contents};
use engine::api::{Command, Op, RequestError};
use engine::packer::ContentOptions;
use page::PageVec;
use types::Content;

/// The page of the SSD where these bytes begin.
fn page_of_bytes(rig: &Rig, bytes: &[u8]) -> u64 {
    let at = rig.ssd.windows(bytes.len()).position(|window| window == bytes).expect("on the SSD");
    at as u64 / 4096
}

/// Writes other blocks over and over until the cleaner has been round once: what was dirty before stays so, and is moved.
fn go_round(rig: &mut Rig) {
    let until_seq = rig.shard.stats().newest_region + u64::from(rig.shard.config().place.layout.segments_per_shard);
    let mut version = 0;
    while rig.shard.stats().newest_region <= until_seq {
        version += 16;
        let pages: PageVec = (version..version + 16).map(|block| rig.noise(1_000_000 + block, 4096)).collect();
        assert_eq!(rig.request(Op::Write, 200 * 8, 16 * 8, pages).result, Ok(()));
    }
}

/// Clients, destage and cleaner read many blocks at once; if that fails, each of them is judged by its own page.
#[test]
fn one_page_that_cannot_be_read_harms_no_other() {
    const BAD: usize = 5;
    for moved in [false, true] {
        let mut rig = Rig::new();
        let pages: PageVec = (0..16).map(|block| rig.noise(block, 4096)).collect();
        assert_eq!(rig.request(Op::Write, 0, 16 * 8, pages.clone()).result, Ok(()));
        rig.ssd_is = Ssd::FailsReadsOf(page_of_bytes(&rig, &pages[BAD][..]));
        if moved {
            go_round(&mut rig);
            rig.ssd_is = Ssd::Sound;
        } else {
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
            }
        }
        for block in 0..16 {
            let reply = rig.request(Op::Read, block as u64 * 8, 8, PageVec::new());
            let good = reply.result.is_ok() && reply.pages[0][..] == pages[block][..];
            assert_eq!(good, block != BAD, "moved {moved}, block {block}: {:?}", reply.result);
        }
    }
}

/// A packed block that cannot be read when it is moved stays an error until it is written anew, and takes no page for that.
#[test]
fn a_packed_block_that_is_lost_takes_no_page() {
    const BLOCKS: usize = 32;
    let mut rig = Rig::new();
    let slots = u64::from(rig.shard.config().place.layout.slots_per_shard());
    rig.shard.set_content(ContentOptions { base_pages: 0, ..ContentOptions::suited(Content::Fast, 5, slots, 0) });
    let pages: PageVec = (0..BLOCKS).map(|block| rig.noise(block as u64, 500)).collect();
    assert_eq!(rig.request(Op::Write, 0, BLOCKS as u32 * 8, pages.clone()).result, Ok(()));
    let bad_page = page_of_bytes(&rig, &pages[BLOCKS / 2][..400]);
    rig.ssd_is = Ssd::FailsReadsOf(bad_page);
    let dirty_pages = rig.shard.dirty_pages();
    go_round(&mut rig);
    rig.ssd_is = Ssd::Sound;
    let census = rig.shard.content_stats().census;
    assert!((5..=10).contains(&census.lost), "as many as lie in that page: {census:?}");
    assert!(rig.shard.dirty_pages() <= dirty_pages + 16, "{} before, {} now", dirty_pages, rig.shard.dirty_pages());
    for _ in 0..2 {
        let mut lost = 0;
        for (block, page) in pages.iter().enumerate() {
            let reply = rig.request(Op::Read, block as u64 * 8, 8, PageVec::new());
            match reply.result {
                Ok(()) => assert!(reply.pages[0][..] == page[..], "block {block}"),
                Err(error) => {
                    assert_eq!(error, RequestError::Io, "block {block}");
                    lost += 1;
                }
            }
        }
        assert_eq!(lost, census.lost);
        assert_eq!(rig.check().0.dirty_bad, census.lost, "a check tells them, too");
        // They are moved once more.
        go_round(&mut rig);
    }
    assert_eq!(rig.request(Op::Write, 0, BLOCKS as u32 * 8, pages.clone()).result, Ok(()));
    assert_eq!(rig.shard.content_stats().census.lost, 0);
    let reply = rig.request(Op::Read, 0, BLOCKS as u32 * 8, PageVec::new());
    assert_eq!((reply.result, contents(&reply.pages)), (Ok(()), contents(&pages)));
}
