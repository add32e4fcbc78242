//! Guests and front ends that break the rules: they harm nobody but themselves.

use crate::common::{PATIENCE, Stage, taken_soon};
use guest::memory::{GUEST_BASE, Memory, USER_BASE};
use guest::{Buffers, Guest, Kind, Options, Queue};
use rustix::fs::ftruncate;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// One of these, or any number.
    fn odd(&mut self, usual: &[u64]) -> u64 {
        match self.below(8) {
            0 => self.next(),
            1 => u64::MAX - self.below(64),
            2 => 0,
            _ => usual[self.below(usual.len() as u64) as usize],
        }
    }
}

/// Somebody else on the same reactors reads and writes as ever, and the pages of all requests come back.
fn others_are_well(stage: &Stage, victim: &mut Guest, round: u64) {
    let mut data = vec![round as u8; 8192];
    assert_eq!(victim.queues[0].run(Kind::Write as u32, 64, &mut data, false, PATIENCE), 0);
    let mut found = vec![0; 8192];
    assert_eq!(victim.queues[0].run(Kind::Read as u32, 64, &mut found, true, PATIENCE), 0);
    assert!(found == data, "round {round}");
    assert!(stage.runtime().pages().pages_out() < 4096, "{} pages are out", stage.runtime().pages().pages_out());
}

fn small() -> Options {
    Options { entries: 16, buffers: Buffers { slots: 4, data_bytes: 8192 }, indirect: true, ..Options::default() }
}

/// Writes nonsense where descriptors, tables, heads and requests are looked for; some of it is nearly right.
fn scribble(random: &mut Random, queue: &mut Queue) {
    let memory = queue.memory().clone();
    let inside = memory.bytes() as u64;
    let [descriptors, available, used] = queue.parts();
    let end = GUEST_BASE + inside;
    for index in 0..64 {
        // The queue's own table, and the tables of requests behind it.
        let at = if index < 16 { descriptors + 16 * index } else { used + 512 + 16 * index };
        let guest = random.odd(&[GUEST_BASE, GUEST_BASE + 4096, GUEST_BASE + random_offset(inside, index as u64), end - 16, end - 1, end]);
        let bytes = random.odd(&[0, 1, 16, 17, 512, 513, 4096, 4097, 8192, inside, 32, 48, 64]) as u32;
        let flags = random.odd(&[0, 1, 2, 3, 4, 5, 6, 7]) as u16;
        let next = random.odd(&[0, 1, 2, 3, 15, 16, index as u64, index as u64 + 1]) as u16;
        queue.describe(at, guest, bytes, flags, next);
    }
    // Headers that are nearly requests, wherever a descriptor may point.
    for at in [0, 4096, inside as usize / 2] {
        let kind = random.odd(&[0, 1, 4, 8, 11, 13, 99]) as u32;
        let sector = random.odd(&[0, 1, 8, 131_071, 131_072, u64::MAX / 512]);
        if at > 0 {
            let header = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
            memory.write(at, &header);
        }
    }
    for entry in 0..16 {
        memory.store(available + 4 + 2 * entry, random.odd(&[0, 1, 2, 3, 15, 16, entry as u64]) as u16);
    }
    let index = memory.load(available + 2);
    let step = random.odd(&[1, 1, 2, 3, 16, 17, 0x8000]) as u16;
    queue.set_available_index(index.wrapping_add(step));
    memory.store(available + 4 + 32, random.next() as u16);
    queue.kick_now();
}

/// Good requests of which little is changed.
fn spoil(random: &mut Random, queue: &mut Queue) {
    let kinds = [(Kind::Read, true), (Kind::Write, false), (Kind::Flush, false), (Kind::Discard, false), (Kind::GetId, true)];
    while let Some(slot) = queue.take_slot() {
        let (kind, reads) = kinds[random.below(5) as usize];
        let bytes = [0, 512, 4096, 8192][random.below(4) as usize];
        queue.fill(slot, kind as u32, random.odd(&[0, 8, 1000, 131_064]), bytes, reads, 1 + random.below(4) as usize);
        let memory = queue.memory().clone();
        let table = memory.load(queue.parts()[0] + 16 * slot) as u64 | (memory.load(queue.parts()[0] + 16 * slot + 2) as u64) << 16;
        let table = (table - GUEST_BASE) as usize;
        if random.below(3) == 0 {
            // A word of a descriptor, or of the header in front of the table.
            memory.store(table - 32 + 2 * random.below(48) as usize, random.odd(&[0, 1, 2, 3, 4, 7, 512, 4096]) as u16);
        }
    }
    queue.notify();
}

