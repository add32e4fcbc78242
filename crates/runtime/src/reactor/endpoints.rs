//! The life of endpoints on a reactor.

use super::Reactor;
use crate::endpoint::{Context, Endpoint, EndpointKey};
use crate::group::Membership;
use crate::user_data::{Kind, user_data};
use std::sync::atomic::Ordering;

/// An endpoint's place.
pub(crate) struct EndpointSlot {
    /// Out of its place while one of its callbacks runs.
    endpoint: Option<Box<dyn Endpoint>>,
    generation: u32,
    membership: Membership,
    entries_in_flight: usize,
    closing: bool,
    stopped: bool,
    /// See [`Context::set_client`].
    pub(crate) client: u32,
}

impl EndpointSlot {
    /// Whether it is that one, and not one that had the place before or has it now.
    pub(crate) fn is(&self, key: EndpointKey) -> bool {
        self.generation == key.generation
    }
}

impl Reactor {
    /// An endpoint arrives.
    pub(crate) fn add_endpoint_here(&mut self, endpoint: Box<dyn Endpoint>, membership: Membership) {
        if membership.0.is_stopping() {
            self.directory.peers[self.index as usize].endpoints.fetch_sub(1, Ordering::Relaxed);
            // In this order: who waits for an empty group finds what the endpoint has left.
            drop(endpoint);
            drop(membership);
            return;
        }
        self.endpoint_generation = self.endpoint_generation.wrapping_add(1);
        let generation = self.endpoint_generation;
        let slot = self.endpoints.insert(EndpointSlot {
            endpoint: Some(endpoint),
            generation,
            membership,
            entries_in_flight: 0,
            closing: false,
            stopped: false,
            client: 0,
        });
        self.call(EndpointKey { slot, generation }, |endpoint, cx| endpoint.start(cx));
    }

    pub(crate) fn endpoint(&mut self, key: EndpointKey) -> Option<&mut EndpointSlot> {
        self.endpoints.get_mut(key.slot).filter(|slot| slot.generation == key.generation)
    }

    /// Calls an endpoint, unless it is gone or closing.
    pub(crate) fn call(&mut self, key: EndpointKey, callback: impl FnOnce(&mut dyn Endpoint, &mut Context<'_>)) {
        let Some(slot) = self.endpoint(key).filter(|slot| !slot.closing) else { return };
        let mut endpoint = slot.endpoint.take().expect("no callback runs inside another");
        callback(&mut *endpoint, &mut Context { host: self, endpoint: key });
        let slot = self.endpoint(key).expect("its place is kept during the callback");
        slot.endpoint = Some(endpoint);
        if slot.closing {
            self.release_if_drained(key);
        }
    }

    pub(crate) fn endpoint_pushed(&mut self, key: EndpointKey, token: u32) -> u64 {
        self.endpoint(key).expect("a context's endpoint is there").entries_in_flight += 1;
        user_data(Kind::Endpoint, self.entries.insert((key, token)))
    }

    pub(crate) fn endpoint_entry_completed(&mut self, number: u32, result: i32, flags: u32) {
        let &(key, token) = self.entries.get(number).expect("a completion names something in flight");
        if io_uring::cqueue::more(flags) {
            return self.call(key, |endpoint, cx| endpoint.ring(cx, token, result, flags));
        }
        self.entries.remove(number);
        let slot = self.endpoint(key).expect("an endpoint outlives its entries");
        slot.entries_in_flight -= 1;
        if slot.closing {
            self.release_if_drained(key);
        } else {
            self.call(key, |endpoint, cx| endpoint.ring(cx, token, result, flags));
        }
    }

    /// Asks the kernel to end entries of an endpoint: those of one token, or all.
    pub(crate) fn cancel_entries(&mut self, key: EndpointKey, token: Option<u32>) {
        let chosen = |(_, (owner, pushed_as)): &(u32, &(EndpointKey, u32))| *owner == key && token.is_none_or(|t| t == *pushed_as);
        let targets: Vec<u32> = self.entries.iter().filter(chosen).map(|(number, _)| number).collect();
        for number in targets {
            self.cancel_entry(user_data(Kind::Endpoint, number));
        }
    }

    /// The endpoint is finished, by its own word or by force.
    pub(crate) fn close_endpoint(&mut self, key: EndpointKey) {
        let Some(slot) = self.endpoint(key).filter(|slot| !slot.closing) else { return };
        slot.closing = true;
        self.timers.cancel_all(key);
        self.page_waiters.forget(key);
        self.cancel_entries(key, None);
        self.release_if_drained(key);
    }

    fn release_if_drained(&mut self, key: EndpointKey) {
        let Some(slot) = self.endpoint(key) else { return };
        if slot.entries_in_flight > 0 || slot.endpoint.is_none() {
            return;
        }
        self.directory.peers[self.index as usize].endpoints.fetch_sub(1, Ordering::Relaxed);
        // The endpoint is dropped before its membership: who waits for an empty group finds its sockets closed.
        let EndpointSlot { endpoint, membership, .. } = self.endpoints.remove(key.slot);
        drop(endpoint);
        drop(membership);
    }

    /// Whether an endpoint is there whose entries should have ended.
    pub(crate) fn has_stuck_endpoints(&self) -> bool {
        self.endpoints.iter().any(|(_, slot)| !slot.membership.0.is_abandoned())
    }

    /// Whether an endpoint is there whose entries end with the process.
    pub(crate) fn has_left_endpoints(&self) -> bool {
        !self.endpoints.is_empty()
    }

    /// Keys of a group's endpoints here.
    pub(crate) fn members(&self, group: u32) -> Vec<EndpointKey> {
        let members = self.endpoints.iter().filter(|(_, place)| place.membership.0.0.number == group);
        members.map(|(slot, place)| EndpointKey { slot, generation: place.generation }).collect()
    }

    /// Asks the endpoints of a group to wind down; later calls change nothing.
    pub(crate) fn stop_group(&mut self, group: u32) {
        for key in self.members(group) {
            let slot = self.endpoint(key).expect("just listed");
            if !std::mem::replace(&mut slot.stopped, true) {
                self.callbacks.push_back(super::Callback::Stop(key));
            }
        }
    }

    /// Asks the endpoints of a group to look at what they share with others.
    pub(crate) fn wake_group(&mut self, group: u32) {
        for key in self.members(group) {
            self.callbacks.push_back(super::Callback::Woken(key));
        }
    }

    pub(crate) fn membership(&mut self, key: EndpointKey) -> Membership {
        self.endpoint(key).expect("a context's endpoint is there").membership.0.join()
    }
}
