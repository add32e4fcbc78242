//! The bounded pool and the two kinds of handles.

use crate::PageMutVec;
use alloc::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};

/// Size and alignment of a page, in bytes: the block size.
pub const PAGE_BYTES: usize = 4096;

/// Pages are got from the allocator in slabs of up to this size, so that a pool's memory grows with its use: a huge page. It is their
/// alignment too, so that a page's slab is found by its address.
const SLAB_BYTES: usize = 2 << 20;
/// Pages of a whole slab: all but the first.
const SLAB_PAGES: usize = SLAB_BYTES / PAGE_BYTES - 1;

/// Control data of a slab's pages, in place of the first: four bytes a page, side by side, so that those of many pages fit the processor's caches.
#[repr(C)]
struct SlabHead {
    pool: NonNull<Shared>,
    /// Handles to each page.
    handles: [AtomicU32; SLAB_PAGES],
}

const _: () = assert!(size_of::<SlabHead>() <= PAGE_BYTES);

struct Shared {
    locked: AtomicBool,
    inner: UnsafeCell<Inner>,
    pages_max: usize,
    /// At most `pages_max`.
    limit: AtomicUsize,
    /// Changed only under the lock, read by anyone.
    pages_out: AtomicUsize,
}

/// What the lock guards; the memory goes when there are no handles and all pages are back.
struct Inner {
    free: Vec<NonNull<u8>>,
    slabs: Vec<Slab>,
    /// Pages at the end of the newest slab that were never handed out, and are not initialized.
    fresh: usize,
    /// Handles to the pool.
    handles: usize,
}

struct Slab {
    start: NonNull<u8>,
    /// Beside the first.
    pages: usize,
}

/// A bounded source of pages, shared by clones of this handle and safe to use from any thread.
pub struct PagePool(NonNull<Shared>);

// SAFETY: everything behind the pointer is atomics, or is reached only under the spin lock.
unsafe impl Send for PagePool {}
// SAFETY: as above.
unsafe impl Sync for PagePool {}

impl PagePool {
    /// A pool of at most `pages_max` pages, none of them allocated yet.
    pub fn new(pages_max: usize) -> PagePool {
        let shared = Box::new(Shared {
            locked: AtomicBool::new(false),
            inner: UnsafeCell::new(Inner { free: Vec::new(), slabs: Vec::new(), fresh: 0, handles: 1 }),
            pages_max,
            limit: AtomicUsize::new(pages_max),
            pages_out: AtomicUsize::new(0),
        });
        // The box is a stable address; handles and pages out are counted, and the last to go frees it.
        let pointer = Box::into_raw(shared);
        // SAFETY: `Box::into_raw` never gives null.
        PagePool(unsafe { NonNull::new_unchecked(pointer) })
    }

    fn shared(&self) -> &Shared {
        // SAFETY: this handle is counted, so the memory is there.
        unsafe { self.0.as_ref() }
    }

    /// One page with unspecified (but initialized) content, or `None` while all `pages_max` are in use.
    pub fn allocate(&self) -> Option<PageMut> {
        let shared = self.shared();
        let page = shared.with_inner(|inner| {
            if shared.pages_out() >= shared.limit.load(Ordering::Relaxed) {
                return None;
            }
            let page = inner.free.pop().or_else(|| inner.take_fresh(self.0, shared.pages_max))?;
            shared.pages_out.store(shared.pages_out() + 1, Ordering::Relaxed);
            Some(page)
        })?;
        // A page on the free list has no handle: we are its only user.
        Some(PageMut::taken(page))
    }

    /// `count` pages for one request, content unspecified; all of them, or `None`. They come in the
    /// order of their addresses, so that neighbours are one piece for the kernel: 256 pieces cost it
    /// half as much again as one.
    pub fn allocate_many(&self, count: usize) -> Option<PageMutVec> {
        let shared = self.shared();
        let mut taken = PageMutVec::with_capacity(count);
        shared.with_inner(|inner| {
            if shared.pages_out() + count > shared.limit.load(Ordering::Relaxed) {
                return;
            }
            let rest = inner.free.len().saturating_sub(count);
            inner.free[rest..].sort_unstable();
            // Those on the free list and fresh ones have no handle: we are their only user.
            taken.extend(inner.free.drain(rest..).map(PageMut::taken));
            while taken.len() < count {
                let Some(page) = inner.take_fresh(self.0, shared.pages_max) else { break };
                taken.push(PageMut::taken(page));
            }
            shared.pages_out.store(shared.pages_out() + taken.len(), Ordering::Relaxed);
        });
        // What was got goes back with the vector.
        (taken.len() == count).then_some(taken)
    }

