//! One prepared statement: compiled, bound, stepped, read.

use std::{
    ffi::{CStr, c_int},
    ptr::{self, NonNull},
    slice,
};

use rusqlite::ffi;

use crate::{
    connection::Connection,
    error::Error,
    hooks::Facts,
    policy::{self, Boundary},
    value::Value,
};

/// A prepared statement. It must be dropped before its connection is closed and on the thread that uses it.
pub(crate) struct Statement {
    raw: NonNull<ffi::sqlite3_stmt>,
    pub(crate) boundary: Boundary,
    /// It only frees space: it may use the reserve beyond the quota.
    pub(crate) shrinks: bool,
    pub(crate) is_vacuum: bool,
    alters: bool,
}

/// What [`Statement::prepare`] found at the start of a text.
pub(crate) struct Prepared {
    /// `None` when there was nothing but blanks and comments.
    pub(crate) statement: Option<Statement>,
    /// Length of the text that was used.
    pub(crate) used: usize,
}

impl Statement {
    /// Whether it does nothing but read and write rows.
    pub(crate) fn is_of_rows(&self, sql: &str) -> bool {
        let word = first_word(sql);
        let words = ["SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH"];
        self.boundary == Boundary::None && words.iter().any(|other| word.eq_ignore_ascii_case(other))
    }

    /// Compiles the first statement of `sql`, asking the policy unless the host's own SQL runs.
    pub(crate) fn prepare(connection: &Connection, sql: &str) -> Result<Prepared, Error> {
        if sql.as_bytes().contains(&0) {
            return Err(Error::refused("the SQL text holds a NUL character"));
        }
        let hooks = &connection.hooks;
        hooks.facts.set(Facts::default());
        hooks.refusal.take();
        hooks.collecting.set(true);
        hooks.compiles.set(true);
        let (mut raw, mut tail) = (ptr::null_mut(), ptr::null());
        let length = c_int::try_from(sql.len()).unwrap_or(c_int::MAX);
        let flags = ffi::SQLITE_PREPARE_PERSISTENT;
        // SAFETY: the text is `length` bytes long; the out parameters live here.
        let code = unsafe {
            ffi::sqlite3_prepare_v3(
                connection.raw(),
                sql.as_ptr().cast(),
                length,
                flags,
                &raw mut raw,
                &raw mut tail,
            )
        };
        hooks.collecting.set(false);
        hooks.compiles.set(false);
        if code != ffi::SQLITE_OK {
            return Err(connection.error(code));
        }
        let used = if tail.is_null() { sql.len() } else { tail.addr() - sql.as_ptr().addr() };
        let Some(raw) = NonNull::new(raw) else { return Ok(Prepared { statement: None, used }) };
        let facts = hooks.facts.get();
        // SAFETY: the statement was just made.
        let explains = unsafe { ffi::sqlite3_stmt_isexplain(raw.as_ptr()) } != 0;
        let statement = Self {
            raw,
            boundary: if explains { Boundary::None } else { facts.boundary },
            shrinks: facts.deletes && !facts.grows,
            alters: facts.alters,
            is_vacuum: !explains && first_word(sql).eq_ignore_ascii_case("VACUUM"),
        };
        if facts.alters && !hooks.host.get() && policy::mentions_reserved(sql) {
            return Err(Error::Refused(policy::reserved_sentence()));
        }
        if connection.in_init.get() && !hooks.host.get() && policy::depends_on_moment(&sql[..used]) {
            hooks.depends_on_moment.set(true);
        }
        Ok(Prepared { statement: Some(statement), used })
    }

    /// Binds `params`, which must stay where they are until [`Statement::reset`].
    ///
    /// # Safety
    /// The values are not moved, changed or dropped before the statement is reset or dropped.
    pub(crate) unsafe fn bind(&self, connection: &Connection, params: &[Value]) -> Result<(), Error> {
        // SAFETY: the statement lives.
        let wanted = unsafe { ffi::sqlite3_bind_parameter_count(self.raw.as_ptr()) };
        if wanted as usize != params.len() {
            return Err(Error::refused(format!(
                "the statement takes {wanted} parameters and was given {}",
                params.len()
            )));
        }
        for (index, value) in (1..).zip(params) {
            // SAFETY: the caller keeps the values in place.
            let code = unsafe { self.bind_one(index, value) }?;
            if code != ffi::SQLITE_OK {
                return Err(connection.error(code));
            }
        }
        Ok(())
    }

    /// # Safety
    /// As for [`Statement::bind`].
    unsafe fn bind_one(&self, index: c_int, value: &Value) -> Result<c_int, Error> {
        let raw = self.raw.as_ptr();
        // SAFETY: the caller keeps text and bytes in place while they are bound; an empty slice's pointer is
        // not null, so an empty blob stays a blob.
        Ok(unsafe {
            match value {
                Value::Null => ffi::sqlite3_bind_null(raw, index),
                Value::Integer(number) => ffi::sqlite3_bind_int64(raw, index, *number),
                Value::Real(number) if number.is_nan() => {
                    return Err(Error::refused(format!(
                        "parameter {index} is NaN, which SQLite cannot store"
                    )));
                }
                Value::Real(number) => ffi::sqlite3_bind_double(raw, index, *number),
                Value::Text(text) => ffi::sqlite3_bind_text64(
                    raw,
                    index,
                    text.as_ptr().cast(),
                    text.len() as u64,
                    ffi::SQLITE_STATIC(),
                    ffi::SQLITE_UTF8 as u8,
                ),
                Value::Blob(bytes) => ffi::sqlite3_bind_blob64(
                    raw,
                    index,
                    bytes.as_ptr().cast(),
                    bytes.len() as u64,
                    ffi::SQLITE_STATIC(),
                ),
            }
        })
    }

