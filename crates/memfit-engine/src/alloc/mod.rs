//! Online placement: addresses while the step is still arriving. One file is one allocator.

mod best_fit;
mod bfc;
mod caching;
mod gaps;
mod ideal;

pub use crate::info::Info;
use memfit_ir::Bytes;

/// Hands out byte ranges of one arena.
pub trait Allocator: Send {
    /// A range of at least `size` bytes, by its offset; `None` if there is none.
    fn allocate(&mut self, size: u64) -> Option<u64>;

    /// The range `[offset, offset + size)` if all of it is free. Allocators without addresses ignore `offset`.
    fn allocate_at(&mut self, offset: u64, size: u64) -> bool;

    /// Takes back what [`Allocator::allocate`] gave for `size`.
    fn release(&mut self, offset: u64, size: u64);

    /// The end of the address space; `None` where there are no addresses.
    fn addresses(&self) -> Option<u64>;

    /// Free bytes directly before and after `[offset, offset + size)`.
    fn free_around(&self, offset: u64, size: u64) -> (u64, u64);

    /// The largest range that could be had now.
    fn largest_free(&self) -> u64;
}

/// One row of [`ALLOCATORS`].
#[derive(Clone, Copy)]
pub struct Entry {
    /// Name and origin.
    pub info: Info,
    /// Makes one for an arena of `capacity` bytes whose ranges start at multiples of `align`.
    pub make: fn(capacity: Bytes, align: Bytes) -> Box<dyn Allocator>,
}

/// Every allocator. This order is the order of the manual.
pub const ALLOCATORS: &[Entry] = &[
    Entry { info: best_fit::INFO, make: best_fit::make },
    Entry { info: bfc::INFO, make: bfc::make },
    Entry { info: caching::INFO, make: caching::make },
    Entry { info: ideal::INFO, make: ideal::make },
];

/// Counts bytes up to `capacity`.
pub(crate) fn unlimited(capacity: Bytes) -> Box<dyn Allocator> {
    ideal::make(capacity, Bytes(1))
}

/// The allocator called `name`.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Entry> {
    ALLOCATORS.iter().find(|entry| entry.info.name == name)
}
