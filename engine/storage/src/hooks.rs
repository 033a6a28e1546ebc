//! What SQLite calls back while it works: authorizer, progress, commit and statement start.
//!
//! Owns the state those callbacks read and write. None of them may panic: they are called from C.

use std::{
    cell::{Cell, RefCell},
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    ptr,
};

use corosensei::Yielder;
use rusqlite::ffi;

use crate::{
    limits::OPERATIONS_PER_CHECK,
    pace::Pace,
    policy::{self, Action, Boundary, Verdict},
};

/// Stack a statement must have left wherever SQLite asks for permission or starts a nested statement.
/// What lies between two such points (one expression, one pattern, one JSON text at their limits) takes less.
pub(crate) const STACK_RESERVE_BYTES: usize = 512 << 10;

/// What the compilation of a statement told about it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Facts {
    pub(crate) boundary: Boundary,
    /// It deletes rows or drops objects.
    pub(crate) deletes: bool,
    /// It inserts or updates rows.
    pub(crate) grows: bool,
    /// It alters a table.
    pub(crate) alters: bool,
}

/// The state behind the callbacks of one connection.
pub(crate) struct Hooks {
    pub(crate) pacer: Box<dyn Pace + Send>,
    /// The coroutine a statement runs on; null while none does.
    pub(crate) yielder: Cell<*const Yielder<(), ()>>,
    /// Lowest usable address of that coroutine's stack; 0 while none runs.
    pub(crate) stack_limit: Cell<usize>,
    /// The running statement must end at its next progress check.
    pub(crate) cancel: Cell<bool>,
    /// A write transaction committed since the owner last asked.
    pub(crate) committed: Cell<bool>,
    /// A write transaction committed since the WAL was last measured.
    pub(crate) wal_grew: Cell<bool>,
    /// A write transaction committed since the database file was last known to hold everything.
    pub(crate) wrote: Cell<bool>,
    /// A guest's statement spoke of temporary objects or set a pragma: the connection may hold what no file does.
    pub(crate) is_personal: Cell<bool>,
    /// A guest's statement of this `on-init` may come out otherwise at another moment.
    pub(crate) depends_on_moment: Cell<bool>,
    /// The host's own SQL runs: everything is allowed.
    pub(crate) host: Cell<bool>,
    /// A guest's statement is being compiled, and its facts gathered.
    pub(crate) collecting: Cell<bool>,
    /// A guest's statement is being compiled, or one that compiles others (ALTER TABLE) is being stepped. SQLite
    /// holds none of its process-wide locks where it takes memory for that, so it can be suspended there.
    pub(crate) compiles: Cell<bool>,
    /// The statement being stepped is a VACUUM.
    pub(crate) in_vacuum: Cell<bool>,
    pub(crate) facts: Cell<Facts>,
    /// Why the last statement was refused.
    pub(crate) refusal: RefCell<Option<String>>,
}

impl Hooks {
    pub(crate) fn new(pacer: Box<dyn Pace + Send>) -> Self {
        Self {
            pacer,
            yielder: Cell::new(ptr::null()),
            stack_limit: Cell::new(0),
            cancel: Cell::new(false),
            committed: Cell::new(false),
            // The WAL of an earlier run may be long.
            wal_grew: Cell::new(true),
            wrote: Cell::new(false),
            is_personal: Cell::new(false),
            depends_on_moment: Cell::new(false),
            host: Cell::new(false),
            collecting: Cell::new(false),
            compiles: Cell::new(false),
            in_vacuum: Cell::new(false),
            facts: Cell::default(),
            refusal: RefCell::default(),
        }
    }

    /// Puts the callbacks in place.
    ///
    /// # Safety
    /// `self` must stay where it is until `connection` is closed.
    pub(crate) unsafe fn install(&self, connection: *mut ffi::sqlite3) {
        let this = ptr::from_ref(self).cast_mut().cast::<c_void>();
        // SAFETY: the caller keeps `self` in place; every callback only takes a shared reference to it.
        unsafe {
            ffi::sqlite3_set_authorizer(connection, Some(authorize), this);
            ffi::sqlite3_progress_handler(connection, OPERATIONS_PER_CHECK, Some(progress), this);
            ffi::sqlite3_commit_hook(connection, Some(commit), this);
            ffi::sqlite3_trace_v2(connection, ffi::SQLITE_TRACE_STMT as c_uint, Some(start), this);
        }
    }

    /// The connection is closed, and with it what only it held.
    pub(crate) fn forget_connection(&self) {
        self.is_personal.set(false);
        self.wal_grew.set(true);
    }

    /// A write transaction was committed.
    pub(crate) fn note_commit(&self) {
        self.committed.set(true);
        self.wal_grew.set(true);
        self.wrote.set(true);
    }