    /// Goes to the next row; `false` at the end.
    pub(crate) fn step(&self, connection: &Connection) -> Result<bool, Error> {
        connection.hooks.in_vacuum.set(self.is_vacuum);
        connection.hooks.compiles.set(self.alters);
        // SAFETY: the statement lives.
        let code = unsafe { ffi::sqlite3_step(self.raw.as_ptr()) };
        connection.hooks.in_vacuum.set(false);
        connection.hooks.compiles.set(false);
        match code {
            ffi::SQLITE_ROW => Ok(true),
            ffi::SQLITE_DONE => Ok(false),
            _ => Err(connection.error(code)),
        }
    }

    /// Ends the statement where it is and forgets its parameters.
    pub(crate) fn reset(&self) {
        // SAFETY: the statement lives. The code repeats what the last step said.
        unsafe {
            ffi::sqlite3_reset(self.raw.as_ptr());
            ffi::sqlite3_clear_bindings(self.raw.as_ptr());
        }
    }

    /// Whether it leaves the database as it is (a transaction statement does, too).
    pub(crate) fn is_readonly(&self) -> bool {
        // SAFETY: the statement lives.
        unsafe { ffi::sqlite3_stmt_readonly(self.raw.as_ptr()) != 0 }
    }

    pub(crate) fn column_count(&self) -> usize {
        // SAFETY: the statement lives.
        unsafe { ffi::sqlite3_column_count(self.raw.as_ptr()) as usize }
    }

    /// Column names; what is not UTF-8 in them is replaced.
    pub(crate) fn columns(&self) -> Vec<String> {
        (0..self.column_count())
            .map(|index| {
                // SAFETY: the statement lives and the index is within its columns.
                let name = unsafe { ffi::sqlite3_column_name(self.raw.as_ptr(), index as c_int) };
                if name.is_null() {
                    return String::new();
                }
                // SAFETY: SQLite's name is a C string that lives until the next call about this column.
                unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
            })
            .collect()
    }

    /// The current row.
    pub(crate) fn row(&self) -> Result<Vec<Value>, Error> {
        (0..self.column_count()).map(|index| self.value(index as c_int)).collect()
    }

    fn value(&self, index: c_int) -> Result<Value, Error> {
        let raw = self.raw.as_ptr();
        // SAFETY: the statement stands on a row and the index is within it.
        unsafe {
            Ok(match ffi::sqlite3_column_type(raw, index) {
                ffi::SQLITE_INTEGER => Value::Integer(ffi::sqlite3_column_int64(raw, index)),
                ffi::SQLITE_FLOAT => Value::Real(ffi::sqlite3_column_double(raw, index)),
                ffi::SQLITE_TEXT => {
                    let start = ffi::sqlite3_column_text(raw, index);
                    match String::from_utf8(self.bytes(index, start)?) {
                        Ok(text) => Value::Text(text),
                        Err(error) => Value::Blob(error.into_bytes()),
                    }
                }
                ffi::SQLITE_BLOB => {
                    let start = ffi::sqlite3_column_blob(raw, index);
                    Value::Blob(self.bytes(index, start.cast())?)
                }
                _ => Value::Null,
            })
        }
    }

    /// # Safety
    /// `start` is what SQLite answered for this column of the current row.
    unsafe fn bytes(&self, index: c_int, start: *const u8) -> Result<Vec<u8>, Error> {
        // SAFETY: as above; the length is asked after the pointer, as SQLite's manual wants it.
        unsafe {
            let length = ffi::sqlite3_column_bytes(self.raw.as_ptr(), index) as usize;
            if !start.is_null() {
                return Ok(slice::from_raw_parts(start, length).to_vec());
            }
            // A null pointer is an empty blob, or a value there was no memory for.
            let connection = ffi::sqlite3_db_handle(self.raw.as_ptr());
            if ffi::sqlite3_errcode(connection) == ffi::SQLITE_NOMEM {
                return Err(crate::connection::no_memory());
            }
            Ok(Vec::new())
        }
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        // SAFETY: made by prepare and finalized once, here.
        unsafe { ffi::sqlite3_finalize(self.raw.as_ptr()) };
    }
}

/// `sql` without the blanks, comments and semicolons it begins with.
pub(crate) fn skip_blanks(sql: &str) -> &str {
    let mut rest = sql;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', '\r', '\x0c', ';', '\u{feff}']);
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.split_once('\n').map_or("", |(_, after)| after);
        } else if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.split_once("*/").map_or("", |(_, after)| after);
        } else {
            return rest;
        }
    }
}

fn first_word(sql: &str) -> &str {
    let start = skip_blanks(sql);
    let end = start.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(start.len());
    &start[..end]
}
