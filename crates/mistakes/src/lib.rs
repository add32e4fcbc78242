//! Planted mistakes. Each is one that a trusted system really shipped; the simulator must find every one of them, or the simulator
//! is not to be believed. Compiled in only with the feature `planted`, which nothing but its tests switches on.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "planted")]
static ACTIVE: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);

/// Switches one mistake on (0: none), for the whole process.
#[cfg(feature = "planted")]
pub fn set(number: u32) {
    ACTIVE.store(number, core::sync::atomic::Ordering::SeqCst);
}

/// Whether the mistake of that number is switched on.
#[cfg(feature = "planted")]
pub fn active(number: u32) -> bool {
    ACTIVE.load(core::sync::atomic::Ordering::Relaxed) == number
}

/// Never, in what ships.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn active(_number: u32) -> bool {
    false
}

/// A planted mistake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mistake {
    /// What it is switched on by.
    pub number: u32,
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
}

/// The mistake of that name.
pub fn named(name: &str) -> Option<&'static Mistake> {
    ALL.iter().find(|mistake| mistake.name == name)
}

/// The name of a mistake.
///
/// # Panics
/// If there is none of that number.
pub fn name_of(number: u32) -> &'static str {
    ALL.iter().find(|mistake| mistake.number == number).expect("a planted mistake").name
}