fn random_offset(inside: u64, index: u64) -> u64 {
    (index * 977) % inside
}

#[test]
fn guests_that_write_nonsense_into_their_queues_harm_nobody() {
    let stage = Stage::new();
    let other = Stage::new();
    let mut victim = taken_soon(|| Guest::start(other.export().path(), Options::default()), "a guest");
    let mut random = Random(0x5eed_1234);
    let mut answered = 0u64;
    for round in 0..200 {
        let options = Options { with_events: round % 2 == 0, inflight: round % 3 > 0, ..small() };
        let mut guest = taken_soon(|| Guest::start(stage.export().path(), options), "the export still takes guests");
        let mut is_record_spoilt = false;
        for _ in 0..1 + random.below(6) {
            if round % 4 > 0 {
                spoil(&mut random, &mut guest.queues[0]);
                while guest.queues[0].wait(Duration::from_millis(random.below(3))).is_some() {}
            } else {
                scribble(&mut random, &mut guest.queues[0]);
            }
            if let Some((_, file)) = guest.inflight.as_ref().filter(|_| random.below(4) == 0) {
                let nonsense: Vec<u8> = (0..64).map(|_| random.next() as u8).collect();
                std::os::unix::fs::FileExt::write_at(file, &nonsense, random.below(256)).expect("it is ours");
                is_record_spoilt = true;
            }
            std::thread::sleep(Duration::from_micros(random.below(300)));
        }
        answered += u64::from(guest.queues[0].used_index());
        // The queue can be set up anew by the same front end, or the front end goes without a word.
        if round % 5 == 0 {
            // With a record of requests under way that no back end can have written, it may be refused.
            if is_record_spoilt {
                drop(guest.reconnect(&stage.socket()));
            } else {
                taken_soon(|| guest.reconnect(&stage.socket()), "connected again");
            }
        } else if round % 7 == 0 {
            guest.stop_queue(0).expect("stopped");
        }
        drop(guest);
        if round % 20 == 0 {
            others_are_well(&other, &mut victim, round);
        }
    }
    assert!(answered > 100, "some of it was nearly right: {answered}");
    let mut last = taken_soon(|| Guest::start(stage.export().path(), small()), "a guest");
    others_are_well(&stage, &mut last, 9);
    drop(last);
    drop(stage);
}

/// What a chain may not be, one by one: the queue stands still, and a new guest is served.
#[test]
fn every_broken_rule_stops_the_queue_and_nothing_else() {
    let stage = Stage::new();
    let (next, write, indirect) = (1, 2, 4);
    let base = GUEST_BASE + 0x1000;
    let end = GUEST_BASE + Guest::new(small()).expect("a guest").memory.bytes() as u64;
    /// What the descriptor says: address, length, flags, next.
    type Words = (u64, u32, u16, u16);
    let rules: [(&str, &[Words], u16); 12] = [
        ("a loop", &[(base, 16, next, 0)], 0),
        ("a loop of two", &[(base, 16, next, 1), (base, 16, next, 0)], 0),
        ("leaves its table", &[(base, 16, next, 16)], 0),
        ("begins outside", &[], 16),
        ("outside of memory", &[(end, 16, next, 1), (base, 1, write, 0)], 0),
        ("ends outside", &[(end - 8, 16, next, 1), (base, 1, write, 0)], 0),
        ("wraps around", &[(u64::MAX - 8, 16, next, 1), (base, 1, write, 0)], 0),
        ("longer than 4 GiB", &[(base, u32::MAX, next, 1), (base, u32::MAX, next, 2), (base, 1, write, 0)], 0),
        ("reads behind writes", &[(base, 16, next, 1), (base, 16, write | next, 2), (base, 16, 0, 0)], 0),
        ("no room for an answer", &[(base, 16, 0, 0)], 0),
        ("goes on behind a table", &[(base, 16, indirect | next, 1), (base, 1, write, 0)], 0),
        ("half a descriptor", &[(base, 24, indirect, 0)], 0),
    ];
    for (rule, descriptors, head) in rules {
        let mut guest = taken_soon(|| Guest::start(stage.export().path(), small()), "a guest");
        let queue = &mut guest.queues[0];
        for (index, (guest, bytes, flags, next)) in descriptors.iter().enumerate() {
            queue.describe(queue.parts()[0] + 16 * index, *guest, *bytes, *flags, *next);
        }
        queue.make_available(head);
        queue.notify();
        // When it is stopped, it has looked at all that is available.
        guest.stop_queue(0).expect("it stops at once");
        assert_eq!(guest.queues[0].used_index(), 0, "{rule}: nothing was answered");
    }
    let mut guest = taken_soon(|| Guest::start(stage.export().path(), small()), "a guest");
    let mut again = Stage::new();
    others_are_well(&stage, &mut guest, 1);
    again.stop();
    again.start();
}