    /// One page of zeroes, or `None` while all are in use.
    pub fn allocate_zeroed(&self) -> Option<PageMut> {
        let mut page = self.allocate()?;
        page.fill(0);
        Some(page)
    }

    /// Pages in use now.
    pub fn pages_out(&self) -> usize {
        self.shared().pages_out()
    }

    /// From now on at most this many pages are out at a time, and never more than the pool was made for. Pages that are out stay so: with fewer than
    /// are, nothing is to be had until enough are back.
    pub fn set_limit(&self, pages: usize) {
        let shared = self.shared();
        shared.limit.store(pages.min(shared.pages_max), Ordering::Relaxed);
    }

    /// The most pages the pool was made for.
    pub fn pages_max(&self) -> usize {
        self.shared().pages_max
    }
}

impl Clone for PagePool {
    fn clone(&self) -> PagePool {
        self.shared().with_inner(|inner| inner.handles += 1);
        PagePool(self.0)
    }
}

impl Drop for PagePool {
    fn drop(&mut self) {
        // SAFETY: this handle was counted until now.
        unsafe { leave(self.0, |inner| inner.handles -= 1) };
    }
}

impl core::fmt::Debug for PagePool {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "PagePool({} of {} pages out)", self.pages_out(), self.pages_max())
    }
}

impl Shared {
    fn with_inner<R>(&self, work: impl FnOnce(&mut Inner) -> R) -> R {
        while self.locked.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            core::hint::spin_loop();
        }
        // SAFETY: the lock is ours, and `work` cannot reach it again: no closure here uses the pool.
        let result = work(unsafe { &mut *self.inner.get() });
        self.locked.store(false, Ordering::Release);
        result
    }

    fn pages_out(&self) -> usize {
        self.pages_out.load(Ordering::Relaxed)
    }
}

impl Inner {
    /// A page that was never used, from a new slab if need be, unless there are `pages_max` already.
    fn take_fresh(&mut self, pool: NonNull<Shared>, pages_max: usize) -> Option<NonNull<u8>> {
        if self.fresh == 0 {
            self.grow(pool, pages_max);
        }
        let slab = self.slabs.last().filter(|_| self.fresh > 0)?;
        let index = slab.pages - self.fresh;
        self.fresh -= 1;
        // SAFETY: the page lies in the slab, behind its first page, and nobody has it yet.
        unsafe {
            let page = slab.start.add((index + 1) * PAGE_BYTES);
            page.write_bytes(0, PAGE_BYTES);
            Some(page)
        }
    }

    /// Adds one slab, unless that would pass `pages_max`.
    fn grow(&mut self, pool: NonNull<Shared>, pages_max: usize) {
        let have: usize = self.slabs.iter().map(|slab| slab.pages).sum();
        let pages = SLAB_PAGES.min(pages_max - have);
        if pages == 0 {
            return;
        }
        let layout = slab_layout(pages);
        // SAFETY: the layout has a size above zero.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        // SAFETY: the head fits the first page, which is ours and aligned for it.
        unsafe { start.cast::<SlabHead>().write(SlabHead { pool, handles: [const { AtomicU32::new(0) }; SLAB_PAGES] }) };
        self.slabs.push(Slab { start, pages });
        self.fresh = pages;
        // All of them may be free at once, and giving one back must not allocate.
        self.free.reserve(have + pages - self.free.len());
    }
}

fn slab_layout(pages: usize) -> Layout {
    Layout::from_size_align((1 + pages) * PAGE_BYTES, SLAB_BYTES).expect("a slab is far below isize::MAX")
}

