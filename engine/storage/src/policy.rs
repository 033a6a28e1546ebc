//! What guest SQL may ask for: a decision on each action SQLite reports while it compiles a statement.
//!
//! Pure: it reads the action and answers. The file has one owner and one replica, so whatever would change
//! how it is written, reach another file or outlive the connection is refused, with a sentence for the
//! author of the guest.

use std::ffi::c_int;

use rusqlite::ffi;

/// Names that begin so, in any case, belong to the platform: guests can neither touch nor make them.
pub(crate) const RESERVED_PREFIX: &str = "_wasmkeep";

/// An action as SQLite reports it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Action<'a> {
    pub(crate) code: c_int,
    pub(crate) first: Option<&'a str>,
    pub(crate) second: Option<&'a str>,
    /// Whether SQLite's own VACUUM is being carried out; its parts come through the same door.
    pub(crate) in_vacuum: bool,
}

/// The answer to an action.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allow,
    /// SQLite leaves the object out without an error.
    Skip,
    /// The sentence says why.
    Deny(String),
}

/// A statement that opens, ends or marks a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Boundary {
    /// An ordinary statement.
    #[default]
    None,
    Begin,
    Commit,
    Rollback,
    /// SAVEPOINT, RELEASE or ROLLBACK TO.
    Savepoint,
}

/// Pragmas that only answer, with or without an argument.
const PRAGMAS_ASKING: &[&str] = &[
    "analysis_limit",
    "collation_list",
    "compile_options",
    "data_version",
    "foreign_key_check",
    "foreign_key_list",
    "freelist_count",
    "function_list",
    "incremental_vacuum",
    "index_info",
    "index_list",
    "index_xinfo",
    "integrity_check",
    "module_list",
    "optimize",
    "page_count",
    "pragma_list",
    "quick_check",
    "shrink_memory",
    "table_info",
    "table_list",
    "table_xinfo",
];

/// Pragmas a guest may set too: they change its own data or how its own statements run, until the actor sleeps.
const PRAGMAS_SETTABLE: &[&str] = &[
    "application_id",
    "auto_vacuum",
    "automatic_index",
    "case_sensitive_like",
    "cell_size_check",
    "defer_foreign_keys",
    "foreign_keys",
    "ignore_check_constraints",
    "recursive_triggers",
    "reverse_unordered_selects",
    "secure_delete",
    "user_version",
];

/// Pragmas a guest may read and not set.
const PRAGMAS_READABLE: &[&str] = &[
    "cache_size",
    "encoding",
    "journal_mode",
    "locking_mode",
    "max_page_count",
    "page_size",
    "schema_version",
    "synchronous",
    "temp_store",
    "trusted_schema",
];

/// Decides on one action.
pub(crate) fn decide(action: Action<'_>) -> Verdict {
    if action.in_vacuum {
        // The copy VACUUM makes goes to a nameless temporary file. INTO gives a name.
        if action.code == ffi::SQLITE_ATTACH && action.first.is_some_and(|file| !file.is_empty()) {
            return deny("VACUUM INTO is not available: an actor has no files");
        }
        return Verdict::Allow;
    }
    match action.code {
        ffi::SQLITE_ATTACH | ffi::SQLITE_DETACH => {
            deny("ATTACH and DETACH are not available: an actor has one database")
        }
        ffi::SQLITE_PRAGMA => pragma(action.first.unwrap_or_default(), action.second),
        ffi::SQLITE_FUNCTION if is_any(action.second, &["load_extension", "fts3_tokenizer"]) => {
            deny("loading extensions is not available")
        }
        ffi::SQLITE_ANALYZE if is_reserved(action.first) => Verdict::Skip,
        _ => named(action),
    }
}