/// The same chain twice, and an index that jumps: both are found out.
#[test]
fn a_chain_that_is_made_available_twice_is_taken_once() {
    let stage = Stage::new();
    let mut guest = taken_soon(|| Guest::start(stage.export().path(), small()), "a guest");
    let queue = &mut guest.queues[0];
    let slot = queue.submit(Kind::Write as u32, 0, 8192, false, 1).expect("a slot");
    queue.make_available(slot as u16);
    queue.notify();
    guest.stop_queue(0).expect("stopped");
    assert!(guest.queues[0].used_index() <= 1);
}

#[test]
fn memory_that_is_taken_away_ends_its_guest_only() {
    let stage = Stage::new();
    let other = Stage::new();
    let mut victim = taken_soon(|| Guest::start(other.export().path(), Options::default()), "a guest");
    for round in 0..20 {
        let mut guest = taken_soon(|| Guest::start(stage.export().path(), small()), "a guest");
        let queue = &mut guest.queues[0];
        for _ in 0..3 {
            queue.submit(if round % 2 == 0 { Kind::Read } else { Kind::Write } as u32, 0, 8192, round % 2 == 0, 1);
        }
        let kick = queue.kick.try_clone().expect("a descriptor");
        queue.notify();
        // This process must not look at its own memory from here on.
        let length = [0, 4096, 8192][round as usize % 3];
        ftruncate(guest.memory.file(), length).expect("it is not sealed");
        kick.write(1).expect("a counter that is not full");
        drop(guest);
        others_are_well(&other, &mut victim, round);
    }
    let mut guest = taken_soon(|| Guest::start(stage.export().path(), small()), "a guest");
    others_are_well(&stage, &mut guest, 3);
}

/// A write whose data is taken away, while all that tells of it is there: what comes in its place is stored nowhere.
#[test]
fn a_write_whose_data_is_taken_away_is_not_stored() {
    let stage = Stage::new();
    let (next, write) = (1, 2);
    let mut pattern = vec![0xa5; 8192];
    for pieces in [1, 2] {
        let mut guest = taken_soon(|| Guest::start(stage.export().path(), Options { indirect: false, entries: 32, ..small() }), "a guest");
        assert_eq!(guest.queues[0].run(Kind::Write as u32, 64, &mut pattern, false, PATIENCE), 0);
        let data = rustix::fs::memfd_create("data", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&data, 8192).expect("memory");
        let beside = guest.show_memory_beside(&data, 8192).expect("shown");
        let queue = &mut guest.queues[0];
        // The header of the write before, whose status is no status now.
        let slot = queue.take_slot().expect("a slot");
        queue.fill(slot, Kind::Write as u32, 64, 512, false, 1);
        let status = (queue.parts()[0] + 16 * 6 * slot) + 32;
        let status = u64::from(guest.memory.load_u32(status)) | u64::from(guest.memory.load_u32(status + 4)) << 32;
        let queue = &mut guest.queues[0];
        let first = 6 * slot;
        queue.describe(queue.parts()[0] + 16 * (first + 1), beside, 8192 / pieces, next, (first + 2) as u16);
        if pieces == 2 {
            queue.describe(queue.parts()[0] + 16 * (first + 2), beside + 4096, 4096, next, (first + 3) as u16);
            queue.describe(queue.parts()[0] + 16 * (first + 3), status, 1, write, 0);
        }
        ftruncate(&data, if pieces == 1 { 0 } else { 4096 }).expect("it is not sealed");
        queue.notify();
        // When it is stopped, it has looked at all that is available.
        guest.stop_queue(0).expect("it stops");
        assert!(guest.queues[0].answered().is_none(), "in {pieces} pieces");
        drop(guest);
        let mut reader = connected(stage.export().path());
        let mut found = vec![0; 8192];
        assert_eq!(reader.queues[0].run(Kind::Read as u32, 64, &mut found, true, PATIENCE), 0);
        assert!(found == pattern, "in {pieces} pieces: it holds {:x?}", &found[4094..4098]);
    }
}

