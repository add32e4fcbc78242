//! What a request costs between a client and the shards, in instructions: for who changes the front.

use engine::api::{Op, Origin, Outcome, Reply, Request, VolumeOptions};
use engine::front::{Front, FrontAction};
use engine::key::mix;
use page::PageVec;
use types::{ShardIndex, VolumeId, VolumeIndex};

/// A loop to be counted: reads of one block of a volume without policies, through the front and back, the shard left out.
///
/// `valgrind --tool=callgrind --toggle-collect='*front_loop*'`; the difference of two lengths, divided by the difference of requests, is the
/// cost of one.
pub fn instructions(requests: u64) {
    let mut front = Front::new(1);
    front.set_volume(VolumeIndex(0), VolumeId(1), VolumeOptions::default());
    front_loop(&mut front, 100);
    println!("{}", front_loop(&mut front, requests));
}

#[inline(never)]
fn front_loop(front: &mut Front, requests: u64) -> u64 {
    let mut answered = 0;
    for step in 0..requests {
        let start_sector = mix(step) % (1 << 20) * 8;
        front.submit(Request::new(step, VolumeIndex(0), Op::Read, start_sector, 8, Origin::Client));
        let Some(FrontAction::ToShard(_, part)) = front.poll() else { return answered };
        let reply = Reply { id: part.id, result: Ok(()), pages: PageVec::new(), outcome: Outcome::RamHit, range: None };
        front.shard_reply(ShardIndex(0), reply);
        answered += u64::from(matches!(front.poll(), Some(FrontAction::Reply(reply)) if reply.id == step));
    }
    answered
}
