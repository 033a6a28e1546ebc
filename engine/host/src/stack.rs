//! The stack that calls into a guest run on.

use std::{hint::black_box, ptr};

use rustix::mm::{Advice, madvise};

/// Stack of one call into a guest, host functions included, in bytes. What is over the guest's own part is for the
/// host's frames, which run on it too and are deep in unoptimised builds; only touched pages cost.
pub(crate) const CALL_STACK_BYTES: usize = 1 << 20;

/// More than lies above the frame of [`give_back_unused`] when wasmtime calls it.
const FRAMES_ABOVE_BYTES: usize = 256 << 10;

/// More than the call of the system below that frame takes.
const FRAMES_BELOW_BYTES: usize = 2 << 10;

/// The smallest page there is; where pages are larger the system refuses and they stay.
const PAGE_BYTES: usize = 4096;

/// Gives the pages below its own frame back to the system; to be called on a call stack with little above it.
pub(crate) fn give_back_unused() {
    let frame = black_box(0_u8);
    let here = ptr::from_ref(&frame).cast_mut();
    let end = here.map_addr(|address| (address - FRAMES_BELOW_BYTES) & !(PAGE_BYTES - 1));
    let bytes = CALL_STACK_BYTES - FRAMES_ABOVE_BYTES;
    // SAFETY: below the frame of a running function its stack holds nothing that lives, and so much of it is there:
    // the stack has CALL_STACK_BYTES, of which less than FRAMES_ABOVE_BYTES are above.
    let _ = unsafe { madvise(end.wrapping_sub(bytes).cast(), bytes, Advice::LinuxDontNeed) };
}
