//! How much of the stack the deepest statements use. The integration tests go to every limit; these put figures
//! on the worst of them.

use std::task::{Context, Waker};

use super::*;
use crate::{Config, Database, Pacer};

/// Polls to the end.
fn wait<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
    }
}

/// Bytes of stack `work` touched, from a stack nothing touched before.
fn stack_used(work: impl FnOnce()) -> usize {
    STACKS.with_borrow_mut(Vec::clear);
    work();
    STACKS.with_borrow(|stacks| {
        let stack = stacks.last().expect("the stack came back");
        // The lowest page is the guard.
        let bottom = stack.limit().get() + 4096;
        let top = stack.base().get();
        // SAFETY: the memory between is the stack's, mapped and idle.
        let bytes = unsafe { std::slice::from_raw_parts(bottom as *const u8, top - bottom) };
        bytes.iter().position(|byte| *byte != 0).map_or(0, |untouched| bytes.len() - untouched)
    })
}

fn nest(open: &str, core: &str, close: &str, depth: usize) -> String {
    format!("{}{core}{}", open.repeat(depth), close.repeat(depth))
}

#[test]
fn the_deepest_statements_leave_the_reserve_untouched() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = Config { pacer: Pacer::checks(u32::MAX), ..Config::default() };
    let database = Database::open(&folder.path().join("x.db"), &config).expect("a database");
    wait(database.exec_script(
        "CREATE TABLE t(a, b); INSERT INTO t VALUES(1, 2); CREATE VIRTUAL TABLE f USING fts5(x)",
    ))
    .expect("a schema");
    let mut chain = String::from("CREATE TABLE t0(x);");
    for number in 1..=199 {
        let before = number - 1;
        chain += &format!(
            "CREATE TABLE t{number}(x); CREATE TRIGGER g{number} AFTER INSERT ON t{before} BEGIN INSERT INTO t{number} SELECT new.x FROM (SELECT DISTINCT 1); END;"
        );
    }
    wait(database.exec_script(&chain)).expect("a chain of triggers");
    let mut worst = 0;
    for (what, sql) in [
        ("a plain statement", "INSERT INTO t VALUES(1, 2)".to_owned()),
        ("nested functions", format!("SELECT {} FROM t", nest("coalesce(a, ", "b", ")", 490))),
        ("a long sum", format!("SELECT 1 FROM t WHERE {}", vec!["a"; 499].join(" + "))),
        ("a long OR", format!("SELECT 1 FROM t WHERE {}", vec!["a = 1"; 490].join(" OR "))),
        ("nested CASE", format!("SELECT {} FROM t", nest("CASE WHEN ", "a", " THEN b ELSE 0 END", 490))),
        ("nested EXISTS", format!("SELECT {}", nest("EXISTS(SELECT a FROM t WHERE ", "1", ")", 150))),
        ("nested scalars", format!("SELECT {}", nest("(SELECT max(a) + ", "1", " FROM t)", 150))),
        ("nested FROM", nest("SELECT DISTINCT * FROM (", "SELECT a FROM t", ") ORDER BY 1 LIMIT 5", 400)),
        ("nested WITH", nest("WITH c AS (", "SELECT 1", ") SELECT * FROM c", 400)),
        ("compound", vec!["SELECT a FROM t"; 200].join(" EXCEPT ")),
        ("nested joins", format!("SELECT 1 FROM {}", nest("(t NATURAL JOIN ", "t", ")", 60))),
        ("LIKE", format!("SELECT '{}' LIKE '{}'", "a".repeat(5000), "%a".repeat(125))),
        ("JSON", format!("SELECT json_pretty(json_patch('{0}', '{0}'))", nest("{\"a\":", "1", "}", 990))),
        ("a full-text query", format!("SELECT * FROM f('{}')", nest("(x OR ", "x", ")", 200))),
        ("a chain of triggers", "INSERT INTO t0 VALUES(1)".to_owned()),
    ] {
        let mut outcome = String::new();
        let used = stack_used(|| {
            outcome = match wait(database.query(&sql, vec![])) {
                Ok(_) => "ran".to_owned(),
                Err(error) => error.to_string(),
            };
        });
        println!("{what}: {} KiB, {outcome}", used >> 10);
        assert!(used > 0, "{what}");
        worst = worst.max(used);
    }
    assert!(worst < STACK_BYTES - (256 << 10), "{worst} of {STACK_BYTES} bytes");
}