/// Refuses what touches or makes an object with a reserved name.
fn named(action: Action<'_>) -> Verdict {
    let reserved = match action.code {
        ffi::SQLITE_CREATE_INDEX
        | ffi::SQLITE_CREATE_TEMP_INDEX
        | ffi::SQLITE_CREATE_TRIGGER
        | ffi::SQLITE_CREATE_TEMP_TRIGGER
        | ffi::SQLITE_DROP_INDEX
        | ffi::SQLITE_DROP_TEMP_INDEX
        | ffi::SQLITE_DROP_TRIGGER
        | ffi::SQLITE_DROP_TEMP_TRIGGER
        | ffi::SQLITE_ALTER_TABLE => is_reserved(action.first) || is_reserved(action.second),
        ffi::SQLITE_READ
        | ffi::SQLITE_INSERT
        | ffi::SQLITE_UPDATE
        | ffi::SQLITE_DELETE
        | ffi::SQLITE_CREATE_TABLE
        | ffi::SQLITE_CREATE_TEMP_TABLE
        | ffi::SQLITE_CREATE_VIEW
        | ffi::SQLITE_CREATE_TEMP_VIEW
        | ffi::SQLITE_CREATE_VTABLE
        | ffi::SQLITE_DROP_TABLE
        | ffi::SQLITE_DROP_TEMP_TABLE
        | ffi::SQLITE_DROP_VIEW
        | ffi::SQLITE_DROP_TEMP_VIEW
        | ffi::SQLITE_DROP_VTABLE => is_reserved(action.first),
        _ => false,
    };
    if reserved { deny_reserved() } else { Verdict::Allow }
}

/// The answer to a reserved name.
pub(crate) fn reserved_sentence() -> String {
    format!("names that begin with {RESERVED_PREFIX} belong to the platform")
}

fn deny_reserved() -> Verdict {
    Verdict::Deny(reserved_sentence())
}

fn pragma(name: &str, argument: Option<&str>) -> Verdict {
    if is_any(Some(name), PRAGMAS_ASKING) || is_any(Some(name), PRAGMAS_SETTABLE) {
        return Verdict::Allow;
    }
    if is_any(Some(name), PRAGMAS_READABLE) {
        return match argument {
            None => Verdict::Allow,
            Some(_) => {
                Verdict::Deny(format!("PRAGMA {name} can be read but not set: the platform decides it"))
            }
        };
    }
    Verdict::Deny(format!("PRAGMA {name} is not available"))
}

/// Whether an action may leave something in the connection that no file holds: a temporary object, or a setting.
/// `schema` is the database it concerns.
pub(crate) fn is_personal(action: &Action<'_>, schema: Option<&str>) -> bool {
    schema == Some("temp") || (action.code == ffi::SQLITE_PRAGMA && action.second.is_some())
}

/// What a transaction statement does, from the word SQLite reports.
pub(crate) fn boundary(action: &Action<'_>) -> Boundary {
    match (action.code, action.first) {
        (ffi::SQLITE_SAVEPOINT, _) => Boundary::Savepoint,
        (ffi::SQLITE_TRANSACTION, Some("BEGIN")) => Boundary::Begin,
        (ffi::SQLITE_TRANSACTION, Some("COMMIT")) => Boundary::Commit,
        (ffi::SQLITE_TRANSACTION, Some("ROLLBACK")) => Boundary::Rollback,
        _ => Boundary::None,
    }
}

/// Whether `sql` holds the reserved prefix anywhere. ALTER TABLE reports the old name only, so a statement
/// that renames is judged by its text; an identifier cannot be written so that its letters do not appear.
pub(crate) fn mentions_reserved(sql: &str) -> bool {
    sql.as_bytes()
        .windows(RESERVED_PREFIX.len())
        .any(|window| window.eq_ignore_ascii_case(RESERVED_PREFIX.as_bytes()))
}

/// Names by which SQL asks for the time or for chance.
const WORDS_OF_THE_MOMENT: &[&str] = &[
    "current_date",
    "current_time",
    "current_timestamp",
    "date",
    "datetime",
    "julianday",
    "random",
    "randomblob",
    "strftime",
    "time",
    "timediff",
    "unixepoch",
];

/// Whether a statement, or what it defines, may come out otherwise at another moment. It says so for other uses of
/// such a name too: whatever is asked for has to be named, in a default, a trigger and a view as well.
pub(crate) fn depends_on_moment(sql: &str) -> bool {
    let mut words = sql.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.any(|word| is_any(Some(word), WORDS_OF_THE_MOMENT))
}

fn is_reserved(name: Option<&str>) -> bool {
    name.and_then(|name| name.get(..RESERVED_PREFIX.len()))
        .is_some_and(|start| start.eq_ignore_ascii_case(RESERVED_PREFIX))
}

fn is_any(name: Option<&str>, list: &[&str]) -> bool {
    name.is_some_and(|name| list.iter().any(|known| known.eq_ignore_ascii_case(name)))
}

fn deny(sentence: &str) -> Verdict {
    Verdict::Deny(sentence.to_owned())
}
