//! Planted mistakes. Each is one that a trusted system really shipped; the simulator must find every one of them, or the simulator
//! is not to be believed. Compiled in only with the feature `mutants`, which nothing but its tests switches on.

#[cfg(feature = "mutants")]
static ACTIVE: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);

/// Switches one mistake on (0: none), for the whole process.
#[cfg(feature = "mutants")]
pub fn set(number: u32) {
    ACTIVE.store(number, core::sync::atomic::Ordering::SeqCst);
    format::mutants::set(number);
    content::mutants::set(number);
}

/// Whether the mistake of that number is switched on.
#[cfg(feature = "mutants")]
pub fn active(number: u32) -> bool {
    ACTIVE.load(core::sync::atomic::Ordering::Relaxed) == number
}

/// Never, in what ships.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn active(_number: u32) -> bool {
    false
}

/// Number, where it is planted, and what it does.
pub const ALL: &[(u32, &str)] = &[
    (1, "dirty is cleared before the backing device has flushed"),
    (2, "recovery believes a record whose payload is not there"),
    (3, "an overwrite during destage is marked clean"),
    (4, "a segment is reused before its eviction is durable"),
    (5, "an unreadable dirty block is replaced by what the backing device has"),
    (6, "writes slip past a failed cache before that is recorded"),
    (7, "a failed flush is tried again and believed"),
    (8, "FUA is ignored"),
    (9, "a flush covers one shard only"),
    (10, "a flush skips the write acknowledged just before"),
    (11, "checksums of group headers are not checked"),
    (12, "a record of an earlier lap is accepted"),
    (13, "payload checksums do not cover the address"),
    (14, "groups behind a gap are accepted"),
    (15, "recovery leaves another state each time"),
    (16, "recovery stops silently at a bad group in the middle"),
    (17, "both copies of the superblock are written in one flush"),
    (18, "the head overwrites the live tail"),
    (19, "a discard does not wait for its turn"),
    (20, "zeroes are acknowledged and not logged"),
    (21, "a partial write forgets what the block held"),
    (22, "a read does not lock: its fill overwrites a newer write"),
    (23, "a dirty block is evicted"),
    (24, "the checkpoint of another generation is believed"),
    (26, "a mode switch ends with dirty blocks left"),
    (27, "two versions of a block are destaged at once"),
    (35, "a failed client write is taken for done"),
    (36, "a failed log write is taken for done"),
    (37, "a segment is written while it is being read"),
    (38, "overlapping requests are not ordered"),
    (39, "a failed destage is taken for done"),
    (40, "the dirty limit is ignored"),
    (41, "clean data enters the log before its backing device has flushed it"),
    (42, "destage does not wait until its records are durable in the log"),
    (43, "after the SSD failed, what the log lost goes home before that is recorded"),
    (44, "the backing device is written before the cached version is durably void"),
    (45, "a backing write over a dirty block is not made durable before that block is void"),
    (46, "destage carries a block home that a client's write is just replacing there"),
    (47, "a backing write does not wait until the dirty record below it is durable"),
    (51, "the base of a dirty block is dropped at the tail"),
    (52, "what is decoded is not verified, nor what it is decoded from"),
    (54, "new blocks rest on bases that are about to go"),
    (55, "a duplicate is believed by its key"),
    (56, "a delta is decoded against another base"),
    (57, "the second block that rests on a base is not counted"),
    (58, "numbers of objects begin again with each start"),
    (59, "recovery accepts a dirty block whose base is torn"),
    (60, "a base that moves does not say that dirty blocks rest on it"),
    (61, "a block's new content is kept as that of its base"),
    (62, "a note that a packed block came home names the record before it"),
    (63, "the places of packed payloads are told before they are known"),
    (64, "a dirty block that comes home is given back twice by its base"),
    (65, "the footer forgets the records that its reserved pages do not hold"),
    (66, "a base is let go before the log says that its dirty block came home"),
    (67, "a write leaves no trace if another request comes to its extent"),
    (68, "counting in pieces leaves out the entry behind each piece"),
    (69, "a packed dirty block that is written over counts for nothing"),
    (70, "a packed block that is carried on as lost takes a page"),
    (71, "a failed read of several blocks is believed of each of them"),
    (72, "a packed block that is lost is zeroes"),
    (73, "on a busy host nothing goes home, whatever asks for it"),
    (74, "a check believes that blocks get their places in the order in which it heard of them"),
    (75, "destage goes on in a range that is being discarded"),
    (76, "an SSD that is back serves blocks that were written past it"),
    (77, "a write past the SSD is acknowledged before that is recorded"),
    (78, "shards do not hear that dirty blocks go home in another one"),
    (79, "what goes home from a lost SSD over a range that was written meanwhile stays there"),
    (80, "a block that was read when the volume ended in it is cached after the volume has grown"),
    (81, "a block that is completed while the volume grows counts as read up to the new end"),
    (82, "only one shard hears that a volume has grown"),
    (83, "records that make blocks void take the room that the cleaner needs"),
    (84, "object policy raises a volume to write-back"),
    (85, "hit-only serves a block that a newer write has voided"),
    (86, "cold hint drops a dirty page"),
    (87, "pins leave the cleaner no room"),
    (88, "policy map of a removed volume is used by its successor"),
    (89, "what hearth reads for itself counts although a client has written there meanwhile"),
    (90, "checksums of payloads are stored so that those of the records' structure do not tell blocks of the same content apart"),
    (91, "a range that began before the SSD was lost does not look again at what was dirty then"),
    (92, "a block that could not be read is tried again together with its neighbours"),
    (93, "a flush believes one of the backing device that began before what it covers was written"),
    (94, "a flush covers no discard of many extents"),
    (95, "a flush waits for what destage has written"),
];