fn send(socket: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL).is_ok()
}

/// Takes whatever is answered, so that nobody waits for it.
fn swallow(mut socket: &UnixStream) {
    let mut bytes = [0; 4096];
    while socket.read(&mut bytes).is_ok_and(|count| count > 0) {}
}

#[test]
fn front_ends_that_talk_nonsense_harm_nobody() {
    let stage = Stage::new();
    let mut random = Random(0xfee1_600d);
    let memory = Memory::new(1 << 20).expect("memory");
    let disk = std::fs::File::open("/proc/self/exe").expect("this program");
    let zero = std::fs::File::options().read(true).write(true).open("/dev/zero").expect("a device");
    let counter: OwnedFd = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("a counter");
    let (pipe, _writer) = rustix::pipe::pipe().expect("a pipe");
    for round in 0..300 {
        let socket = UnixStream::connect(stage.socket()).expect("the export still takes front ends");
        socket.set_nonblocking(true).expect("a socket");
        for _ in 0..1 + random.below(30) {
            let request = random.odd(&(1..45).collect::<Vec<_>>()) as u32;
            let numbers = [0, 1, 2, 63, 64, 256, 1024, 1 << 12, 1 << 20, GUEST_BASE, USER_BASE, u64::from(u32::MAX), 1 << 30, 1 << 32];
            let words: Vec<u64> = (0..random.below(10)).map(|_| random.odd(&numbers)).collect();
            let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            body.truncate(body.len().saturating_sub(random.below(9) as usize));
            let length = if random.below(20) == 0 { random.next() as u32 } else { body.len() as u32 };
            let flags = random.odd(&[1, 1, 1, 9, 9, 5]) as u32;
            let message = [&request.to_ne_bytes()[..], &flags.to_ne_bytes(), &length.to_ne_bytes(), &body].concat();
            let kinds = [memory.file(), disk.as_fd(), zero.as_fd(), counter.as_fd(), pipe.as_fd()];
            let descriptors: Vec<BorrowedFd<'_>> = (0..random.below(4)).map(|_| kinds[random.below(5) as usize]).collect();
            if !send(&socket, &message, &descriptors) {
                break;
            }
            swallow(&socket);
        }
        if round % 50 == 0 {
            let mut guest = connected(stage.export().path());
            others_are_well(&stage, &mut guest, round);
        }
    }
    let mut guest = connected(stage.export().path());
    others_are_well(&stage, &mut guest, 5);
}

