//! A heap that is counted, for programs that want to hold a budget against what is really there: `memfit run` does.
//!
//! Blocks that shrink stay where they are, as they do by the system's allocator alone: an encoded copy is made in a buffer
//! of its bound, and gives back what it did not take.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::meter::Meter;

/// The system's allocator, counted:
///
/// ```
/// #[global_allocator]
/// static HEAP: memfit_burn::heap::Heap = memfit_burn::heap::Heap;
///
/// let meter = memfit_burn::heap::METER;
/// let before = (meter.current)();
/// let block = vec![0_u8; 1 << 20];
/// assert!((meter.current)() >= before + (1 << 20));
/// # drop(block);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap;

/// Bytes of [`Heap`]: zero where it is not the program's allocator.
pub const METER: Meter = Meter { current, mark };

/// Bytes that are allocated.
static CURRENT: AtomicUsize = AtomicUsize::new(0);

/// The most since the last [`mark`].
static MOST: AtomicUsize = AtomicUsize::new(0);

/// Bytes that are allocated now.
#[must_use]
pub fn current() -> usize {
    CURRENT.load(Ordering::Relaxed)
}

/// The most bytes at any moment since the last call. What other threads allocate meanwhile may be counted before or after.
pub fn mark() -> usize {
    MOST.swap(current(), Ordering::Relaxed)
}

fn add(bytes: usize) {
    let now = CURRENT.fetch_add(bytes, Ordering::Relaxed) + bytes;
    // It's rarely more, and a look costs less.
    if now > MOST.load(Ordering::Relaxed) {
        MOST.fetch_max(now, Ordering::Relaxed);
    }
}

fn sub(bytes: usize) {
    CURRENT.fetch_sub(bytes, Ordering::Relaxed);
}

// SAFETY: the system's allocator does it all, and is handed what was handed in.
#[allow(unsafe_code, reason = "an allocator can't be written without")]
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let block = unsafe { System.alloc(layout) };
        add(if block.is_null() { 0 } else { layout.size() });
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let block = unsafe { System.alloc_zeroed(layout) };
        add(if block.is_null() { 0 } else { layout.size() });
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
        sub(layout.size());
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        let moved = unsafe { System.realloc(block, layout, size) };
        if !moved.is_null() {
            add(size.saturating_sub(layout.size()));
            sub(layout.size().saturating_sub(size));
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static HEAP: Heap = Heap;

    #[test]
    fn what_grows_and_shrinks_is_counted_once() {
        const SIZE: usize = 64 << 20;
        // Tests beside this one take less than a quarter of it.
        let near = |bytes: usize, of: usize| bytes.abs_diff(of) < SIZE / 4;
        let before = current();
        mark();
        let mut block = vec![0_u8; SIZE];
        assert!(near(current(), before + SIZE));
        block.truncate(SIZE / 4);
        block.shrink_to_fit();
        assert!(near(current(), before + SIZE / 4));
        // Both blocks were never there.
        assert!(near(mark(), before + SIZE));
        block.reserve_exact(SIZE / 4);
        assert!(near(current(), before + SIZE / 2));
        drop(block);
        assert!(near(current(), before) && near(mark(), before + SIZE / 2));
    }
}
