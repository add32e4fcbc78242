//! What a [`Context`](crate::endpoint::Context) can do, done.

use super::Reactor;
use crate::endpoint::{Endpoint, EndpointKey, Host, Refused};
use crate::volume::VolumeRef;
use engine::api::Request;
use io_uring::squeue::Entry128;
use page::PageMutVec;

impl Host for Reactor {
    fn push(&mut self, endpoint: EndpointKey, mut entry: Entry128, token: u32) {
        entry.set_user_data(self.endpoint_pushed(endpoint, token));
        // SAFETY: promised to `Context::push`, the only way here; the endpoint is kept until the entry's last completion.
        unsafe { self.ring.push(entry) };
    }

    fn cancel(&mut self, endpoint: EndpointKey, token: u32) {
        self.cancel_entries(endpoint, Some(token));
    }

    fn set_client(&mut self, endpoint: EndpointKey, client: u32) {
        if let Some(slot) = self.endpoint(endpoint) {
            slot.client = client;
        }
    }

    fn submit(&mut self, endpoint: EndpointKey, volume: &VolumeRef, request: Request) -> Result<(), Refused> {
        self.submit_request(endpoint, volume, request)
    }

    fn allocate_pages(&mut self, endpoint: EndpointKey, volume: &VolumeRef, pages: usize) -> Option<PageMutVec> {
        self.page_waiters.allocate_for_endpoint(endpoint, &volume.0, pages)
    }

    fn ask_for_turn_end(&mut self, endpoint: EndpointKey) {
        self.turn_ends.push(endpoint);
    }

    fn set_timer(&mut self, endpoint: EndpointKey, deadline_ns: u64, token: u32) {
        self.timers.set(endpoint, token, deadline_ns);
    }

    fn cancel_timer(&mut self, endpoint: EndpointKey, token: u32) {
        self.timers.cancel(endpoint, token);
    }

    fn add_endpoint(&mut self, parent: EndpointKey, endpoint: Box<dyn Endpoint>) {
        let membership = self.membership(parent);
        self.directory.add_endpoint(endpoint, membership);
    }

    fn close(&mut self, endpoint: EndpointKey) {
        self.close_endpoint(endpoint);
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }
}
