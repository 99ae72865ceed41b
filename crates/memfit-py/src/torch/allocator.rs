//! What PyTorch's CPU allocator gives out and takes back, to the byte, on all threads.
//!
//! `libc10.so` allocates the bytes of all CPU tensors by `posix_memalign` and gives them back by `free`. On Linux these two calls are
//! led through here: the entries of that library's own table of imported functions are replaced, once, and for nobody
//! else. No profiler of PyTorch's is needed, none is in the way, and an allocation takes some 100 ns more. Where the
//! table can't be found, or the allocator works in another way, [`allocator_watch`] says so.
//!
//! What a kernel takes beside its results nobody knows before it has run: a [`Limit`] holds it to what there is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use rustc_hash::FxHashMap;

/// The blocks that are out, by address.
static BLOCKS: [Mutex<Option<FxHashMap<usize, Block>>>; SHARDS] = [const { Mutex::new(None) }; SHARDS];
const SHARDS: usize = 64;

struct Block {
    bytes: u64,
    /// Of the thread that asked for it, whichever gives it back.
    asked: Option<Arc<Count>>,
}

/// Bytes given out since the watch began, less those taken back; and the most so far. They start high, so that blocks of the
/// time before can come back.
struct Count {
    used: AtomicU64,
    peak: AtomicU64,
    /// Above this the allocator has no memory.
    limit: AtomicU64,
    /// Bytes in use that there would have been, had it not been for the limit.
    refused: AtomicU64,
}

/// Of all threads.
static ALL: Count = Count::new();

thread_local! {
    /// Of the blocks that this thread asked for.
    static HERE: Arc<Count> = Arc::new(Count::new());
}

impl Count {
    const START: u64 = 1 << 60;

    const fn new() -> Count {
        Count {
            used: AtomicU64::new(Count::START),
            peak: AtomicU64::new(Count::START),
            limit: AtomicU64::new(u64::MAX),
            refused: AtomicU64::new(0),
        }
    }

    fn add(&self, bytes: u64) {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(used, Ordering::Relaxed);
    }

    fn sub(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What is in use, and the peak so far, which [`Count::end`] takes back.
    fn begin(&self) -> (u64, u64) {
        let used = self.used.load(Ordering::Relaxed);
        (used, self.peak.swap(used, Ordering::Relaxed))
    }

    fn end(&self, outer: u64) -> (u64, u64) {
        (self.used.load(Ordering::Relaxed), self.peak.fetch_max(outer, Ordering::Relaxed))
    }
}

/// While it lives, PyTorch's CPU allocator gives this thread no more than some bytes beyond what it has.
pub(super) struct Limit {
    start: u64,
}

impl Limit {
    pub(super) fn new(bytes: u64) -> Limit {
        HERE.with(|here| {
            let start = here.used.load(Ordering::Relaxed);
            here.refused.store(0, Ordering::Relaxed);
            here.limit.store(start.saturating_add(bytes), Ordering::Relaxed);
            Limit { start }
        })
    }

