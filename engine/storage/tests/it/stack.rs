//! No guest SQL overflows the stack it runs on: each kind of nesting is driven to its limit and past it. An
//! overflow would end this process with a signal, so getting to the end is the assertion, next to the answer.

use std::task::{Context, Poll, Waker};

use wasmkeep_storage::{Error, Value};

use crate::rig::{Rig, wait};

/// Slices after which a statement is dropped: some are no deeper than others and take seconds.
const SLICES_MAX: usize = 400;

/// Runs `sql` and says whether it was taken; the connection must go on either way.
fn survives(rig: &Rig, what: &str, sql: &str) -> bool {
    let result = {
        let mut query = std::pin::pin!(rig.db.query(sql, vec![]));
        let mut context = Context::from_waker(Waker::noop());
        (0..SLICES_MAX).find_map(|_| match query.as_mut().poll(&mut context) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        })
    };
    let Some(result) = result else {
        assert_eq!(rig.number("SELECT 7"), 7, "{what}");
        return false;
    };
    assert_eq!(rig.number("SELECT 7"), 7, "{what}");
    match result {
        Ok(_) => true,
        Err(Error::Sqlite(_) | Error::Refused(_)) => false,
        Err(other) => panic!("{what}: {other:?}"),
    }
}

/// Makes a statement of growing depth until it is refused; the greatest depth that ran.
fn deepest(rig: &Rig, what: &str, make: impl Fn(usize) -> String) -> usize {
    let mut ran = 0;
    for depth in [1, 5, 20, 50, 90, 120, 180, 199, 250, 400, 499, 700, 990, 2_000, 5_000, 20_000] {
        let sql = make(depth);
        if sql.len() > 900_000 {
            break;
        }
        if survives(rig, what, &sql) {
            ran = depth;
        }
    }
    println!("{what}: {ran}");
    assert!(ran > 0, "{what}: nothing ran");
    ran
}

fn nest(open: &str, core: &str, close: &str, depth: usize) -> String {
    format!("{}{core}{}", open.repeat(depth), close.repeat(depth))
}

#[test]
fn expressions() {
    let rig = Rig::new();
    rig.script("CREATE TABLE t(a, b); CREATE INDEX i ON t(a)").unwrap();
    for (what, open, core, close) in [
        ("parentheses", "(", "1", ")"),
        ("not", "NOT ", "1", ""),
        ("minus", "- ", "1", ""),
        ("tilde", "~", "a", ""),
        ("functions", "abs(", "1", ")"),
        ("coalesce", "coalesce(NULL, ", "1", ")"),
        ("case", "CASE WHEN ", "1", " THEN 1 ELSE 0 END"),
        ("cast", "CAST(", "1", " AS INTEGER)"),
        ("exists", "EXISTS(SELECT 1 WHERE ", "1", ")"),
        ("scalar subquery", "(SELECT ", "1", ")"),
        ("in subquery", "1 IN (SELECT ", "1", ")"),
        ("in list", "1 IN (", "1", ", 2)"),
        ("between", "1 BETWEEN ", "0", " AND 1"),
        ("collate", "('a' || ", "'b'", " COLLATE NOCASE)"),
        ("json", "json_array(", "1", ")"),
        ("row value", "((1, 2) = (1, ", "2", "))"),
        ("correlated", "(SELECT a + ", "a", " FROM t x)"),
        ("window", "(SELECT sum(", "1", ") OVER ())"),
        ("aggregate filter", "(SELECT count(*) FILTER (WHERE ", "1", "))"),
    ] {
        deepest(&rig, what, |depth| format!("SELECT {} FROM t", nest(open, core, close, depth)));
        deepest(&rig, what, |depth| format!("SELECT 1 FROM t WHERE {}", nest(open, core, close, depth)));
        deepest(&rig, what, |depth| format!("SELECT 1 FROM t ORDER BY {}", nest(open, core, close, depth)));
    }
    for operator in [" + ", " || ", " AND ", " OR ", " = ", " -> ", " COLLATE NOCASE + ", " IS NOT "] {
        deepest(&rig, operator, |depth| format!("SELECT {} FROM t", vec!["a"; depth].join(operator)));
        deepest(&rig, operator, |depth| format!("SELECT 1 FROM t WHERE {}", vec!["a"; depth].join(operator)));
        deepest(&rig, operator, |depth| {
            format!(
                "SELECT 1 FROM t WHERE {}",
                nest("(a + ", "1", ")", depth.min(150)) + &format!("{operator}b").repeat(depth)
            )
        });
    }
}