/// Does `work`, which takes one handle or one page out of the count, and frees the memory if it was the last.
///
/// # Safety
/// The caller's handle or page must be one that is counted still, so that the memory is there.
unsafe fn leave(shared: NonNull<Shared>, work: impl FnOnce(&mut Inner)) {
    let last = {
        // SAFETY: the caller is counted until `work` is done, and whoever is last knows it under the lock ...
        let shared = unsafe { shared.as_ref() };
        shared.with_inner(|inner| {
            work(inner);
            inner.handles == 0 && shared.pages_out() == 0
        })
    };
    if !last {
        return;
    }
    // SAFETY: ... so there is exactly one of them, and nobody else can reach the memory. It came from `Box::into_raw`.
    let shared = unsafe { Box::from_raw(shared.as_ptr()) };
    shared.with_inner(|inner| {
        for slab in inner.slabs.drain(..) {
            // SAFETY: allocated in `grow` with this very layout; its head has nothing to drop.
            unsafe { dealloc(slab.start.as_ptr(), slab_layout(slab.pages)) };
        }
    });
}

/// A page that nobody changes any more. Clones share it.
pub struct Page(NonNull<u8>);

// SAFETY: shared pages are read-only and counted atomically.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    fn head(&self) -> &SlabHead {
        let head = self.0.as_ptr().map_addr(|address| address & !(SLAB_BYTES - 1));
        // SAFETY: slabs are aligned to their size, so this is where the page's slab begins; a handle keeps it alive.
        unsafe { &*head.cast() }
    }

    fn handles(&self) -> &AtomicU32 {
        &self.head().handles[(self.0.as_ptr().addr() % SLAB_BYTES) / PAGE_BYTES - 1]
    }

    /// The page as its only owner may change it, or itself back if others hold it too.
    pub fn try_into_mut(self) -> Result<PageMut, Page> {
        if self.handles().load(Ordering::Acquire) == 1 { Ok(PageMut(self)) } else { Err(self) }
    }

    /// Where the page lies, for a system call that reads from it.
    pub fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }
}

impl Clone for Page {
    fn clone(&self) -> Page {
        self.handles().fetch_add(1, Ordering::Relaxed);
        Page(self.0)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // A sole owner stays the sole owner: only a handle makes another. So the usual case needs no atomic change.
        let handles = self.handles();
        if handles.load(Ordering::Acquire) != 1 {
            if handles.fetch_sub(1, Ordering::Release) != 1 {
                return;
            }
            fence(Ordering::Acquire);
        }
        let (page, pool) = (self.0, self.head().pool);
        // SAFETY: this page counts as out until now.
        unsafe {
            leave(pool, |inner| {
                inner.free.push(page);
                let pages_out = &pool.as_ref().pages_out;
                pages_out.store(pages_out.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
            });
        }
    }
}

impl Deref for Page {
    type Target = [u8; PAGE_BYTES];
    fn deref(&self) -> &[u8; PAGE_BYTES] {
        // SAFETY: the memory is PAGE_BYTES long and initialized; nobody writes while a `Page` exists.
        unsafe { self.0.cast().as_ref() }
    }
}

impl core::fmt::Debug for Page {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Page({:p})", self.as_ptr())
    }
}

/// A page with a single owner, who may write it.
pub struct PageMut(Page);

impl PageMut {
    /// A page that has no handle and counts as out.
    fn taken(page: NonNull<u8>) -> PageMut {
        let page = Page(page);
        page.handles().store(1, Ordering::Relaxed);
        PageMut(page)
    }

    /// Gives up the right to write.
    pub fn freeze(self) -> Page {
        let this = ManuallyDrop::new(self);
        Page(this.0.0)
    }

    /// Where the page lies, for a system call that writes into it.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.0.as_ptr()
    }
}

impl Deref for PageMut {
    type Target = [u8; PAGE_BYTES];
    fn deref(&self) -> &[u8; PAGE_BYTES] {
        &self.0
    }
}

impl DerefMut for PageMut {
    fn deref_mut(&mut self) -> &mut [u8; PAGE_BYTES] {
        // SAFETY: the only handle to this page is `self`, borrowed mutably.
        unsafe { self.0.0.cast().as_mut() }
    }
}