    /// The bytes beyond what the thread had that it has been refused, if it was.
    pub(super) fn refused(&self) -> Option<u64> {
        let refused = HERE.with(|here| here.refused.load(Ordering::Relaxed));
        (refused > 0).then(|| refused.saturating_sub(self.start))
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        HERE.with(|here| here.limit.store(u64::MAX, Ordering::Relaxed));
    }
}

/// For the encoded copies of a shelf, which are as much memory of tensors as what PyTorch's allocator gives out.
pub(super) fn copied(address: usize, bytes: Option<usize>) {
    match bytes {
        Some(bytes) => given(address, bytes as u64),
        None => taken_back(address),
    }
}

/// Whether this thread may have `bytes` more; if not, that is noted.
fn is_allowed(bytes: u64) -> bool {
    let within = |here: &Arc<Count>| {
        let wanted = here.used.load(Ordering::Relaxed).saturating_add(bytes);
        let allowed = wanted <= here.limit.load(Ordering::Relaxed);
        if !allowed {
            here.refused.store(wanted, Ordering::Relaxed);
        }
        allowed
    };
    HERE.try_with(within).unwrap_or(true)
}

fn shard(address: usize) -> MutexGuard<'static, Option<FxHashMap<usize, Block>>> {
    BLOCKS[(address >> 6) % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
}

fn given(address: usize, bytes: u64) {
    // A thread that ends has no count any more.
    let asked = HERE.try_with(Arc::clone).ok();
    ALL.add(bytes);
    if let Some(count) = &asked {
        count.add(bytes);
    }
    shard(address).get_or_insert_default().insert(address, Block { bytes, asked });
}

fn taken_back(address: usize) {
    let Some(block) = shard(address).as_mut().and_then(|blocks| blocks.remove(&address)) else { return };
    ALL.sub(block.bytes);
    if let Some(count) = block.asked {
        count.sub(block.bytes);
    }
}

/// Counts from now on what PyTorch's CPU allocator does. False: it can't be watched here.
#[pyfunction]
fn allocator_watch() -> bool {
    imports::replace()
}

/// Notes a block that was given out before the watch. False: it is known, or is none.
#[pyfunction]
fn allocator_note(address: usize, bytes: u64) -> bool {
    let mut blocks = shard(address);
    let blocks = blocks.get_or_insert_default();
    let asked = HERE.try_with(Arc::clone).ok();
    address != 0 && !blocks.contains_key(&address) && blocks.insert(address, Block { bytes, asked }).is_none()
}

/// Notes that `bytes` have gone that were not the allocator's own.
#[pyfunction]
fn allocator_gone(bytes: u64) {
    ALL.sub(bytes);
}

/// Begins a measurement, of what this thread asks for or of all: what is in use, and the peak so far, which
/// [`allocator_end`] takes back.
#[pyfunction]
fn allocator_begin(thread: bool) -> (u64, u64) {
    if thread { HERE.with(|here| here.begin()) } else { ALL.begin() }
}

/// Ends what [`allocator_begin`] began with `outer`: what is in use now, and the most since then.
#[pyfunction]
fn allocator_end(thread: bool, outer: u64) -> (u64, u64) {
    if thread { HERE.with(|here| here.end(outer)) } else { ALL.end(outer) }
}

pub(super) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(allocator_watch, module)?)?;
    module.add_function(wrap_pyfunction!(allocator_note, module)?)?;
    module.add_function(wrap_pyfunction!(allocator_gone, module)?)?;
    module.add_function(wrap_pyfunction!(allocator_begin, module)?)?;
    module.add_function(wrap_pyfunction!(allocator_end, module)?)
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
mod imports {
    pub(super) fn replace() -> bool {
        false
    }
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[allow(unsafe_code, reason = "the tables of a loaded library are raw memory")]
mod imports {
    //! The table of imported functions of a loaded library (ELF: `DT_JMPREL`).

    use std::ffi::{CStr, c_int, c_void};
    use std::ptr;
    use std::sync::OnceLock;

    use libc::{Elf64_Rela, Elf64_Sym, dl_phdr_info, size_t};

    /// The library that has PyTorch's CPU allocator.
    const LIBRARY: &[u8] = b"libc10.so";

    const PT_DYNAMIC: u32 = 2;
    const DT_PLTRELSZ: u64 = 2;
    const DT_STRTAB: u64 = 5;
    const DT_SYMTAB: u64 = 6;
    const DT_JMPREL: u64 = 23;

    /// An entry of a dynamic section.
    #[repr(C)]
    struct Dynamic {
        tag: u64,
        value: u64,
    }

    pub(super) fn replace() -> bool {
        static DONE: OnceLock<bool> = OnceLock::new();
        *DONE.get_or_init(|| {
            let mut found = Found::default();
            // SAFETY: `look` gets `found` back as the pointer that it takes it for, before this returns.
            unsafe { libc::dl_iterate_phdr(Some(look), ptr::from_mut(&mut found).cast()) };
            // Both or none: blocks that are given out unseen could not be told from others.
            let (Some(allocate), Some(free)) = (found.allocate, found.free) else { return false };
            // SAFETY: the slots are of functions with these types.
            unsafe {
                set(free, super::imports::free as *const c_void) && set(allocate, memalign as *const c_void)
            }
        })
    }

