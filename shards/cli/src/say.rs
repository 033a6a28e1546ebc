//! How a command that answers speaks: its answer on stdout, as text or as one JSON object; everything else goes to
//! stderr. Owns the forms of tables, times and sizes.

use std::{
    io::{self, ErrorKind, Write},
    time::Duration,
};

use chrono::{DateTime, SecondsFormat};
use comfy_table::{Table, presets};
use indicatif::{BinaryBytes, ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::exit::{Failure, Status};

/// Writes an answer. A reader that went away has had enough, which is no failure.
///
/// # Errors
/// Stdout cannot be written.
pub fn answer(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(Status::Output, format!("stdout cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes an answer as one JSON object.
///
/// # Errors
/// As [`answer`].
pub fn answer_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::new(Status::Internal, error))?;
    answer(&(text + "\n"))
}

/// Text from the bucket as a terminal may show it: what would move its cursor is replaced.
pub fn plain(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// A table of `rows` under `heads`, columns two spaces apart.
pub fn table<const N: usize>(heads: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(heads)
        .add_rows(rows.into_iter().map(|row| row.map(|cell| plain(&cell))));
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt() + "\n"
}

/// A moment of a wall clock, in UTC.
pub fn time(ms: i64) -> String {
    match DateTime::from_timestamp_millis(ms) {
        Some(time) => time.to_rfc3339_opts(SecondsFormat::Millis, true),
        None => format!("{ms} ms after 1970"),
    }
}

/// Something a person should know beside the answer.
pub fn warning(text: impl std::fmt::Display) {
    // Where nobody reads them, warnings are lost, and nothing else.
    let _ = writeln!(std::io::stderr(), "wasmkeep: warning: {text}");
}

/// A number of bytes.
pub fn size(bytes: u64) -> String {
    BinaryBytes(bytes).to_string()
}

/// `1 file`, `2 files`.
pub fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// A length of time in its largest unit: `979ms`, `2.2s`, `14m`, `3h`, `5d`.
pub fn age(age: Duration) -> String {
    match age.as_secs() {
        0 => format!("{}ms", age.as_millis()),
        1..60 => format!("{:.1}s", age.as_secs_f64()),
        seconds @ 60..3600 => format!("{}m", seconds / 60),
        seconds @ 3600..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// A bar for `bytes` to be read; shown on a terminal only, and never when `quiet`.
pub fn progress(bytes: u64, quiet: bool) -> ProgressBar {
    let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(bytes) };
    let style = ProgressStyle::with_template("{bar:40} {binary_bytes} of {binary_total_bytes}, {eta} left");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_told_in_its_largest_unit() {
        for (ms, text) in [
            (0, "0ms"),
            (979, "979ms"),
            (2_240, "2.2s"),
            (59_900, "59.9s"),
            (60_000, "1m"),
            (14 * 60_000 + 30_000, "14m"),
            (3_600_000, "1h"),
            (47 * 3_600_000, "47h"),
            (48 * 3_600_000, "2d"),
        ] {
            assert_eq!(age(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn a_table_has_columns_two_spaces_apart_and_nothing_behind_the_last() {
        let rows = [["a".to_owned(), "1".to_owned()], ["long".to_owned(), "22".to_owned()]];
        assert_eq!(table(["NODE", "AGE"], rows), "NODE  AGE\na     1\nlong  22\n");
    }

    #[test]
    fn text_from_the_bucket_moves_no_cursor() {
        let rows = [["a\x1b[2J\nb".to_owned()]];
        assert_eq!(table(["NODE"], rows), "NODE\na\u{fffd}[2J\u{fffd}b\n");
    }
}
