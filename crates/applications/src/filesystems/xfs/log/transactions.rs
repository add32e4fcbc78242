//! Operations of records, put together to transactions. Those of several transactions lie between
//! each other, an item of a transaction has several regions, and a region may go on in the next
//! record.

use super::change::{self, Change};
use super::record::Header;
use crate::bytes::{be32, byte, le16, le32};
use crate::filesystems::xfs::superblock::Superblock;
use std::collections::HashMap;

/// Bytes of the head of an operation.
const HEAD_BYTES: usize = 12;
/// What an operation does: begins a transaction, commits it, has a region of which more will come,
/// or more of one; says that the file system was unmounted.
const START: u8 = 0x01;
const COMMIT: u8 = 0x02;
const MORE: u8 = 0x08;
const UNMOUNT: u8 = 0x20;
/// What a transaction begins with, and its length.
const TRANSACTION: u32 = 0x5452_414e;
const TRANSACTION_BYTES: usize = 16;
/// Regions of an item at most: its head and every second part of a buffer of 64 KiB.
const REGIONS_MAX: usize = 257;
/// Bytes of the head of an item at most: one of a buffer of 64 KiB has 88.
const ITEM_HEAD_BYTES_MAX: usize = 4096;
/// Transactions that are begun at a time; a kernel since 2011 has a few.
const OPEN_MAX: usize = 1024;
/// Bytes of them that are held, of what is wanted. A kernel writes 32 MiB of all kinds in one.
pub(super) const OPEN_BYTES_MAX: usize = 16 << 20;
/// What a change or a transaction takes beside its bytes.
const EACH_BYTES: usize = 64;

/// Transactions that are not committed yet.
#[derive(Clone, Default, Debug)]
pub(super) struct Transactions {
    open: HashMap<u32, Transaction>,
    bytes: usize,
}

#[derive(Clone, Default, Debug)]
struct Transaction {
    /// Where the record lies that it begins in.
    lsn: u64,
    /// How much of its own head there was.
    head_bytes: usize,
    item: Item,
    changes: Vec<Change>,
    bytes: usize,
    /// It makes no sense, and nothing of it is used.
    is_broken: bool,
}

#[derive(Clone, Default, Debug)]
struct Item {
    /// How many regions it has, and how many of them began.
    total: usize,
    count: usize,
    /// Those that are kept: the first one, and all if the item is wanted.
    regions: Vec<Vec<u8>>,
    is_wanted: bool,
}

/// What came of an operation.
#[derive(Debug)]
pub(super) enum Committed {
    /// The changes of a transaction, and where it began.
    Changes(u64, Vec<Change>),
    /// All that was before is at home.
    Unmount,
}

/// More was begun than is held.
#[derive(Clone, Copy, Debug)]
pub(super) struct TooMuch;

impl Transactions {
    /// Memory held, in bytes; nearly.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.open.capacity() * size_of::<Transaction>()
    }

    /// Takes in the operations of a record; what is committed by them, in order.
    pub(super) fn take(&mut self, header: &Header, data: &[u8], superblock: &Superblock) -> Result<Vec<Committed>, TooMuch> {
        let (mut committed, mut rest) = (Vec::new(), data);
        for _ in 0..header.operations {
            let Some((head, after)) = rest.split_at_checked(HEAD_BYTES) else { break };
            let (id, length, flags) = (be32(head, 0), be32(head, 4) as usize, byte(head, 9));
            let Some((region, after)) = after.split_at_checked(length) else { break };
            rest = after;
            if flags & UNMOUNT != 0 {
                *self = Transactions::default();
                committed.push(Committed::Unmount);
            } else if flags & START != 0 {
                self.remove(id);
                let begun = Transaction { lsn: header.place.lsn(), bytes: EACH_BYTES, ..Transaction::default() };
                self.bytes += begun.bytes;
                self.open.insert(id, begun);
            } else if flags & COMMIT != 0 {
                if let Some(mut transaction) = self.remove(id).filter(|transaction| !transaction.is_broken) {
                    transaction.end_item(superblock);
                    committed.push(Committed::Changes(transaction.lsn, transaction.changes));
                }
            } else if let Some(transaction) = self.open.get_mut(&id) {
                self.bytes -= transaction.bytes;
                transaction.add(region, flags & MORE != 0, superblock);
                self.bytes += transaction.bytes;
            }
            // One that began before the tail: all of it is at home.
            if self.open.len() > OPEN_MAX || self.bytes > OPEN_BYTES_MAX {
                return Err(TooMuch);
            }
        }
        Ok(committed)
    }

    fn remove(&mut self, id: u32) -> Option<Transaction> {
        let transaction = self.open.remove(&id)?;
        self.bytes -= transaction.bytes;
        Some(transaction)
    }
}

impl Transaction {
    /// Takes in a region, or more of the last one.
    fn add(&mut self, region: &[u8], is_more: bool, superblock: &Superblock) {
        if region.is_empty() || self.is_broken {
            return;
        }
        if self.head_bytes < TRANSACTION_BYTES {
            self.is_broken = self.head_bytes == 0 && le32(region, 0) != TRANSACTION;
            self.head_bytes += region.len();
            self.is_broken |= self.head_bytes > TRANSACTION_BYTES;
        } else if is_more {
            self.is_broken = self.item.count == 0;
            if self.item.count == 1 || self.item.is_wanted {
                self.keep(region, true);
            }
        } else if self.item.count == self.item.total {
            self.end_item(superblock);
            self.item.total = usize::from(le16(region, 2));
            self.item.count = 1;
            self.is_broken = !(1..=REGIONS_MAX).contains(&self.item.total);
            self.keep(region, false);
        } else {
            if self.item.count == 1 {
                self.item.is_wanted = self.item.regions.first().is_some_and(|head| change::is_wanted(head));
            }
            self.item.count += 1;
            if self.item.is_wanted {
                self.keep(region, false);
            }
        }
    }

    /// Keeps a region of the item, or more of its last one.
    fn keep(&mut self, region: &[u8], is_more: bool) {
        let is_head = self.item.count == 1;
        match self.item.regions.last_mut().filter(|_| is_more) {
            Some(last) => last.extend_from_slice(region),
            None => self.item.regions.push(region.to_vec()),
        }
        self.bytes += region.len() + if is_more { 0 } else { EACH_BYTES };
        self.is_broken |= is_head && self.item.regions[0].len() > ITEM_HEAD_BYTES_MAX;
    }

    /// What the item changes is put to the rest.
    fn end_item(&mut self, superblock: &Superblock) {
        let item = std::mem::take(&mut self.item);
        self.bytes -= item.regions.iter().map(|region| region.len() + EACH_BYTES).sum::<usize>();
        if item.count == item.total && item.total > 0 {
            let before = self.changes.len();
            change::of(&item.regions, superblock, &mut self.changes);
            self.bytes += self.changes[before..].iter().map(|change| change.bytes() + EACH_BYTES).sum::<usize>();
        }
    }
}