    /// Where the library has the addresses of the functions.
    #[derive(Default)]
    struct Found {
        allocate: Option<*mut *const c_void>,
        free: Option<*mut *const c_void>,
    }

    unsafe extern "C" fn look(info: *mut dl_phdr_info, _: size_t, found: *mut c_void) -> c_int {
        // SAFETY: the loader calls this with a library that stays while it does, and with what `replace` gave.
        let (info, found) = unsafe { (&*info, &mut *found.cast::<Found>()) };
        if info.dlpi_name.is_null() {
            return 0;
        }
        // SAFETY: a name ends with a zero; there are as many headers as are told.
        let (name, headers) = unsafe {
            let count = usize::from(info.dlpi_phnum);
            (CStr::from_ptr(info.dlpi_name), std::slice::from_raw_parts(info.dlpi_phdr, count))
        };
        if name.to_bytes().rsplit(|&byte| byte == b'/').next() != Some(LIBRARY) {
            return 0;
        }
        let Some(section) = headers.iter().find(|header| header.p_type == PT_DYNAMIC) else { return 1 };
        // SAFETY: the section is where its header says, and ends with a zero tag.
        unsafe { read(info.dlpi_addr, (info.dlpi_addr + section.p_vaddr) as *const Dynamic, found) };
        1
    }

    /// # Safety
    ///
    /// `entry` is the dynamic section of the library that is loaded at `base`.
    unsafe fn read(base: u64, mut entry: *const Dynamic, found: &mut Found) {
        let (mut rows, mut bytes, mut symbols, mut names) = (0, 0, 0, 0);
        // SAFETY: the section ends with a zero tag.
        while let Dynamic { tag, value } = unsafe { &*entry }
            && *tag != 0
        {
            // Some loaders have made addresses of what the file has as offsets.
            let address = if *value < base { base + *value } else { *value };
            match *tag {
                DT_JMPREL => rows = address,
                DT_SYMTAB => symbols = address,
                DT_STRTAB => names = address,
                DT_PLTRELSZ => bytes = *value,
                _ => {}
            }
            // SAFETY: this one was not the last.
            entry = unsafe { entry.add(1) };
        }
        if rows == 0 || symbols == 0 || names == 0 {
            return;
        }
        for at in 0..usize::try_from(bytes).unwrap_or(0) / size_of::<Elf64_Rela>() {
            // SAFETY: the tables are as long as they say, and what they name is in them.
            unsafe {
                let row = &*(rows as *const Elf64_Rela).add(at);
                let symbol = &*(symbols as *const Elf64_Sym).add((row.r_info >> 32) as usize);
                let name = CStr::from_ptr((names + u64::from(symbol.st_name)) as *const _);
                let slot = (base + row.r_offset) as *mut *const c_void;
                match name.to_bytes() {
                    b"posix_memalign" => found.allocate = Some(slot),
                    b"free" => found.free = Some(slot),
                    _ => {}
                }
            }
        }
    }

    /// # Safety
    ///
    /// `slot` holds the address of a function of the type of `function`.
    unsafe fn set(slot: *mut *const c_void, function: *const c_void) -> bool {
        // SAFETY: it only asks.
        let Ok(page) = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }) else { return false };
        // SAFETY: the page of the slot is the library's own; it may be that it was closed after loading.
        unsafe {
            let start = slot.map_addr(|address| address / page * page);
            if libc::mprotect(start.cast(), page, libc::PROT_READ | libc::PROT_WRITE) != 0 {
                return false;
            }
            slot.write_volatile(function);
        }
        true
    }

    unsafe extern "C" fn memalign(block: *mut *mut c_void, align: size_t, bytes: size_t) -> c_int {
        if !super::is_allowed(bytes as u64) {
            return libc::ENOMEM;
        }
        // SAFETY: as its caller has it.
        let failed = unsafe { libc::posix_memalign(block, align, bytes) };
        if failed == 0 {
            // SAFETY: it has been written.
            super::given(unsafe { *block }.addr(), bytes as u64);
        }
        failed
    }

    unsafe extern "C" fn free(block: *mut c_void) {
        // Before: afterwards another thread may have it.
        super::taken_back(block.addr());
        // SAFETY: as its caller has it.
        unsafe { libc::free(block) }
    }
}