#[test]
fn queries() {
    let rig = Rig::new();
    rig.script("CREATE TABLE t(a, b)").unwrap();
    deepest(&rig, "from", |depth| nest("SELECT * FROM (", "SELECT 1", ")", depth));
    deepest(&rig, "from with work", |depth| {
        nest("SELECT a, count(*) FROM (", "SELECT a FROM t", ") GROUP BY a ORDER BY a LIMIT 9", depth)
    });
    deepest(&rig, "parenthesised joins", |depth| {
        format!("SELECT 1 FROM {}", nest("(t NATURAL JOIN ", "t", ")", depth))
    });
    deepest(&rig, "joins", |depth| {
        format!("SELECT 1 FROM {}", (0..depth).map(|n| format!("t t{n}")).collect::<Vec<_>>().join(", "))
    });
    deepest(&rig, "compound", |depth| vec!["SELECT 1"; depth].join(" UNION "));
    deepest(&rig, "compound all", |depth| vec!["SELECT a FROM t"; depth].join(" UNION ALL "));
    deepest(&rig, "except ordered", |depth| vec!["SELECT a FROM t"; depth].join(" EXCEPT ") + " ORDER BY 1");
    deepest(&rig, "values", |depth| format!("VALUES {}", vec!["(1)"; depth].join(", ")));
    deepest(&rig, "nested with", |depth| nest("WITH c AS (", "SELECT 1", ") SELECT * FROM c", depth));
    deepest(&rig, "chained with", |depth| {
        let chain: String = (1..=depth).map(|n| format!(", c{n} AS (SELECT * FROM c{})", n - 1)).collect();
        format!("WITH c0 AS (SELECT 1){chain} SELECT * FROM c{depth}")
    });
    deepest(&rig, "chained with, materialized", |depth| {
        let chain: String = (1..=depth)
            .map(|n| format!(", c{n} AS MATERIALIZED (SELECT * FROM c{} ORDER BY 1)", n - 1))
            .collect();
        format!("WITH c0 AS (SELECT 1){chain} SELECT * FROM c{depth}")
    });
    deepest(&rig, "compound in from", |depth| {
        nest("SELECT * FROM (SELECT 1 UNION ALL ", "SELECT 1", ")", depth)
    });
    deepest(&rig, "recursive in recursive", |depth| {
        nest(
            "WITH RECURSIVE r(n) AS (SELECT 1 UNION SELECT n FROM r WHERE n IN (",
            "SELECT 1",
            ")) SELECT n FROM r",
            depth,
        )
    });
    deepest(&rig, "explain", |depth| {
        format!("EXPLAIN QUERY PLAN {}", nest("SELECT * FROM (", "SELECT 1", " UNION SELECT 2)", depth))
    });
}

/// Builds a chain link by link until one is refused or `max` is reached; its length.
fn chain(rig: &Rig, what: &str, max: usize, link: impl Fn(usize) -> String) -> usize {
    rig.exec("BEGIN").unwrap();
    let mut length = 0;
    for number in 1..=max {
        if let Err(error) = rig.script(&link(number)) {
            println!("{what}: link {number}: {error}");
            break;
        }
        length = number;
    }
    if rig.db.in_transaction() {
        rig.exec("COMMIT").unwrap();
    }
    assert!(length > 10, "{what}");
    length
}

#[test]
fn views_of_views() {
    for (what, select) in [
        ("views", "SELECT * FROM v{}"),
        ("views of joins", "SELECT a.x FROM v{} a JOIN v0 b ON a.x = b.x"),
        ("views that sort", "SELECT DISTINCT x FROM v{} ORDER BY x LIMIT 5"),
        ("views of unions", "SELECT x FROM v{} UNION SELECT 5"),
        ("views of subqueries", "SELECT (SELECT max(x) FROM v{}) AS x"),
    ] {
        let rig = Rig::new();
        rig.script("CREATE TABLE t(x); INSERT INTO t VALUES(1); CREATE VIEW v0 AS SELECT * FROM t").unwrap();
        let length = chain(&rig, what, 600, |number| {
            format!("CREATE VIEW v{number} AS {}", select.replace("{}", &(number - 1).to_string()))
        });
        let mut ran = 0;
        for at in (0..=length).step_by(97) {
            if survives(&rig, what, &format!("SELECT count(*) FROM v{at}")) {
                ran = at;
            }
        }
        println!("{what}: {ran} of {length}");
        survives(&rig, what, &format!("SELECT * FROM v{length}"));
        survives(&rig, what, "ALTER TABLE t RENAME COLUMN x TO y");
        survives(&rig, what, "ALTER TABLE t ADD COLUMN z");
        let rig = rig.reopen();
        survives(&rig, what, &format!("SELECT * FROM v{length}"));
    }
}

