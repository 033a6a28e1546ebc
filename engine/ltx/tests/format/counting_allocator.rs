//! An allocator that knows the most memory a thread held at once, for the tests that bound it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    HELD.set(HELD.get() + change);
    MOST.set(MOST.get().max(HELD.get()));
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches only thread-local cells that
// need neither allocation nor a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are those `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: `pointer` came from `System` with this layout, because `alloc` only passes on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Runs `work` and returns the most bytes it held at once, beyond what was held before it.
pub fn most_held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    MOST.set(before);
    let result = work();
    (result, usize::try_from(MOST.get() - before).unwrap_or(0))
}