    fn refuse(&self, sentence: String) {
        *self.refusal.borrow_mut() = Some(sentence);
    }

    /// Whether too little stack is left for another level of nesting.
    fn is_too_deep(&self) -> bool {
        let marker = 0u8;
        let here = ptr::from_ref(&marker).addr();
        let limit = self.stack_limit.get();
        limit != 0 && here.saturating_sub(limit) < STACK_RESERVE_BYTES
    }

    fn refuse_depth(&self) {
        self.refuse("the statement is nested too deeply".to_owned());
    }

    fn gather(&self, action: &Action<'_>, nested: bool) {
        let mut facts = self.facts.get();
        let boundary = policy::boundary(action);
        if boundary != Boundary::None {
            facts.boundary = boundary;
        }
        let own = !nested && action.first.is_some_and(|table| !table.starts_with("sqlite_"));
        match action.code {
            ffi::SQLITE_DELETE if own => facts.deletes = true,
            ffi::SQLITE_DROP_TABLE | ffi::SQLITE_DROP_INDEX => facts.deletes = true,
            ffi::SQLITE_INSERT | ffi::SQLITE_UPDATE if own => facts.grows = true,
            ffi::SQLITE_ALTER_TABLE => facts.alters = true,
            _ => {}
        }
        self.facts.set(facts);
    }
}

/// The state a callback was registered with.
///
/// # Safety
/// `data` is what `Hooks::install` gave to SQLite.
unsafe fn hooks<'a>(data: *mut c_void) -> &'a Hooks {
    // SAFETY: `install`'s caller keeps the state in place while the connection is open.
    unsafe { &*data.cast::<Hooks>() }
}

/// # Safety
/// `text` is null or a C string that lives through the callback.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: as above. A name that is not UTF-8 is none we know.
    Some(unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("?"))
}

impl Hooks {
    /// Gives the core back if the slice is spent; whether the statement must end.
    pub(crate) fn pace(&self) -> bool {
        let yielder = self.yielder.get();
        if !self.cancel.get() && !yielder.is_null() && self.pacer.spent() {
            // SAFETY: set by the coroutine this runs on, which outlives the statement it runs.
            unsafe { (*yielder).suspend(()) };
        }
        self.cancel.get()
    }
}

unsafe extern "C" fn authorize(
    data: *mut c_void,
    code: c_int,
    first: *const c_char,
    second: *const c_char,
    schema: *const c_char,
    trigger: *const c_char,
) -> c_int {
    // SAFETY: SQLite passes what `install` gave it, and C strings that live through the call.
    let (hooks, action, schema) = unsafe {
        let hooks = hooks(data);
        let in_vacuum = hooks.in_vacuum.get();
        (hooks, Action { code, first: text(first), second: text(second), in_vacuum }, text(schema))
    };
    if hooks.host.get() {
        return ffi::SQLITE_OK;
    }
    if hooks.is_too_deep() {
        hooks.refuse_depth();
        return ffi::SQLITE_DENY;
    }
    // Compiling a statement over many views asks often and calls for progress seldom.
    if hooks.pace() {
        return ffi::SQLITE_DENY;
    }
    if policy::is_personal(&action, schema) {
        hooks.is_personal.set(true);
    }
    if hooks.collecting.get() {
        hooks.gather(&action, !trigger.is_null());
    }
    match policy::decide(action) {
        Verdict::Allow => ffi::SQLITE_OK,
        Verdict::Skip => ffi::SQLITE_IGNORE,
        Verdict::Deny(sentence) => {
            hooks.refuse(sentence);
            ffi::SQLITE_DENY
        }
    }
}

unsafe extern "C" fn progress(data: *mut c_void) -> c_int {
    // SAFETY: SQLite passes what `install` gave it.
    c_int::from(unsafe { hooks(data) }.pace())
}

unsafe extern "C" fn commit(data: *mut c_void) -> c_int {
    // SAFETY: SQLite passes what `install` gave it.
    unsafe { hooks(data) }.note_commit();
    0
}

/// A statement starts, perhaps within another (a full-text index reads its content table so). Chains of them
/// are not seen by the authorizer once compiled, and each level takes stack.
unsafe extern "C" fn start(
    _event: c_uint,
    data: *mut c_void,
    statement: *mut c_void,
    _sql: *mut c_void,
) -> c_int {
    // SAFETY: SQLite passes what `install` gave it, and the statement that starts.
    unsafe {
        let hooks = hooks(data);
        if hooks.is_too_deep() {
            hooks.refuse_depth();
            ffi::sqlite3_interrupt(ffi::sqlite3_db_handle(statement.cast()));
        }
    }
    0
}
