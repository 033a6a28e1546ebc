//! The limits one actor's SQL runs under, each with its reason.

use rusqlite::ffi;

/// Rows a whole result may have; beyond it a cursor is the way.
pub const QUERY_ROWS_MAX: usize = 10_000;

/// Bytes a whole result, or one batch of a cursor, may take.
pub const QUERY_BYTES_MAX: usize = 16 << 20;

/// Bytes of one value and of one row.
pub const VALUE_BYTES_MAX: usize = 16 << 20;

/// Bytes of one SQL text.
pub const SQL_BYTES_MAX: usize = 1 << 20;

/// Memory SQLite may hold for one actor while a statement runs, in bytes: a few values at their limit and
/// the page cache. Without it a row of 2,000 random blobs would take the node's memory.
pub const MEMORY_BYTES_MAX: usize = 96 << 20;

/// Prepared statements kept for the next call. An actor's hot path uses a handful; each costs 2 to 4 KiB.
pub const STATEMENTS_CACHED_MAX: usize = 32;

/// Cursors one actor may have open at once.
pub const CURSORS_OPEN_MAX: usize = 64;

/// Virtual-machine operations between two progress checks: 5 to 20 µs of ordinary work, so a slice of
/// 250 µs is overrun by a small part of itself, and a one-row statement is never checked.
pub(crate) const OPERATIONS_PER_CHECK: i32 = 400;

/// Frames in the WAL beyond which a checkpoint is due (4 MiB): recovery after a crash reads all of them.
pub const CHECKPOINT_FRAMES: u32 = 1_000;

/// Frames whose space a WAL keeps after a checkpoint (8 MiB); one that a large transaction made longer gives it back.
pub(crate) const WAL_KEPT_FRAMES: u32 = 2 * CHECKPOINT_FRAMES;

/// Frames in the WAL beyond which closing checkpoints first. Below it the WAL stays beside the database, and
/// the next open reads it in well under a millisecond: an actor that sleeps and wakes costs no fsync.
pub(crate) const CLOSE_CHECKPOINT_FRAMES: u32 = 100;

/// Pages beyond the quota that deletes and the host's own rows may still take: removing a row from a
/// full-text index writes before it frees. 256 KiB.
pub(crate) const RESERVE_PAGES: u32 = 64;

/// SQLite's run-time limits: `(id, name, value)`. The depths keep the deepest statement within the stack
/// it runs on (`run::STACK_BYTES`); the tests go to each of them.
pub(crate) const SQLITE_LIMITS: &[(i32, &str, i32)] = &[
    (ffi::SQLITE_LIMIT_LENGTH, "LENGTH", VALUE_BYTES_MAX as i32),
    (ffi::SQLITE_LIMIT_SQL_LENGTH, "SQL_LENGTH", SQL_BYTES_MAX as i32),
    (ffi::SQLITE_LIMIT_COLUMN, "COLUMN", 500),
    (ffi::SQLITE_LIMIT_EXPR_DEPTH, "EXPR_DEPTH", 500),
    (ffi::SQLITE_LIMIT_PARSER_DEPTH, "PARSER_DEPTH", 2_500),
    (ffi::SQLITE_LIMIT_COMPOUND_SELECT, "COMPOUND_SELECT", 200),
    // A program's instructions are 24 bytes each: 12 MiB.
    (ffi::SQLITE_LIMIT_VDBE_OP, "VDBE_OP", 500_000),
    (ffi::SQLITE_LIMIT_FUNCTION_ARG, "FUNCTION_ARG", 127),
    // VACUUM attaches one database of its own.
    (ffi::SQLITE_LIMIT_ATTACHED, "ATTACHED", 1),
    // Each wildcard is one level of recursion, and matching costs pattern times text.
    (ffi::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, "LIKE_PATTERN_LENGTH", 250),
    (ffi::SQLITE_LIMIT_VARIABLE_NUMBER, "VARIABLE_NUMBER", 32_766),
    (ffi::SQLITE_LIMIT_TRIGGER_DEPTH, "TRIGGER_DEPTH", 200),
    (ffi::SQLITE_LIMIT_TRIGGER_STEPS, "TRIGGER_STEPS", 1_000),
    // Read and parsed at each wake.
    (ffi::SQLITE_LIMIT_SCHEMA, "SCHEMA", 2_000),
    (ffi::SQLITE_LIMIT_WORKER_THREADS, "WORKER_THREADS", 0),
];