#[test]
fn triggers_and_foreign_keys() {
    let rig = Rig::new();
    rig.script("PRAGMA recursive_triggers=ON; CREATE TABLE t0(x)").unwrap();
    let length = chain(&rig, "trigger chain", 900, |number| {
        let before = number - 1;
        format!(
            "CREATE TABLE t{number}(x); CREATE TRIGGER g{number} AFTER INSERT ON t{before} BEGIN INSERT INTO t{number} VALUES(new.x + 1); END"
        )
    });
    for at in (0..length).rev().step_by(20) {
        survives(&rig, "trigger chain", &format!("INSERT INTO t{at} VALUES(1)"));
    }
    survives(&rig, "trigger chain", "INSERT INTO t0 VALUES(1)");
    let rig = rig.reopen();
    survives(&rig, "trigger chain, cold", "INSERT INTO t0 VALUES(1)");

    let rig = Rig::new();
    rig.script("CREATE TABLE f0(x PRIMARY KEY); INSERT INTO f0 VALUES(1)").unwrap();
    let length = chain(&rig, "cascade chain", 600, |number| {
        let before = number - 1;
        format!(
            "CREATE TABLE f{number}(x PRIMARY KEY REFERENCES f{before} ON DELETE CASCADE ON UPDATE CASCADE); INSERT INTO f{number} VALUES(1)"
        )
    });
    for at in (0..length).rev().step_by(20) {
        survives(&rig, "cascade chain", &format!("EXPLAIN UPDATE f{at} SET x = 2"));
        survives(&rig, "cascade chain", &format!("EXPLAIN DELETE FROM f{at}"));
    }
    survives(&rig, "cascade chain", "DELETE FROM f0");

    let rig = Rig::new();
    rig.script("PRAGMA recursive_triggers=ON; CREATE TABLE r(x); CREATE TRIGGER g AFTER INSERT ON r WHEN new.x < 100000 BEGIN INSERT INTO r VALUES(new.x + 1); END").unwrap();
    assert!(!survives(&rig, "recursive trigger", "INSERT INTO r VALUES(1)"));
    assert!(survives(&rig, "recursive trigger", "INSERT INTO r VALUES(99900)"));
}

#[test]
fn full_text_tables_of_full_text_tables() {
    let rig = Rig::new();
    rig.script("CREATE VIRTUAL TABLE f0 USING fts5(x)").unwrap();
    rig.exec("INSERT INTO f0 VALUES('word')").unwrap();
    let length = chain(&rig, "external content", 300, |number| {
        format!("CREATE VIRTUAL TABLE f{number} USING fts5(x, content='f{}')", number - 1)
    });
    // From the far end first, so that each level finds the next one compiled already.
    let mut ran = 0;
    for at in (0..=length).step_by(5) {
        if survives(&rig, "external content", &format!("SELECT x FROM f{at} WHERE rowid = 1")) {
            ran = at;
        }
    }
    println!("external content: {ran} of {length}");
    survives(&rig, "external content", &format!("SELECT x FROM f{length} WHERE rowid = 1"));
    survives(&rig, "external content", &format!("SELECT x FROM f{length}"));
    survives(&rig, "external content", &format!("INSERT INTO f{length}(f{length}) VALUES('rebuild')"));
    deepest(&rig, "fts query", |depth| format!("SELECT * FROM f0('{}')", nest("(", "word", ")", depth)));
    deepest(&rig, "fts and", |depth| format!("SELECT * FROM f0('{}')", vec!["word"; depth].join(" AND ")));
    deepest(&rig, "fts not", |depth| format!("SELECT * FROM f0('{}')", vec!["word"; depth].join(" NOT ")));
    deepest(&rig, "fts or", |depth| format!("SELECT * FROM f0('{}')", nest("(word OR ", "word", ")", depth)));
    deepest(&rig, "fts phrase", |depth| format!("SELECT * FROM f0('{}')", vec!["word"; depth].join(" + ")));
    deepest(&rig, "fts near", |depth| format!("SELECT * FROM f0('NEAR({})')", vec!["word"; depth].join(" ")));
}

/// Arrays in arrays in SQLite's binary form, which no parser has counted.
fn binary_json(depth: usize) -> Vec<u8> {
    // Written backwards, the innermost first: payload, then the header that says its length.
    let mut reversed = vec![0x00];
    for _ in 0..depth {
        let length = reversed.len();
        match length {
            0..=11 => reversed.push((length as u8) << 4 | 0x0b),
            12..=0xff => reversed.extend([length as u8, 0xcb]),
            0x100..=0xffff => reversed.extend([length as u8, (length >> 8) as u8, 0xdb]),
            _ => {
                reversed.extend((length as u32).to_le_bytes());
                reversed.push(0xeb);
            }
        }
    }
    reversed.reverse();
    reversed
}

