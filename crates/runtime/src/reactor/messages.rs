//! Messages from other reactors and the control thread, carried out.

use super::Reactor;
use crate::cached::PoolPart;
use crate::endpoint::EndpointKey;
use crate::message::Message;
use engine::api::{Outcome, RequestError};
use engine::shard::Shard;
use page::PageVec;
use std::sync::mpsc::Sender;
use types::ShardIndex;

/// The thread that asked may have stopped waiting: that an answer cannot be sent is no error.
fn answer<T>(done: &Sender<T>, answer: T) {
    let _ = done.send(answer);
}

impl Reactor {
    pub(crate) fn take_messages(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        self.directory.peers[self.index as usize].inbox.take(&mut messages);
        for message in messages.drain(..) {
            self.carry_out(message);
        }
        self.messages = messages;
    }

    fn carry_out(&mut self, message: Message) {
        match message {
            Message::AddEndpoint { endpoint, membership } => self.add_endpoint_here(endpoint, membership),
            Message::StopGroup { group } => self.stop_group(group),
            Message::WakeGroup { group } => self.wake_group(group),
            Message::ForceCloseGroup { group } => self.members(group).into_iter().for_each(|key| self.close_endpoint(key)),
            Message::AddDevice { device, model, done } => answer(&done, self.devices.add(device, model)),
            Message::RemoveDevice { number, done } => answer(&done, self.devices.remove(&mut self.ring, self.now_ns, number)),
            Message::GiveUpDevice { number, done } => {
                self.devices.give_up(&mut self.ring, self.now_ns, number);
                answer(&done, ());
            }
            Message::DeviceWaits { done } => answer(&done, self.devices.waits(self.now_ns)),
            Message::DeviceStats { number, done } => answer(&done, self.devices.stats(number)),
            Message::AddVolume { volume, in_flight_max, done } => {
                self.add_volume_here(volume, in_flight_max);
                answer(&done, ());
            }
            Message::RemoveVolume { number, done } => self.remove_volume_here(number, done),
            Message::VolumeStats { number, done } => answer(&done, self.volume_stats(number)),
            Message::TakeTapped { done } => answer(&done, self.take_tapped_here()),
            Message::ChangedVolumeStats { known, done } => answer(&done, self.changed_volume_stats(&known)),
            Message::RemoteIo { device, io, from, tag } => {
                let owner = crate::device_io::Owner::Remote { reactor: from, tag };
                self.devices.submit(&mut self.ring, self.now_ns, device, io, owner);
            }
            Message::RemoteIoDone { tag, result, pages } => self.devices.forwarded_done(tag, result, pages),
            Message::FlushEnded { slot, believed } => self.devices.flush_ended(&mut self.ring, self.now_ns, slot, believed),
            Message::AddPool { part, done } => {
                self.add_pool_here(*part);
                answer(&done, ());
            }
            Message::GrowModel { number, size_bytes, done } => {
                self.devices.grow_model(number, size_bytes);
                answer(&done, ());
            }
            Message::SetBacking { pool, volume, device, done } => {
                self.in_pool(pool, |part, _| part.set_backing(volume, device));
                answer(&done, ());
            }
            Message::RemovePool { pool, done } => answer(&done, self.remove_pool_here(pool)),
            Message::ShardRequest { pool, shard, origin, request } => {
                self.in_pool(pool, |part, now_ns| part.shard_request(now_ns, shard, origin, request));
            }
            Message::ShardReply { pool, shard, reply } => self.in_pool(pool, |part, _| part.part.shard_reply(shard, reply)),
            Message::Command { pool, command, done } => {
                self.in_pool(pool, |part, now_ns| part.command(now_ns, &command));
                answer(&done, ());
            }
            Message::SetContent { pool, level, done } => {
                self.in_pool(pool, |part, _| part.set_content(level));
                answer(&done, ());
            }
            Message::InspectShards { pool, inspect, done } => {
                self.in_pool(pool, |part, _| part.inspect(&inspect));
                answer(&done, ());
            }
            Message::Exit { deadline_ns } => self.exit_by_ns = Some(deadline_ns),
        }
    }

    /// A pool that was removed early leaves messages behind: they do nothing.
    fn in_pool(&mut self, pool: u32, act: impl FnOnce(&mut PoolPart, u64)) {
        let now_ns = self.now_ns;
        if let Some(part) = self.pool(pool) {
            act(part, now_ns);
        }
    }

    fn add_pool_here(&mut self, mut part: PoolPart) {
        let number = part.ways.number as usize;
        if self.pools.len() <= number {
            self.pools.resize_with(number + 1, || None);
        }
        if self.load.is_busy() {
            part.set_host_busy(self.now_ns, true);
        }
        self.pools[number] = Some(part);
    }

    fn remove_pool_here(&mut self, number: u32) -> Vec<(ShardIndex, Shard)> {
        let Some(part) = self.pools.get_mut(number as usize).and_then(Option::take) else { return Vec::new() };
        for request in self.requests_of_pool(number) {
            self.finish_request(request, Err(RequestError::Shutdown), PageVec::new(), Outcome::Other);
        }
        part.part.into_shards()
    }

    pub(super) fn call_volume_available(&mut self, key: EndpointKey) {
        self.call(key, |endpoint, cx| endpoint.volume_available(cx));
    }
}
