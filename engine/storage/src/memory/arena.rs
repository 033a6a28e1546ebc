//! A block of memory for what one connection allocates, taken as a whole when it opens and given back as a whole
//! when it closes.
//!
//! In a general allocator the small pieces of thousands of connections lie between pieces that live longer, and a
//! connection that closes gives next to nothing back to the system. What does not fit in the block is not taken
//! here.

use std::{
    ptr::{self, NonNull},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Address space of a block, in bytes, and its alignment.
pub(crate) const BLOCK_BYTES: usize = 128 << 10;

/// What an ordinary connection touches of a block, in bytes.
const ORDINARY_BYTES: usize = 96 << 10;

/// Blocks asked of the system at once.
const BLOCKS_PER_SLAB: usize = 32;

/// Free blocks that keep their pages, for connections that come and go. At most 6 MiB of the process, and 4.5 MiB with
/// ordinary connections.
const WARM_BLOCKS_MAX: usize = 48;

/// Pieces up to this size are a multiple of the step beside it; larger ones are not taken.
const STEPS: [(usize, usize); 3] = [(1 << 10, 32), (8 << 10, 256), (PIECE_BYTES_MAX, 4 << 10)];

/// The largest piece. The index of a WAL, 32 KiB, is one; what SQLite reads a WAL into while it opens it, a frame and as
/// much again, is not: a third of the block would be of no more use afterwards.
const PIECE_BYTES_MAX: usize = 36 << 10;

const CLASSES: usize = 32 + 28 + 7;

/// What stands at the start of a block. Offsets are from there; 0 is none.
pub(crate) struct Arena {
    /// Where the part never used begins.
    fresh: usize,
    /// Pieces in use.
    live: usize,
    /// The first free piece of each class; each names the next in its first bytes.
    free: [u32; CLASSES],
}

/// The class of a piece of `bytes`, and how many bytes it really has.
fn class(bytes: usize) -> Option<(usize, usize)> {
    let (mut first, mut from) = (0, 0);
    for (to, step) in STEPS {
        if bytes <= to {
            let at = (bytes - from).div_ceil(step).max(1);
            return Some((first + at - 1, from + at * step));
        }
        first += (to - from) / step;
        from = to;
    }
    None
}

impl Arena {
    /// A block for one connection; `None` when the system has no memory.
    pub(crate) fn take() -> Option<NonNull<Self>> {
        let (block, is_cold) = pool().take()?;
        if is_cold {
            populate(block);
        }
        let block = block.cast::<Self>();
        let arena = Self { fresh: size_of::<Self>().next_multiple_of(16), live: 0, free: [0; CLASSES] };
        // SAFETY: the block is ours alone, large enough and aligned.
        unsafe { block.write(arena) };
        Some(block)
    }

    /// Gives the block back, unless something in it is still in use: then it is left alone for good.
    ///
    /// # Safety
    /// `arena` came from [`Arena::take`] and is used by nobody from now on.
    pub(crate) unsafe fn give_back(arena: NonNull<Self>) {
        // SAFETY: the caller's promise.
        if unsafe { arena.as_ref() }.live == 0 {
            pool().give(arena.cast());
        } else {
            tracing::error!("a closed connection left memory in use");
        }
    }

    /// The block that the piece at `place` lies in.
    ///
    /// # Safety
    /// `place` came from [`Arena::allocate`] and its block was not given back.
    pub(crate) unsafe fn of(place: *mut u8) -> *mut Self {
        place.map_addr(|address| address & !(BLOCK_BYTES - 1)).cast()
    }

    /// A piece of at least `bytes`, aligned to 16; null when the block has no room for it.
    pub(crate) fn allocate(&mut self, bytes: usize) -> *mut u8 {
        let Some((class, bytes)) = class(bytes) else { return ptr::null_mut() };
        let base = ptr::from_mut(self).cast::<u8>();
        let offset = match self.free[class] as usize {
            0 => {
                if self.fresh + bytes > BLOCK_BYTES {
                    return ptr::null_mut();
                }
                self.fresh += bytes;
                self.fresh - bytes
            }
            offset => {
                // SAFETY: a free piece of this block, which names the next.
                self.free[class] = unsafe { base.add(offset).cast::<u32>().read() };
                offset
            }
        };
        self.live += 1;
        // SAFETY: within the block.
        unsafe { base.add(offset) }
    }

    /// Takes a piece back.
    ///
    /// # Safety
    /// `place` came from [`Arena::allocate`] of this arena with the same `bytes`, or the same class of them.
    pub(crate) unsafe fn free(&mut self, place: *mut u8, bytes: usize) {
        let Some((class, _)) = class(bytes) else { return };
        let offset = place.addr() - ptr::from_mut(self).addr();
        // SAFETY: the piece is ours again and at least 32 bytes long.
        unsafe { place.cast::<u32>().write(self.free[class]) };
        self.free[class] = offset as u32;
        self.live -= 1;
    }

    /// Whether a piece of `bytes` can become one of `wanted` where it is.
    pub(crate) fn fits(bytes: usize, wanted: usize) -> bool {
        class(bytes) == class(wanted)
    }
}

/// Blocks nobody uses.
struct Pool {
    /// With the pages they touched, the last used first.
    warm: Vec<Block>,
    /// Without any page.
    cold: Vec<Block>,
}

struct Block(NonNull<u8>);

// SAFETY: a block in the pool is nobody's memory.
unsafe impl Send for Block {}

/// Has the system give the pages of a block in one call that nearly every connection would ask for one by one.
fn populate(block: NonNull<u8>) {
    // SAFETY: the block is whole pages of a mapping of our own. Should the call fail (a kernel before 5.14 does not know
    // it), the pages come when they are touched.
    unsafe { libc::madvise(block.as_ptr().cast(), ORDINARY_BYTES, libc::MADV_POPULATE_WRITE) };
}

fn pool() -> MutexGuard<'static, Pool> {
    static POOL: Mutex<Pool> = Mutex::new(Pool { warm: Vec::new(), cold: Vec::new() });
    // Whole at every step: nothing that panics runs under the lock but a push that finds no memory.
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// A block, and whether it has no pages.
    fn take(&mut self) -> Option<(NonNull<u8>, bool)> {
        if self.warm.is_empty() && self.cold.is_empty() {
            self.grow();
        }
        let warm = self.warm.pop().map(|block| (block.0, false));
        warm.or_else(|| self.cold.pop().map(|block| (block.0, true)))
    }

    fn give(&mut self, block: NonNull<u8>) {
        if self.warm.len() < WARM_BLOCKS_MAX {
            return self.warm.push(Block(block));
        }
        // SAFETY: the block is whole pages of a mapping of our own, and nobody's memory. Should the call fail, the
        // pages stay and are used again.
        unsafe { libc::madvise(block.as_ptr().cast(), BLOCK_BYTES, libc::MADV_DONTNEED) };
        self.cold.push(Block(block));
    }

    /// Asks the system for more address space.
    fn grow(&mut self) {
        let bytes = (BLOCKS_PER_SLAB + 1) * BLOCK_BYTES;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping wherever the system has room.
        let slab = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if slab == libc::MAP_FAILED {
            return;
        }
        // SAFETY: the mapping just made. A huge page would be the memory of many connections for one of them; on a
        // kernel without them the call fails, and nothing needs it.
        unsafe { libc::madvise(slab, bytes, libc::MADV_NOHUGEPAGE) };
        let slab = slab.cast::<u8>();
        let first = slab.map_addr(|address| address.next_multiple_of(BLOCK_BYTES));
        for at in (0..BLOCKS_PER_SLAB).rev() {
            self.cold.extend(NonNull::new(first.wrapping_add(at * BLOCK_BYTES)).map(Block));
        }
    }
}

#[cfg(test)]
mod tests;