#[test]
fn texts_and_patterns() {
    let rig = Rig::new();
    let long = "a".repeat(5_000);
    for depth in [1, 60, 124, 125, 126, 250, 5_000] {
        let like = format!("SELECT ? LIKE '{}'", "%a".repeat(depth));
        let glob = format!("SELECT ? GLOB '{}b'", "*a".repeat(depth));
        for sql in [like, glob] {
            let result = wait(rig.db.query(&sql, vec![Value::Text(long.clone())]));
            assert!(matches!(result, Ok(_) | Err(Error::Sqlite(_))), "{result:?}");
        }
    }
    for depth in [10, 900, 1_000, 1_001, 2_000, 100_000] {
        for (open, core, close) in [("[", "1", "]"), ("{\"a\":", "1", "}"), ("[[],", "1", "]")] {
            let json = Value::Text(nest(open, core, close, depth));
            for sql in [
                "SELECT json(?)",
                "SELECT json_pretty(?)",
                "SELECT jsonb(?)",
                "SELECT count(*) FROM json_tree(?)",
                "SELECT json_extract(?, '$[0][0]')",
                "SELECT json_patch(?1, ?1)",
                "SELECT json_remove(?, '$.a.a.a')",
                "SELECT json_valid(?, 15)",
                "SELECT json_set(?, '$.a.a.b', 1)",
            ] {
                let result = wait(rig.db.query(sql, vec![json.clone()]));
                assert!(matches!(result, Ok(_) | Err(Error::Sqlite(_))), "{result:?}");
            }
        }
        let path = format!("${}", ".a".repeat(depth));
        let _ = wait(rig.db.query("SELECT json_set('{}', ?, 1)", vec![Value::Text(path)]));
        let blob = Value::Blob(binary_json(depth));
        for sql in [
            "SELECT json(?)",
            "SELECT json_valid(?, 8)",
            "SELECT json_pretty(?)",
            "SELECT count(*) FROM json_tree(?)",
            "SELECT json_patch(?1, ?1)",
            "SELECT jsonb_set(?, '$[0][0]', 1)",
            "SELECT ? ->> '$[0][0][0]'",
        ] {
            let result = wait(rig.db.query(sql, vec![blob.clone()]));
            assert!(matches!(result, Ok(_) | Err(Error::Sqlite(_))), "{sql}: {result:?}");
        }
        assert_eq!(rig.number("SELECT 7"), 7);
    }
    deepest(&rig, "format", |depth| {
        format!("SELECT printf('%{}.{}d', 1)", "0".repeat(depth), "9".repeat(depth.min(6)))
    });
}

#[test]
fn schemas() {
    let rig = Rig::new();
    deepest(&rig, "generated columns", |depth| {
        let columns: String = (1..=depth).map(|n| format!(", c{n} AS (c{} + 1)", n - 1)).collect();
        format!("CREATE TABLE g{depth}(c0{columns})")
    });
    for depth in [5, 50, 180, 400] {
        survives(&rig, "generated columns", &format!("SELECT * FROM g{depth}"));
        survives(&rig, "generated columns", &format!("INSERT INTO g{depth}(c0) VALUES(1)"));
        survives(&rig, "generated columns", &format!("CREATE INDEX i{depth} ON g{depth}(c{depth})"));
        survives(&rig, "generated columns", &format!("UPDATE g{depth} SET c0 = 2"));
    }
    let nested = |depth| nest("(", "1", " + 1)", depth);
    for depth in [10, 90, 190] {
        let expression = nested(depth);
        for sql in [
            format!("CREATE TABLE d{depth}(x DEFAULT {expression}, CHECK ({expression} > 0))"),
            format!("CREATE INDEX e{depth} ON d{depth}({}, x)", nest("(x + ", "1", ")", depth)),
            format!("CREATE INDEX p{depth} ON d{depth}(x) WHERE {}", nest("(x + ", "1", ")", depth)),
            format!("INSERT INTO d{depth} DEFAULT VALUES"),
            format!(
                "CREATE TRIGGER h{depth} AFTER INSERT ON d{depth} WHEN {expression} BEGIN SELECT {expression}; END"
            ),
            format!("ALTER TABLE d{depth} RENAME COLUMN x TO y"),
            format!("ALTER TABLE d{depth} ADD COLUMN z DEFAULT {expression}"),
        ] {
            survives(&rig, "schema", &sql);
        }
    }
    let many = (0..2_000).map(|n| format!("c{n}")).collect::<Vec<_>>().join(", ");
    assert!(!survives(&rig, "columns", &format!("CREATE TABLE wide({many})")));
    let rig = rig.reopen();
    assert!(rig.is_sound());
}

#[test]
fn a_schema_at_its_limit_can_still_be_opened() {
    let rig = Rig::new();
    let made = chain(&rig, "tables", 2_200, |number| format!("CREATE TABLE t{number}(x)"));
    assert!(made < 2_200, "the number of objects is limited");
    let rig = rig.reopen();
    rig.exec("INSERT INTO t1 VALUES(1)").unwrap();
    rig.exec("DROP TABLE t1").unwrap();
    assert_eq!(rig.number("SELECT count(*) FROM t2"), 0);
}
