//! Messages from other reactors and the control thread, carried out.

use super::Reactor;
use crate::endpoint::EndpointKey;
use crate::message::Message;
use engine::api::{Outcome, RequestError};
use engine::shard::Shard;
use page::PageVec;
use types::ShardIndex;

impl Reactor {
    pub(crate) fn take_messages(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        self.directory.peers[self.index as usize].inbox.take(&mut messages);
        for message in messages.drain(..) {
            self.carry_out(message);
        }
        self.messages = messages;
    }

    /// Answers go to threads that may have stopped waiting: that a `done` cannot be sent is no error.
    fn carry_out(&mut self, message: Message) {
        match message {
            Message::AddEndpoint { endpoint, membership } => self.add_endpoint_here(endpoint, membership),
            Message::StopGroup { group } => self.stop_group(group),
            Message::WakeGroup { group } => self.wake_group(group),
            Message::ForceCloseGroup { group } => self.members(group).into_iter().for_each(|key| self.close_endpoint(key)),
            Message::AddDevice { device, model, done } => {
                let _ = done.send(self.devices.add(device, model));
            }
            Message::RemoveDevice { number, done } => {
                let _ = done.send(self.devices.remove(&mut self.ring, self.now_ns, number));
            }
            Message::GiveUpDevice { number, done } => {
                self.devices.give_up(&mut self.ring, self.now_ns, number);
                let _ = done.send(());
            }
            Message::DeviceWaits { done } => {
                let _ = done.send(self.devices.waits(self.now_ns));
            }
            Message::DeviceStats { number, done } => {
                let _ = done.send(self.devices.stats(number));
            }
            Message::AddVolume { volume, in_flight_max, done } => {
                self.add_volume_here(volume, in_flight_max);
                let _ = done.send(());
            }
            Message::RemoveVolume { number, done } => self.remove_volume_here(number, done),
            Message::VolumeStats { number, done } => {
                let _ = done.send(self.volume_stats(number));
            }
            Message::TakeTapped { done } => {
                let _ = done.send(self.take_tapped_here());
            }
            Message::ChangedVolumeStats { known, done } => {
                let _ = done.send(self.changed_volume_stats(&known));
            }
            Message::RemoteIo { device, io, from, tag } => {
                let owner = crate::device_io::Owner::Remote { reactor: from, tag };
                self.devices.submit(&mut self.ring, self.now_ns, device, io, owner);
            }
            Message::RemoteIoDone { tag, result, pages } => self.devices.forwarded_done(tag, result, pages),
            Message::FlushEnded { slot, believed } => self.devices.flush_ended(&mut self.ring, self.now_ns, slot, believed),
            Message::AddPool { mut part, done } => {
                let number = part.ways.number as usize;
                if self.pools.len() <= number {
                    self.pools.resize_with(number + 1, || None);
                }
                if self.load.is_busy() {
                    part.set_host_busy(self.now_ns, true);
                }
                self.pools[number] = Some(*part);
                let _ = done.send(());
            }
            Message::GrowModel { number, size_bytes, done } => {
                self.devices.grow_model(number, size_bytes);
                let _ = done.send(());
            }
            Message::SetBacking { pool, volume, device, done } => {
                if let Some(part) = self.pool(pool) {
                    part.set_backing(volume, device);
                }
                let _ = done.send(());
            }
            Message::RemovePool { pool, done } => {
                let _ = done.send(self.remove_pool_here(pool));
            }
            // A pool that was removed before its time leaves such messages behind.
            Message::ShardRequest { pool, shard, origin, request } => {
                let now_ns = self.now_ns;
                if let Some(part) = self.pool(pool) {
                    part.shard_request(now_ns, shard, origin, request);
                }
            }
            Message::ShardReply { pool, shard, reply } => {
                if let Some(part) = self.pool(pool) {
                    part.part.shard_reply(shard, reply);
                }
            }
            Message::Command { pool, command, done } => {
                let now_ns = self.now_ns;
                if let Some(part) = self.pool(pool) {
                    part.command(now_ns, &command);
                }
                let _ = done.send(());
            }
            Message::SetContent { pool, level, done } => {
                if let Some(part) = self.pool(pool) {
                    part.set_content(level);
                }
                let _ = done.send(());
            }
            Message::InspectShards { pool, inspect, done } => {
                if let Some(part) = self.pool(pool) {
                    part.inspect(&inspect);
                }
                let _ = done.send(());
            }
            Message::Exit { deadline_ns } => self.exit_by_ns = Some(deadline_ns),
        }
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
