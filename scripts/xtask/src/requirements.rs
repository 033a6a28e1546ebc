//! Keeps docs/requirements.md true: named files exist, and a test listed for an id quotes it.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use anyhow::{Context, Result, bail};

const DOCUMENT: &str = "docs/requirements.md";

/// One row of a table.
struct Row<'a> {
    id: &'a str,
    state: &'a str,
    code: &'a str,
    test: &'a str,
}

/// Fails with every row that is not true.
pub fn check() -> Result<()> {
    let text = fs::read_to_string(DOCUMENT).with_context(|| format!("{DOCUMENT} cannot be read"))?;
    let rows: Vec<Row<'_>> = text.lines().filter_map(row).collect();
    if rows.is_empty() {
        bail!("{DOCUMENT} has no rows");
    }
    let wrong: Vec<String> =
        rows.iter().filter_map(|row| fault(row).map(|fault| format!("{}: {fault}", row.id))).collect();
    if wrong.is_empty() {
        writeln!(
            io::stdout(),
            "{} requirements have the code and the tests that {DOCUMENT} says",
            rows.len()
        )?;
        return Ok(());
    }
    bail!("{}", wrong.join("\n"));
}

fn row(line: &str) -> Option<Row<'_>> {
    let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
    let &[id, _, state, code, test] = cells.as_slice() else { return None };
    id.starts_with("R-").then_some(Row {
        id,
        state,
        code: code.trim_matches('`'),
        test: test.trim_matches('`'),
    })
}

fn fault(row: &Row<'_>) -> Option<String> {
    if !row.code.is_empty() && !Path::new(row.code).exists() {
        return Some(format!("there is no {}", row.code));
    }
    if row.state.starts_with("not yet") {
        return None;
    }
    if row.code.is_empty() || row.test.is_empty() {
        return Some("built without a code or a test named".to_owned());
    }
    match fs::read_to_string(row.test) {
        Err(error) => Some(format!("{}: {error}", row.test)),
        Ok(text) if quotes(&text, row.id) => None,
        Ok(_) => Some(format!("{} does not quote it", row.test)),
    }
}

/// Whether a comment of `text` names `id` and not only a longer one that begins like it.
fn quotes(text: &str, id: &str) -> bool {
    text.lines().filter_map(|line| line.split_once("//")).any(|(_, comment)| {
        comment
            .match_indices(id)
            .any(|(at, _)| !comment[at + id.len()..].starts_with(|c: char| c.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_quoted_whole_and_in_a_comment() {
        assert!(quotes("    // R-FLAG-1, R-FLAG-2", "R-FLAG-2"));
        assert!(quotes("// R-OPS-5.", "R-OPS-5"));
        assert!(!quotes("// R-FLAG-12", "R-FLAG-1"));
        assert!(!quotes("let x = \"R-FLAG-1\";", "R-FLAG-1"));
    }

    #[test]
    fn rows_are_read_from_tables() {
        let row = row("| R-A-1 | says | built | `a.rs` | `b.rs` |").unwrap();
        assert_eq!((row.id, row.state, row.code, row.test), ("R-A-1", "built", "a.rs", "b.rs"));
        assert!(super::row("| Id | Says | State | Code | Test |").is_none());
    }
}