/// Whoever changes a broken queue is answered, however often.
#[test]
fn a_broken_queue_may_be_told_of_memory_that_does_not_hold_it() {
    let stage = Stage::new();
    let options = Options { entries: 1024, buffers: Buffers { slots: 4, data_bytes: 4096 }, ..Options::default() };
    let mut guest = taken_soon(|| Guest::start(stage.export().path(), options), "a guest");
    for round in 0..2 {
        // Pieces of a page each: the table of descriptors is longer.
        let pieces = guest.memory.bytes() as u64 / 4096;
        guest.show_memory_in(pieces).unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    guest.stop_queue(0).expect("stopped");
}

/// The address space of the daemon is for all volumes. Whoever asks for an answer gets one, agreed on or not.
#[test]
fn a_front_end_may_not_show_more_memory_than_machines_have() {
    let stage = Stage::new();
    let nine_tib = 9u64 << 40;
    let file = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
    ftruncate(&file, nine_tib).expect("sparse memory");
    for (regions, refused) in [(1, 0), (2, 1)] {
        let mut socket = UnixStream::connect(stage.socket()).expect("connected");
        let protocol = [&[16u32, 1, 8].map(u32::to_ne_bytes).concat()[..], &(1u64 << 3).to_ne_bytes()].concat();
        if refused > 0 {
            assert!(send(&socket, &protocol, &[]));
        }
        let table = (0..regions).flat_map(|region| [region * nine_tib, nine_tib, region * nine_tib, 0]);
        let body: Vec<u8> = [regions].into_iter().chain(table).flat_map(u64::to_ne_bytes).collect();
        let head = [5, 9, body.len() as u32].map(u32::to_ne_bytes).concat();
        assert!(send(&socket, &[head, body].concat(), &vec![file.as_fd(); regions as usize]));
        let mut reply = [0; 20];
        socket.read_exact(&mut reply).expect("a reply");
        assert_eq!(reply[12..], u64::to_ne_bytes(refused), "{regions} regions");
    }
}

/// Where a front end waits for more than a yes or no, a no would be taken for what it waits for.
#[test]
fn what_cannot_be_told_ends_the_connection() {
    let stage = Stage::new();
    // How far a queue is that there is not; a log without its memory.
    for (request, body) in [(11u32, vec![99u32, 0]), (6, vec![4096, 0, 0, 0])] {
        let mut socket = UnixStream::connect(stage.socket()).expect("connected");
        let say = |request: u32, flags: u32, body: &[u32]| {
            let words = [request, flags, 4 * body.len() as u32];
            let bytes: Vec<u8> = words.iter().chain(body).flat_map(|word| word.to_ne_bytes()).collect();
            assert!(send(&socket, &bytes, &[]));
        };
        // Replies to whatever asks for one: bit 3 of the protocol's features.
        say(16, 1, &[1 << 3, 0]);
        say(request, 9, &body);
        let mut reply = [0; 64];
        assert_eq!(socket.read(&mut reply).unwrap_or_default(), 0, "request {request}: {reply:?}");
    }
}

/// A guest; whoever ran queues before may be on the way out.
fn connected(path: &Path) -> Guest {
    let begun = Instant::now();
    loop {
        match Guest::start(path, Options::default()) {
            Ok(guest) => return guest,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "no guest is served: {error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Front ends that connect and say nothing, or half of something, however many there are.
#[test]
fn front_ends_that_do_nothing_keep_nobody_out() {
    let stage = Stage::new();
    let mut idle = Vec::new();
    for number in 0..100 {
        let mut socket = UnixStream::connect(stage.socket()).expect("connected");
        let half = &[1, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 7][..number % 14];
        // It may have been disconnected already, to make room.
        let _ = socket.write_all(half);
        idle.push(socket);
        if number % 25 == 24 {
            let mut guest = connected(stage.export().path());
            others_are_well(&stage, &mut guest, number as u64);
        }
    }
    // A guest that runs is not disconnected for others.
    let mut guest = connected(stage.export().path());
    for _ in 0..50 {
        idle.push(UnixStream::connect(stage.socket()).expect("connected"));
    }
    others_are_well(&stage, &mut guest, 7);
}

/// A counter that is full takes no calls: the reactor does not wait for it.
#[test]
fn a_call_that_is_not_taken_stops_nobody() {
    let stage = Stage::new();
    let other = Stage::new();
    let mut victim = taken_soon(|| Guest::start(other.export().path(), Options::default()), "a guest");
    let mut guest = taken_soon(|| Guest::start(stage.export().path(), small()), "a guest");
    guest.queues[0].call.write(u64::MAX - 1 - 1).expect("room for all but one");
    for _ in 0..50 {
        guest.queues[0].submit(Kind::Read as u32, 0, 512, true, 1);
        guest.queues[0].want_call();
        guest.queues[0].notify();
        while guest.queues[0].answered().is_some() {}
    }
    others_are_well(&other, &mut victim, 1);
    guest.stop_queue(0).expect("stopped");
}
