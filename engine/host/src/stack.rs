//! The stack that calls into a guest run on.

use std::{cell::Cell, hint::black_box, ptr};

use rustix::mm::{Advice, madvise};

/// Stack of one call into a guest, host functions included, in bytes. What is over the guest's own part is for the
/// host's frames, which run on it too and are deep in unoptimised builds; only touched pages cost.
pub(crate) const CALL_STACK_BYTES: usize = 1 << 20;

/// More than lies above the frame of [`mark`] when wasmtime calls it; so much below that frame is the stack's for sure.
const FRAMES_ABOVE_BYTES: usize = 256 << 10;

/// The smallest page there is; where pages are larger the system refuses and they stay.
const PAGE_BYTES: usize = 4096;

thread_local! {
    static MARKED: Cell<*mut u8> = const { Cell::new(ptr::null_mut()) };
}

/// Notes where its own frame is; to be called on a call stack with little above it.
pub(crate) fn mark() {
    let frame = black_box(0_u8);
    MARKED.set(ptr::from_ref(&frame).cast_mut());
}

/// Gives the pages of the stack that [`mark`] was last called on back to the system. The next call finds it as a new one,
/// empty.
///
/// # Safety
/// The call that [`mark`] ran in has ended, and no other is on its stack.
pub(crate) unsafe fn give_back() {
    let marked = MARKED.replace(ptr::null_mut());
    if marked.is_null() {
        return;
    }
    let page = marked.map_addr(|address| address & !(PAGE_BYTES - 1));
    // Its frame is in the uppermost page or the one before it. Above the stack is the guard of another, without a page.
    let (below, above) = (CALL_STACK_BYTES - FRAMES_ABOVE_BYTES, 2 * PAGE_BYTES);
    // SAFETY: the stack has CALL_STACK_BYTES, of which less than FRAMES_ABOVE_BYTES are above the frame, so all of it is
    // this stack's or the guard's; nothing lives there, as the caller promises.
    let _ = unsafe { madvise(page.wrapping_sub(below).cast(), below + above, Advice::LinuxDontNeed) };
}
