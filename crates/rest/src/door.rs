//! How many connections there may be, and which one gives way: one door for each listener.
//!
//! A connection whose client has not said who it is costs that client nothing: half a TLS handshake, half a header, a page of the
//! console. It is owed nothing, so the oldest of them gives way to the newest, and whoever has a token finds a way to show it. With the
//! first request of a known client the connection gets a place among the known ones, where no stranger can push it out; there the one
//! that has been idle for longest gives way, and one that waits for its answer never does. Either way a client has a share only.

use crate::limits::Client;
use crate::problem::Problem;
use api::error::Kind;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use rustix::io::Errno;
use shares::{Full, Seldom, Slot, Table};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// So long is left to every connection to say who it is, however many others come.
const GRACE_NS: u64 = 100_000_000;
/// How long until one that has to wait for that is tried again.
const WAITING_POLL: Duration = Duration::from_millis(2);
/// The log tells of connections that gave way at most this often.
const TELL_EVERY_NS: u64 = 10_000_000_000;
/// Connections that gave way and are being told so. Of others the end comes without a word.
const FAREWELLS_MAX: usize = 32;

/// The limits of a listener's connections, and who is within.
#[derive(Debug)]
pub struct Door {
    strangers_max: usize,
    known_max: usize,
    inside: Mutex<Inside>,
    farewells: Arc<Semaphore>,
    began: Instant,
}

#[derive(Debug)]
struct Inside {
    strangers: Table<Client>,
    known: Table<Client>,
    /// How the connections behind the slots learn that they must go.
    ends: HashMap<Place, Arc<Notify>>,
    gave_way: Seldom,
    failures: Seldom,
}

/// Where a connection has its slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Place {
    Stranger(Slot),
    Known(Slot),
}

impl Door {
    /// With room for so many connections of clients that have not said who they are, and for so many of known ones.
    pub fn new(strangers_max: usize, known_max: usize) -> Arc<Door> {
        let inside = Inside {
            strangers: Table::with_share(strangers_max).with_grace(GRACE_NS),
            known: Table::with_share(known_max),
            ends: HashMap::new(),
            gave_way: Seldom::every(TELL_EVERY_NS),
            failures: Seldom::every(TELL_EVERY_NS),
        };
        let farewells = Arc::new(Semaphore::new(FAREWELLS_MAX));
        Arc::new(Door { strangers_max, known_max, inside: Mutex::new(inside), farewells, began: Instant::now() })
    }

    /// A connection comes in, as soon as others have had their time; nothing else is accepted meanwhile.
    pub async fn arrive(self: &Arc<Door>, peer: Client) -> Arc<Visit> {
        loop {
            if let Some(visit) = self.let_in(peer) {
                return visit;
            }
            tokio::time::sleep(WAITING_POLL).await;
        }
    }

    fn let_in(self: &Arc<Door>, peer: Client) -> Option<Arc<Visit>> {
        let gone = Arc::new(Notify::new());
        let mut inside = self.inside();
        // A stranger may always go, sooner or later.
        let entered = inside.strangers.enter(peer, true, self.now_ns()).ok()?;
        let place = Place::Stranger(entered.slot);
        inside.ends.insert(place, gone.clone());
        if let Some(slot) = entered.gives_way {
            inside.send_away(Place::Stranger(slot));
            if let Some(times) = inside.gave_way.happened(self.now_ns()) {
                tracing::warn!(
                    times,
                    "connections to the API were closed to make room for newer ones, before their clients had authenticated: {} of those are allowed at a time, three quarters of them for one address or user",
                    self.strangers_max
                );
            }
        }
        Some(Arc::new(Visit { door: self.clone(), gone, place: Mutex::new(Some(place)) }))
    }

    /// A connection could not be accepted, and `error` says why: who has not proved itself makes room if file descriptors are short.
    pub fn could_not_accept(&self, error: &std::io::Error) {
        let mut inside = self.inside();
        if matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
            && let Some(slot) = inside.strangers.make_room()
        {
            inside.send_away(Place::Stranger(slot));
        }
        if let Some(times) = inside.failures.happened(self.now_ns()) {
            tracing::warn!(times, "a connection to the API cannot be accepted yet ({error}); it waits");
        }
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().expect("no holder of this lock panics")
    }
}

impl Inside {
    fn send_away(&mut self, place: Place) {
        if let Some(gone) = self.ends.remove(&place) {
            gone.notify_one();
        }
    }

    fn leave(&mut self, place: Place) {
        self.ends.remove(&place);
        match place {
            Place::Stranger(slot) => self.strangers.leave(slot),
            Place::Known(slot) => self.known.leave(slot),
        }
    }
}

/// One connection's place; given back with the last reference.
#[derive(Debug)]
pub struct Visit {
    door: Arc<Door>,
    gone: Arc<Notify>,
    place: Mutex<Option<Place>>,
}

impl Visit {
    /// Returns when the connection has to give way to another.
    pub async fn must_go(&self) {
        self.gone.notified().await;
    }

