//! String functions whose built-in form takes time in the product of two lengths.
//!
//! A function runs within one step of SQLite's machine and cannot be suspended; `instr` of a repetitive value in
//! another at the value limit would hold a core for minutes. These give the same answers in linear time.

use std::{
    collections::HashSet,
    ffi::{CStr, c_int, c_void},
    ptr, slice,
};

use memchr::memmem;
use rusqlite::ffi;

use crate::{connection::Connection, limits::VALUE_BYTES_MAX};

type Function = unsafe extern "C" fn(*mut ffi::sqlite3_context, c_int, *mut *mut ffi::sqlite3_value);

const FUNCTIONS: &[(&CStr, c_int, Function)] = &[
    (c"instr", 2, instr),
    (c"replace", 3, replace),
    (c"trim", 2, trim),
    (c"ltrim", 2, ltrim),
    (c"rtrim", 2, rtrim),
];

/// Puts the functions in place of the built-in ones; SQLite's answer.
pub(crate) fn install(connection: &Connection) -> Result<(), c_int> {
    let flags = ffi::SQLITE_UTF8 | ffi::SQLITE_DETERMINISTIC | ffi::SQLITE_INNOCUOUS;
    for (name, arguments, function) in FUNCTIONS {
        // SAFETY: the functions take no state and live as long as the process.
        let code = unsafe {
            ffi::sqlite3_create_function_v2(
                connection.raw(),
                name.as_ptr(),
                *arguments,
                flags,
                ptr::null_mut::<c_void>(),
                Some(*function),
                None,
                None,
                None,
            )
        };
        if code != ffi::SQLITE_OK {
            return Err(code);
        }
    }
    Ok(())
}

/// Kind of the argument at `index`.
///
/// # Safety
/// Called by SQLite's function call that `arguments` belong to, with an index below their count.
unsafe fn kind(arguments: *mut *mut ffi::sqlite3_value, index: usize) -> c_int {
    // SAFETY: as above.
    unsafe { ffi::sqlite3_value_type(*arguments.add(index)) }
}

/// The argument at `index` as text, or as it is if `raw`; `None` for NULL or when there is no memory for it.
///
/// # Safety
/// As for [`kind`]; the slice is used before the call returns and before the argument is read in another form.
unsafe fn bytes<'a>(arguments: *mut *mut ffi::sqlite3_value, index: usize, raw: bool) -> Option<&'a [u8]> {
    // SAFETY: as above; the length is asked after the pointer.
    unsafe {
        let value = *arguments.add(index);
        if ffi::sqlite3_value_type(value) == ffi::SQLITE_NULL {
            return None;
        }
        let start =
            if raw { ffi::sqlite3_value_blob(value).cast::<u8>() } else { ffi::sqlite3_value_text(value) };
        let length = ffi::sqlite3_value_bytes(value) as usize;
        if start.is_null() {
            return (length == 0).then_some(&[]);
        }
        Some(slice::from_raw_parts(start, length))
    }
}

/// # Safety
/// `context` is that of the running function call.
unsafe fn answer_text(context: *mut ffi::sqlite3_context, text: &[u8]) {
    // SAFETY: SQLite copies the text.
    unsafe {
        ffi::sqlite3_result_text64(
            context,
            text.as_ptr().cast(),
            text.len() as u64,
            ffi::SQLITE_TRANSIENT(),
            ffi::SQLITE_UTF8 as u8,
        );
    }
}

/// Whether a byte begins a character.
fn begins(byte: u8) -> bool {
    byte & 0xc0 != 0x80
}

unsafe extern "C" fn instr(
    context: *mut ffi::sqlite3_context,
    _: c_int,
    arguments: *mut *mut ffi::sqlite3_value,
) {
    // SAFETY: SQLite calls with two arguments.
    unsafe {
        let raw = kind(arguments, 0) == ffi::SQLITE_BLOB && kind(arguments, 1) == ffi::SQLITE_BLOB;
        let (Some(hay), Some(needle)) = (bytes(arguments, 0, raw), bytes(arguments, 1, raw)) else { return };
        let at = match memmem::find(hay, needle) {
            None => 0,
            Some(at) if raw => at + 1,
            Some(at) => hay[..at].iter().filter(|byte| begins(**byte)).count() + 1,
        };
        ffi::sqlite3_result_int64(context, at as i64);
    }
}

unsafe extern "C" fn replace(
    context: *mut ffi::sqlite3_context,
    _: c_int,
    arguments: *mut *mut ffi::sqlite3_value,
) {
    // SAFETY: SQLite calls with three arguments.
    unsafe {
        let (Some(text), Some(from)) = (bytes(arguments, 0, false), bytes(arguments, 1, false)) else {
            return;
        };
        if from.is_empty() || from[0] == 0 {
            answer_text(context, text);
            return;
        }
        let Some(to) = bytes(arguments, 2, false) else { return };
        let mut replaced = Vec::with_capacity(text.len());
        let mut rest = 0;
        for at in memmem::find_iter(text, from) {
            replaced.extend_from_slice(&text[rest..at]);
            replaced.extend_from_slice(to);
            rest = at + from.len();
            if replaced.len() > VALUE_BYTES_MAX {
                ffi::sqlite3_result_error_toobig(context);
                return;
            }
        }
        replaced.extend_from_slice(&text[rest..]);
        answer_text(context, &replaced);
    }
}

/// The characters of `text`, split as SQLite does: at each byte that begins one.
fn characters(text: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    text.chunk_by(|_, next| !begins(*next))
}

/// # Safety
/// Called by SQLite with two arguments.
unsafe fn strip(
    context: *mut ffi::sqlite3_context,
    arguments: *mut *mut ffi::sqlite3_value,
    left: bool,
    right: bool,
) {
    // SAFETY: as above.
    unsafe {
        let (Some(text), Some(set)) = (bytes(arguments, 0, false), bytes(arguments, 1, false)) else {
            return;
        };
        let set: HashSet<&[u8]> = characters(set).collect();
        let length = |count: &mut dyn Iterator<Item = &[u8]>| {
            count.take_while(|character| set.contains(character)).map(<[u8]>::len).sum::<usize>()
        };
        let text = if left { &text[length(&mut characters(text))..] } else { text };
        let text = if right { &text[..text.len() - length(&mut characters(text).rev())] } else { text };
        answer_text(context, text);
    }
}

unsafe extern "C" fn trim(
    context: *mut ffi::sqlite3_context,
    _: c_int,
    arguments: *mut *mut ffi::sqlite3_value,
) {
    // SAFETY: SQLite calls with two arguments.
    unsafe { strip(context, arguments, true, true) }
}

unsafe extern "C" fn ltrim(
    context: *mut ffi::sqlite3_context,
    _: c_int,
    arguments: *mut *mut ffi::sqlite3_value,
) {
    // SAFETY: SQLite calls with two arguments.
    unsafe { strip(context, arguments, true, false) }
}

unsafe extern "C" fn rtrim(
    context: *mut ffi::sqlite3_context,
    _: c_int,
    arguments: *mut *mut ffi::sqlite3_value,
) {
    // SAFETY: SQLite calls with two arguments.
    unsafe { strip(context, arguments, false, true) }
}

#[cfg(test)]
mod tests;
