//! Requests of one endpoint that its volume refused for now.

use crate::endpoint::{Context, Refused};
use crate::volume::VolumeRef;
use engine::api::Request;
use std::collections::VecDeque;

/// Requests that the volume had no room for, in the order in which they were submitted.
///
/// Order: no request overtakes an earlier one. Fairness: requests that wait get the first room that the endpoint finds; among endpoints,
/// the reactor calls [`Endpoint::volume_available`](crate::Endpoint::volume_available) of all that were refused. Endpoints that can hold
/// their client back keep one request here at most, the others at most as many as their protocol has in flight. Memory is allocated
/// when the first request is refused, and used again for later ones.
#[derive(Debug, Default)]
pub struct Backlog {
    requests: VecDeque<Request>,
}

impl Backlog {
    /// Gives a request to the volume, unless others wait: then it waits behind them. Says whether the volume has it.
    #[inline]
    pub fn submit(&mut self, cx: &mut Context<'_>, volume: &VolumeRef, request: Request) -> bool {
        if self.requests.is_empty() {
            match cx.submit(volume, request) {
                Ok(()) => return true,
                Err(Refused(request)) => self.requests.push_back(request),
            }
        } else {
            self.requests.push_back(request);
        }
        false
    }

    /// Gives what waits to the volume, the oldest first, until one is refused. `taken` gets the id of each that the volume has now. Says
    /// whether nothing waits any more.
    #[inline]
    pub fn retry(&mut self, cx: &mut Context<'_>, volume: &VolumeRef, mut taken: impl FnMut(u64)) -> bool {
        while let Some(request) = self.requests.pop_front() {
            let id = request.id;
            if let Err(Refused(request)) = cx.submit(volume, request) {
                self.requests.push_front(request);
                return false;
            }
            taken(id);
        }
        true
    }

    /// Gives up all that wait: the volume never had them. Oldest first.
    pub fn take(&mut self) -> VecDeque<Request> {
        std::mem::take(&mut self.requests)
    }

    /// How many wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether none waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::ANY_VOLUME;
    use crate::endpoint::tests::FakeHost;
    use crate::volume::VolumeShared;
    use engine::api::Origin;
    use page::PagePool;
    use std::sync::Arc;

    fn request(id: u64) -> Request {
        Request::read(id, ANY_VOLUME, 8 * id, 8, Origin::Client)
    }

    #[test]
    fn a_refused_request_is_tried_again_before_any_later_one() {
        let volume = VolumeRef(Arc::new(VolumeShared::for_test(PagePool::new(16), 0)));
        let mut host = FakeHost { room: 1, ..FakeHost::default() };
        let mut backlog = Backlog::default();
        assert!(backlog.submit(&mut host.context(), &volume, request(0)));
        for id in 1..4 {
            assert!(!backlog.submit(&mut host.context(), &volume, request(id)), "there is no room");
        }
        assert_eq!((backlog.len(), host.refusals), (3, 1), "what waits behind others does not ask");
        host.room = 2;
        let mut taken = Vec::new();
        assert!(!backlog.retry(&mut host.context(), &volume, |id| taken.push(id)));
        assert_eq!((taken, backlog.len()), (vec![1, 2], 1));
        host.room = 2;
        assert!(!backlog.submit(&mut host.context(), &volume, request(4)), "others wait, though there is room");
        assert!(backlog.retry(&mut host.context(), &volume, |_| ()));
        assert_eq!(host.submitted, [0, 1, 2, 3, 4]);
        assert!(backlog.is_empty());
    }

    #[test]
    fn what_is_given_up_is_not_tried_again() {
        let volume = VolumeRef(Arc::new(VolumeShared::for_test(PagePool::new(16), 0)));
        let mut host = FakeHost::default();
        let mut backlog = Backlog::default();
        (7..9).for_each(|id| assert!(!backlog.submit(&mut host.context(), &volume, request(id))));
        assert_eq!(backlog.take().iter().map(|request| request.id).collect::<Vec<_>>(), [7, 8]);
        host.room = 9;
        assert!(backlog.retry(&mut host.context(), &volume, |id| panic!("{id} was given up")));
        assert_eq!(host.submitted, []);
    }
}