    /// A permit to tell the client why, if not too many are being told already.
    pub fn farewell(&self) -> Option<OwnedSemaphorePermit> {
        self.door.farewells.clone().try_acquire_owned().ok()
    }

    /// A known client asks by this connection: it has a place among the known ones from now on, and is not sent away before the answer
    /// has gone.
    ///
    /// # Errors
    /// If all of the client's share, or every place, waits for an answer.
    pub fn known(self: &Arc<Visit>, client: Client) -> Result<Busy, Box<Problem>> {
        let mut inside = self.door.inside();
        let mut place = self.place.lock().expect("no holder of this lock panics");
        let slot = match *place {
            Some(Place::Known(slot)) if inside.known.must_stay(slot) => slot,
            // Whoever has given way has no end any more.
            Some(before @ Place::Stranger(_)) if inside.ends.contains_key(&before) => {
                let entered = inside.known.enter(client, false, self.door.now_ns()).map_err(|full| Box::new(self.door.refusal(full)))?;
                if let Some(slot) = entered.gives_way {
                    inside.send_away(Place::Known(slot));
                }
                inside.leave(before);
                let after = Place::Known(entered.slot);
                inside.ends.insert(after, self.gone.clone());
                *place = Some(after);
                entered.slot
            }
            _ => return Err(Box::new(crowded())),
        };
        drop((inside, place));
        Ok(Busy { visit: self.clone(), slot })
    }
}

impl Door {
    fn refusal(&self, full: Full) -> Problem {
        let detail = match full {
            Full::Peer => format!("{} of your requests are already in progress", self.known_max - self.known_max / 4),
            Full::Table | Full::NotYet => format!("{} requests are already in progress", self.known_max),
        };
        closing(Problem::new(Kind::Overloaded, detail, "try again in a moment"))
    }
}

/// What a connection is told that has to give way.
pub fn crowded() -> Problem {
    closing(Problem::new(
        Kind::Overloaded,
        "the connection was closed to make room for another one",
        "reconnect and send the request again",
    ))
}

fn closing(problem: Problem) -> Problem {
    problem.retry_after(1).with(header::CONNECTION, HeaderValue::from_static("close"))
}

impl Drop for Visit {
    fn drop(&mut self) {
        if let Some(place) = self.place.get_mut().expect("no holder of this lock panics").take() {
            self.door.inside().leave(place);
        }
    }
}

/// A request of a known client is under way.
#[derive(Debug)]
pub struct Busy {
    visit: Arc<Visit>,
    slot: Slot,
}

impl Busy {
    /// Keeps it for as long as the answer goes out.
    pub fn until_sent(self, response: Response) -> Response {
        response.map(|body| Body::new(Answer { body, _busy: self }))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let now_ns = self.visit.door.now_ns();
        self.visit.door.inside().known.may_go(self.slot, now_ns);
    }
}

/// The body of an answer on its way.
struct Answer {
    body: Body,
    _busy: Busy,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    async fn has_to_go(visit: &Visit) -> bool {
        timeout(Duration::ZERO, visit.must_go()).await.is_ok()
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
    }

    #[test]
    fn strangers_push_out_strangers_and_never_a_known_client() {
        runtime().block_on(async {
            let door = Door::new(4, 4);
            let (me, them) = (Client::User(1), Client::User(2));
            let known = door.arrive(me).await;
            drop(known.known(me).expect("there is room"));
            let first = door.arrive(me).await;
            let mut flood = Vec::new();
            for _ in 0..5 {
                flood.push(door.arrive(them).await);
            }
            // Three quarters are their share: the fourth and fifth cost the first two of their own.
            assert!(has_to_go(&flood[0]).await && has_to_go(&flood[1]).await && !has_to_go(&flood[2]).await);
            assert!(!has_to_go(&first).await && !has_to_go(&known).await);
            let _other = door.arrive(Client::User(3)).await;
            assert!(has_to_go(&first).await, "the oldest of all");
            assert!(first.known(me).is_err(), "too late");
        });
    }

    #[test]
    fn the_idle_give_way_and_who_waits_for_an_answer_does_not() {
        runtime().block_on(async {
            let door = Door::new(8, 4);
            let come = |user| {
                let visit = door.let_in(Client::User(user)).expect("there is room");
                let busy = visit.known(Client::User(user));
                (visit, busy)
            };
            let (one, busy_one) = come(1);
            let (two, busy_two) = come(1);
            let (_three, _busy_three) = come(1);
            drop(busy_two);
            drop(busy_one);
            assert!(come(1).1.is_ok() && has_to_go(&two).await && !has_to_go(&one).await, "the one that was idle for longest");
            let again = one.known(Client::User(1)).expect("it has its place");
            let (_four, busy_four) = come(1);
            assert!(busy_four.is_ok() && come(1).1.is_err(), "the share is used up by those that wait");
            let (_five, busy_five) = come(2);
            assert!(busy_five.is_ok() && come(3).1.is_err());
            drop(again);
            assert!(come(3).1.is_ok() && has_to_go(&one).await);
        });
    }
}
