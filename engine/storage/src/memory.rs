//! SQLite's memory, counted per actor and bounded while guest SQL runs.
//!
//! SQLite allocates in the [`Arena`] of the connection as far as that goes, and through Rust's global allocator
//! beyond it, with the size kept in front of each block. The [`Account`] that pays is the one entered on this
//! thread: a connection's memory is never handed to another connection, so what is taken and given back between
//! entering and leaving belongs to that connection.
//!
//! It is also where a long compilation can be suspended: SQLite calls for progress while it parses and while it
//! runs, but hardly while it copies and rewrites the trees of a query over hundreds of views, and that takes
//! memory all the time.

use std::{
    alloc::{self, Layout},
    cell::Cell,
    ffi::{c_int, c_void},
    ptr::{self, NonNull},
};

use rusqlite::ffi;

use self::arena::Arena;
use crate::hooks::Hooks;

mod arena;

/// Allocations between two looks at the clock while a statement is compiled: some 10 µs.
const ALLOCATIONS_PER_CHECK: u32 = 128;

/// Bytes in front of a block, which hold its size.
const HEADER: usize = 8;

/// What SQLite holds for one connection.
#[derive(Debug, Default)]
pub(crate) struct Account {
    used: Cell<usize>,
    limit: Cell<usize>,
    calls: Cell<u32>,
    /// Held while the connection is open.
    arena: Cell<Option<NonNull<Arena>>>,
    /// Set while the connection is open; see `Hooks::compiles`.
    hooks: Cell<*const Hooks>,
}

impl Account {
    /// Bytes held, SQLite's page cache and statements included.
    pub(crate) fn used(&self) -> usize {
        self.used.get()
    }

    /// Takes a block of memory for a connection about to open. Without it everything comes from the global allocator.
    pub(crate) fn take_arena(&self) {
        if self.arena.get().is_none() {
            self.arena.set(Arena::take());
        }
    }

    /// Gives the block back once the connection is closed.
    pub(crate) fn give_arena(&self) {
        if let Some(arena) = self.arena.take() {
            // SAFETY: taken by `take_arena` and known here alone; SQLite uses nothing of it any more, or the arena
            // knows that it does.
            unsafe { Arena::give_back(arena) };
        }
    }

    /// Lets allocations of a compiling statement give the core back.
    ///
    /// # Safety
    /// `hooks` must stay where it is for as long as the account is entered.
    pub(crate) unsafe fn pace_by(&self, hooks: &Hooks) {
        self.hooks.set(ptr::from_ref(hooks));
    }

    /// Whether the statement that is being compiled must end.
    fn pace(&self) -> bool {
        let calls = self.calls.get().wrapping_add(1);
        self.calls.set(calls);
        if !calls.is_multiple_of(ALLOCATIONS_PER_CHECK) {
            return false;
        }
        // SAFETY: `pace_by`'s caller keeps the hooks in place.
        unsafe { self.hooks.get().as_ref() }.is_some_and(|hooks| hooks.compiles.get() && hooks.pace())
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.give_arena();
    }
}

thread_local! {
    static PAYER: Cell<*const Account> = const { Cell::new(ptr::null()) };
}

/// While it lives, the account pays for what SQLite allocates on this thread.
pub(crate) struct Entered<'a> {
    before: *const Account,
    limit_before: usize,
    account: &'a Account,
}

/// Enters `account` with at most `limit` bytes; beyond it SQLite finds no memory.
pub(crate) fn enter(account: &Account, limit: usize) -> Entered<'_> {
    Entered {
        before: PAYER.replace(ptr::from_ref(account)),
        limit_before: account.limit.replace(limit),
        account,
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        PAYER.set(self.before);
        self.account.limit.set(self.limit_before);
    }
}

/// The paying account, if any.
fn payer<'a>() -> Option<&'a Account> {
    let account = PAYER.get();
    // SAFETY: set by `enter` from a reference that outlives the guard which takes it away again.
    unsafe { account.as_ref() }
}

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size.checked_add(HEADER)?, HEADER).ok()
}

/// Whether the payer has `more` bytes; it pays if so.
fn pay(more: usize) -> bool {
    let Some(account) = payer() else { return true };
    let used = account.used.get().saturating_add(more);
    if used > account.limit.get() {
        return false;
    }
    account.used.set(used);
    true
}

fn give_back(bytes: usize) {
    if let Some(account) = payer() {
        account.used.set(account.used.get().saturating_sub(bytes));
    }
}

/// Set in the header of a block that lies in the arena of its connection.
const IN_ARENA: usize = 1 << (usize::BITS - 1);