macro_rules! mistakes {
    ($($name:ident = $number:expr, $what:literal;)*) => {
        $(#[doc = $what] pub const $name: u32 = $number;)*

        /// All of them.
        pub const ALL: &[Mistake] = &[$(Mistake { number: $name, name: stringify!($name), what: $what },)*];
    };
}

mistakes! {
    CLEAN_BEFORE_FLUSH = 1, "dirty is cleared before the backing device has flushed";
    TORN_PAYLOAD_BELIEVED = 2, "recovery believes a record whose payload is not there";
    OVERWRITE_MARKED_CLEAN = 3, "an overwrite during destage is marked clean";
    UNREADABLE_DIRTY_REPLACED = 5, "an unreadable dirty block is replaced by what the backing device has";
    WRITES_PAST_UNRECORDED = 6, "writes slip past a failed cache before that is recorded";
    FAILED_FLUSH_RETRIED = 7, "a failed flush is tried again and believed";
    FUA_IGNORED = 8, "FUA is ignored";
    FLUSH_OF_ONE_SHARD = 9, "a flush covers one shard only";
    FLUSH_MISSES_LAST_WRITE = 10, "a flush skips the write acknowledged just before";
    HEADERS_UNCHECKED = 11, "checksums of group headers are not checked";
    EARLIER_LAP_ACCEPTED = 12, "a record of an earlier lap is accepted";
    CHECKSUM_WITHOUT_ADDRESS = 13, "payload checksums do not cover the address";
    GAP_ACCEPTED = 14, "groups behind a gap are accepted";
    RECOVERY_UNSTABLE = 15, "recovery leaves another state each time";
    BAD_GROUP_ENDS_LOG = 16, "recovery stops silently at a bad group in the middle";
    SUPERBLOCKS_IN_ONE_FLUSH = 17, "both copies of the superblock are written in one flush";
    DISCARD_UNORDERED = 19, "a discard does not wait for its turn";
    ZEROES_NOT_WRITTEN = 20, "zeroes are acknowledged and not stored";
    PARTIAL_WRITE_FORGETS = 21, "a partial write forgets what the block held";
    READ_WITHOUT_LOCK = 22, "a read does not lock: its fill overwrites a newer write";
    DIRTY_EVICTED = 23, "a dirty block is evicted";
    OLD_CHECKPOINT_BELIEVED = 24, "the checkpoint of another generation is believed";
    MODE_LEFT_DIRTY = 26, "a mode switch ends with dirty blocks left";
    TWO_VERSIONS_DESTAGED = 27, "two versions of a block are destaged at once";
    FAILED_CLIENT_WRITE_DONE = 35, "a failed client write is taken for done";
    FAILED_STORE_WRITE_DONE = 36, "a failed write to the SSD is taken for done";
    OVERLAPS_UNORDERED = 38, "overlapping requests are not ordered";
    FAILED_DESTAGE_DONE = 39, "a failed destage is taken for done";
    DIRTY_LIMIT_IGNORED = 40, "the dirty limit is ignored";
    CLEAN_BEFORE_BACKING_FLUSH = 41, "clean data enters the SSD before its backing device has flushed it";
    DESTAGE_BEFORE_DURABLE = 42, "destage does not wait until what it reads is durable on the SSD";
    LOST_GOES_HOME_UNRECORDED = 43, "after the SSD failed, what it lost is destaged before that is recorded";
    WRITTEN_BEFORE_VOID = 44, "the backing device is written before the cached version is durably void";
    OVER_DIRTY_NOT_DURABLE = 45, "a backing write over a dirty block is not made durable before that block is void";
    DESTAGE_OVER_CLIENT_WRITE = 46, "destage carries a block home that a client's write is just replacing there";
    DIRTY_BELOW_NOT_DURABLE = 47, "a backing write does not wait until the dirty record below it is durable";
    BASE_DROPPED = 51, "the base of a dirty block is given up while the block rests on it";
    DECODED_UNVERIFIED = 52, "what is decoded is not verified, nor what it is decoded from";
    RESTS_ON_LEAVING_BASE = 54, "new blocks rest on bases that are about to go";
    DUPLICATE_BY_KEY = 55, "a duplicate is believed by its key";
    WRONG_BASE = 56, "a delta is decoded against another base";
    SECOND_REFERENCE_UNCOUNTED = 57, "the second block that rests on a base is not counted";
    OBJECT_NUMBERS_RESTART = 58, "numbers of objects begin again with each start";
    TORN_BASE_ACCEPTED = 59, "recovery accepts a dirty block whose base is torn";
    CONTENT_KEPT_AS_BASE = 61, "a block's new content is kept as that of its base";
    BASE_GIVEN_BACK_TWICE = 64, "a dirty block that comes home is given back twice by its base";
    BASE_LET_GO_EARLY = 66, "a base is let go before the SSD says that its dirty block came home";
    TRAIL_FORGETS = 67, "a write leaves no trace if another request comes to its extent";
    COUNT_SKIPS = 68, "counting in pieces leaves out the entry behind each piece";
    PACKED_OVERWRITE_UNCOUNTED = 69, "a packed dirty block that is written over counts for nothing";
    FAILED_READ_BLAMES_ALL = 71, "a failed read of several blocks is believed of each of them";
    LOST_IS_ZEROES = 72, "a packed block that is lost is zeroes";
    BUSY_HOST_STOPS_DESTAGE = 73, "on a busy host nothing is destaged, whatever asks for it";
    DESTAGE_IN_HELD_RANGE = 75, "destage goes on in a range that is being discarded";
    PAST_WRITES_NOT_VOID = 76, "an SSD that is back serves blocks that were written past it";
    PAST_WRITE_UNRECORDED = 77, "a write past the SSD is acknowledged before that is recorded";
    DEAF_TO_OTHER_SHARDS = 78, "shards do not hear that dirty blocks go home in another one";
    OLD_GOES_HOME_OVER_RANGE = 79, "what is destaged from a lost SSD over a range that was written meanwhile stays there";
    CUT_BLOCK_CACHED = 80, "a block that was read when the volume ended in it is cached after the volume has grown";
    CUT_EDGE_TRUSTED = 81, "a block that is completed while the volume grows counts as read up to the new end";
    GROWTH_IN_ONE_SHARD = 82, "only one shard hears that a volume has grown";
    VOIDS_TAKE_RESERVE = 83, "records that make blocks void take the room that eviction needs";
    POLICY_RAISES_MODE = 84, "object policy raises a volume to write-back";
    HIT_ONLY_SERVES_VOID = 85, "hit-only serves a block that a newer write has voided";
    COLD_DROPS_DIRTY = 86, "cold hint drops a dirty page";
    PINS_TAKE_ALL = 87, "pins leave eviction no room";
    POLICIES_OF_PREDECESSOR = 88, "policy map of a removed volume is used by its successor";
    OWN_READ_OVERTAKEN = 89, "what hearth reads for itself counts although a client has written there meanwhile";
    CHECKSUMS_COLLIDE = 90, "checksums of payloads are stored so that those of the records' structure do not tell blocks of the same content apart";
    SPOILT_RANGE_NOT_SEARCHED = 91, "a range that began before the SSD was lost does not look again at what was dirty then";
    UNREADABLE_WITH_NEIGHBOURS = 92, "a block that could not be read is tried again together with its neighbours";
    FLUSH_BEGUN_EARLIER = 93, "a flush believes one of the backing device that began before what it covers was written";
    LONG_DISCARD_UNFLUSHED = 94, "a flush covers no discard of many extents";
    FLUSH_WAITS_FOR_DESTAGE = 95, "a flush waits for what destage has written";
    SLOT_REUSED_EARLY = 96, "a slot is written over before it is durable that nothing current is in it";
    SLOT_REUSED_WHILE_READ = 97, "a slot is written over while it is read";
    COMPLETE_WITHOUT_PAYLOAD = 98, "a group counts as complete when its page of the ring is there, and its slots are not";
    GONE_LEAVES_EARLY = 99, "a block that is given up leaves the index before that is durable";
    OLD_SLOT_FORGOTTEN = 100, "a statement does not name the slot that its block had before";
    SWEEP_LEAVES_OUT = 101, "the sweep leaves out what is not durable yet";
    SWEEP_SETTLES_ALL = 102, "the sweep says of what is not durable that no start need look at it";
    SWEEP_STATES_GOING = 103, "the sweep states again what is being given up";
    TAIL_WITHOUT_SWEEP = 104, "the tail of the ring passes pages although the sweep has not been round";
    SLOTS_UNCHECKED = 105, "a start believes statements whose payloads are not there";
    SESSION_TWICE = 106, "a start states under a session number that an interrupted one may have used";
    START_UNFLUSHED = 107, "a start makes its pages the ring before they are flushed";
    LAST_WORD_UNSAID = 108, "a stop does not say that all is durable: a last group that the SSD damages counts as never written";
    UNIT_IN_TWO_GROUPS = 109, "the blocks of an atomic unit may be in two groups";
    UNIT_AROUND = 110, "a large write bypasses the cache although its units are atomic";
    PART_OF_SLOT_PASSED = 111, "the tail of the ring passes the only page that says where a part of a slot's packed payloads lie";
    PAYLOADS_OVERLAP = 112, "packed payloads share bytes of a slot";
    SLOT_LEFT_WITH_ONE_ALIVE = 113, "a slot is left although a payload ends in it that begins in the one before";
    BASE_UNCHECKED = 114, "a start in slots believes a dirty block whose base is not whole";
    MOVED_BEFORE_IT_IS_THERE = 115, "what is packed is read to be moved before it is on the SSD";
    DIRTY_CUT_AWAY = 116, "a pool gives slots away in which dirty blocks are";
    CLEAN_STOP_UNFLUSHED = 117, "a superblock says that a pool is clean before the last sweep of its rings is flushed";
    STOP_NAMES_TAIL_EARLY = 118, "each page of a stop's sweep is a tail that the ring may begin with";
    STAYS_CLEAN = 119, "a start after a clean stop leaves the superblock clean, and the next believes that nothing came since";
    ALONG_OVERTAKEN = 120, "what a read brings along counts although a client has written there meanwhile";
    ALONG_OVER_CACHED = 121, "a read brings along what is cached, and keeps it where that has left meanwhile";
}
