//! Dirty blocks that a log carries on as lost.

use super::alone::{Rig, noise};
use super::lives::SHARD;
use super::pool::pool_with;
use engine::api::{Op, RequestError};
use engine::medium::Medium;
use engine::store::upgrade::upgrade;
use engine::superblock;
use format::Layout;
use oldlog::{Block, Packing, Place, Writer};
use page::PageVec;
use types::{Content, VolumeId};

/// They are errors after the upgrade, again and again, until they are written anew; what lies beside them is not.
pub fn they_stay_errors(packs: bool) {
    const BLOCKS: u64 = 30;
    let layout = Layout::plan(6 << 20, 1, 64 << 10).expect("a small pool");
    let (mut disk, mut pool) = pool_with(7, layout);
    let place = Place { uuid: pool.superblock.uuid, session: 1, shard: SHARD, layout };
    let mut writer = Writer::new(place, 1, packs.then(|| Packing::fast(5)));
    let is_lost = |block: u64| block % 3 == 1;
    for block in 0..BLOCKS {
        let page = &noise(block);
        match is_lost(block) {
            true => writer.lose(VolumeId(1), block, page),
            false => writer.add(&Block { volume: VolumeId(1), block, mask: u8::MAX, dirty: true, page }),
        }
    }
    let log = writer.finish();
    pool.begin_session(&mut disk, &[log.begin()], &[]).expect("begins");
    for (offset_bytes, bytes) in &log.writes {
        disk.write(*offset_bytes, bytes).expect("writes");
    }
    disk.flush().expect("flushes");
    let mut state = superblock::load(&mut disk).expect("loads");
    let [outlook] = upgrade(&mut disk, &mut state, packs).expect("there is room")[..] else { panic!("one shard") };
    assert_eq!((outlook.dirty_blocks, outlook.forgotten_blocks), (BLOCKS, 0));

    let content = if packs { Content::Fast } else { Content::Off };
    let mut rig = Rig::new(content).restarted(&mut disk, content);
    rig.tolerates_unreadable = true;
    for _ in 0..2 {
        for block in 0..BLOCKS {
            rig.replies.clear();
            rig.begin(Op::Read, block, PageVec::new());
            let reply = rig.replies.pop().expect("an answer");
            match is_lost(block) {
                true => assert_eq!(reply.result, Err(RequestError::Io), "block {block}"),
                false => assert!(reply.result.is_ok() && reply.pages[0][..] == noise(block), "block {block}"),
            }
        }
    }
    for block in (0..BLOCKS).filter(|block| is_lost(*block)) {
        rig.write(block, &[noise(block + 100)]);
        let reply = rig.request(Op::Read, block, PageVec::new()).expect("an answer");
        assert!(reply.pages[0][..] == noise(block + 100), "block {block}");
    }
}