impl core::fmt::Debug for PageMut {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "PageMut({:p})", self.0.as_ptr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_pages_come_in_the_order_of_their_addresses_or_not_at_all() {
        let pool = PagePool::new(600);
        let first = pool.allocate_many(300).expect("there are as many");
        let mut second = pool.allocate_many(200).expect("there are as many");
        assert!(pool.allocate_many(101).is_none());
        assert_eq!(pool.pages_out(), 500);
        drop(first);
        // Out of order on the free list.
        second.reverse();
        drop(second);
        let mut all = pool.allocate_many(600).expect("all are back");
        let addresses: Vec<usize> = all.iter_mut().map(|page| page.as_mut_ptr().addr()).collect();
        let runs = addresses.windows(2).filter(|pair| pair[1] != pair[0] + PAGE_BYTES).count();
        assert!(runs <= 2, "{runs} breaks: two slabs, and those that were never used");
        drop(all);
        pool.set_limit(10);
        assert!(pool.allocate_many(11).is_none() && pool.allocate_many(10).is_some());
        assert_eq!(pool.allocate_many(0).map(|none| none.len()), Some(0));
    }

    #[test]
    fn the_limit_holds_and_pages_come_back() {
        let pool = PagePool::new(300);
        let pages: Vec<PageMut> = (0..300).map(|_| pool.allocate().expect("within the limit")).collect();
        assert!(pool.allocate().is_none());
        assert_eq!(pool.pages_out(), 300);
        drop(pages);
        assert_eq!(pool.pages_out(), 0);
        assert!(pool.allocate().is_some());
    }

    #[test]
    fn a_lower_limit_holds_until_it_is_raised() {
        let pool = PagePool::new(8);
        let pages: Vec<PageMut> = (0..5).map(|_| pool.allocate().expect("within the limit")).collect();
        pool.set_limit(4);
        assert!(pool.allocate().is_none());
        drop(pages);
        assert_eq!(core::iter::from_fn(|| pool.allocate()).take(9).collect::<Vec<_>>().len(), 4);
        pool.set_limit(100);
        assert_eq!(core::iter::from_fn(|| pool.allocate()).take(9).collect::<Vec<_>>().len(), 8);
    }

    #[test]
    fn pages_of_several_slabs_are_apart_and_their_own() {
        let pool = PagePool::new(2 * SLAB_PAGES + 3);
        for round in 0..3_u64 {
            let mut pages: Vec<PageMut> = core::iter::from_fn(|| pool.allocate()).collect();
            assert_eq!(pages.len(), 2 * SLAB_PAGES + 3);
            for (number, page) in pages.iter_mut().enumerate() {
                let stamp = (number as u64 * 3 + round).to_le_bytes();
                page[..8].copy_from_slice(&stamp);
                page[PAGE_BYTES - 8..].copy_from_slice(&stamp);
            }
            let pages: Vec<Page> = pages.into_iter().map(PageMut::freeze).collect();
            for (number, page) in pages.iter().enumerate() {
                let stamp = (number as u64 * 3 + round).to_le_bytes();
                assert!(page[..8] == stamp && page[PAGE_BYTES - 8..] == stamp);
                assert_eq!(page.clone().as_ptr().addr() % PAGE_BYTES, 0);
            }
        }
        assert_eq!(pool.pages_out(), 0);
    }

    #[test]
    fn frozen_pages_are_shared_and_thaw_when_alone() {
        let pool = PagePool::new(2);
        let mut page = pool.allocate_zeroed().unwrap();
        page[7] = 9;
        let page = page.freeze();
        let other = page.clone();
        let page = page.try_into_mut().expect_err("two handles");
        assert_eq!(other[7], 9);
        drop(other);
        let mut page = page.try_into_mut().expect("one handle");
        page[7] = 10;
        assert_eq!(page.freeze()[7], 10);
        assert_eq!(pool.pages_out(), 0);
    }

    #[test]
    fn pages_outlive_the_pool_handle_and_are_aligned() {
        let pool = PagePool::new(3);
        let page = pool.allocate_zeroed().unwrap().freeze();
        drop(pool);
        assert_eq!(page.as_ptr() as usize % PAGE_BYTES, 0);
        assert!(page.iter().all(|byte| *byte == 0));
    }
}