/// A block for `size` bytes with its header written; null when there is no memory.
fn take(layout: Layout, size: usize) -> *mut u8 {
    if let Some(mut arena) = payer().and_then(|account| account.arena.get()) {
        // SAFETY: the arena is the paying connection's, which one thread uses at a time.
        let block = unsafe { arena.as_mut() }.allocate(layout.size());
        if !block.is_null() {
            // SAFETY: the block has room for the header, and pieces of an arena are aligned.
            unsafe { block.cast::<usize>().write(size | IN_ARENA) };
            return block;
        }
    }
    // SAFETY: the layout is at least HEADER bytes; the size is written inside the block just taken.
    unsafe {
        let block = alloc::alloc(layout);
        if !block.is_null() {
            block.cast::<usize>().write(size);
        }
        block
    }
}

/// # Safety
/// `block` came from [`take`] and is given once.
unsafe fn give(block: *mut u8) {
    // SAFETY: the header was written when the block was taken; the arena of a block lives as long as the block.
    unsafe {
        let header = block.cast::<usize>().read();
        if header & IN_ARENA == 0 {
            alloc::dealloc(block, Layout::from_size_align_unchecked(header + HEADER, HEADER));
        } else {
            (*Arena::of(block)).free(block, (header & !IN_ARENA) + HEADER);
        }
    }
}

unsafe extern "C" fn malloc(bytes: c_int) -> *mut c_void {
    let size = bytes.max(0) as usize;
    let Some(layout) = layout(size) else { return ptr::null_mut() };
    if payer().is_some_and(Account::pace) || !pay(size) {
        return ptr::null_mut();
    }
    let block = take(layout, size);
    if block.is_null() {
        give_back(size);
        return ptr::null_mut();
    }
    block.wrapping_add(HEADER).cast()
}

unsafe extern "C" fn free(data: *mut c_void) {
    if data.is_null() {
        return;
    }
    // SAFETY: SQLite gives back what `malloc` or `realloc` gave, once; its size stands in front of it.
    unsafe {
        let block = data.cast::<u8>().sub(HEADER);
        give_back(block.cast::<usize>().read() & !IN_ARENA);
        give(block);
    }
}

unsafe extern "C" fn realloc(data: *mut c_void, bytes: c_int) -> *mut c_void {
    let size = bytes.max(0) as usize;
    let Some(wanted) = layout(size) else { return ptr::null_mut() };
    // SAFETY: as in `free`; SQLite never reallocates a null block.
    unsafe {
        let block = data.cast::<u8>().sub(HEADER);
        let header = block.cast::<usize>().read();
        let held = header & !IN_ARENA;
        if size > held && !pay(size - held) {
            return ptr::null_mut();
        }
        let moved = if header & IN_ARENA == 0 {
            let layout = Layout::from_size_align_unchecked(held + HEADER, HEADER);
            let moved = alloc::realloc(block, layout, wanted.size());
            if !moved.is_null() {
                moved.cast::<usize>().write(size);
            }
            moved
        } else if Arena::fits(held + HEADER, size + HEADER) {
            block.cast::<usize>().write(size | IN_ARENA);
            block
        } else {
            let moved = take(wanted, size);
            if !moved.is_null() {
                ptr::copy_nonoverlapping(block.add(HEADER), moved.add(HEADER), held.min(size));
                give(block);
            }
            moved
        };
        if moved.is_null() {
            give_back(size.saturating_sub(held));
            return ptr::null_mut();
        }
        give_back(held.saturating_sub(size));
        moved.add(HEADER).cast()
    }
}

unsafe extern "C" fn size(data: *mut c_void) -> c_int {
    if data.is_null() {
        return 0;
    }
    // SAFETY: as in `free`.
    unsafe { (data.cast::<u8>().sub(HEADER).cast::<usize>().read() & !IN_ARENA) as c_int }
}

unsafe extern "C" fn roundup(bytes: c_int) -> c_int {
    bytes.saturating_add(7) & !7
}

unsafe extern "C" fn init(_: *mut c_void) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn shutdown(_: *mut c_void) {}

/// Makes SQLite allocate here. Must come before anything else of SQLite in the process; returns its answer.
pub(crate) fn install() -> c_int {
    let methods = ffi::sqlite3_mem_methods {
        xMalloc: Some(malloc),
        xFree: Some(free),
        xRealloc: Some(realloc),
        xSize: Some(size),
        xRoundup: Some(roundup),
        xInit: Some(init),
        xShutdown: Some(shutdown),
        pAppData: ptr::null_mut(),
    };
    // SAFETY: SQLite copies the methods.
    unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_MALLOC, ptr::from_ref(&methods)) }
}
