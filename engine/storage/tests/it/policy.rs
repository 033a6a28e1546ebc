//! What guest SQL may and may not ask for.

use wasmkeep_storage::{Error, Value};

use crate::rig::{Rig, refusal, text};

// case Q2
#[test]
fn nothing_reaches_another_file() {
    let rig = Rig::new();
    rig.script("CREATE TABLE t(x); INSERT INTO t VALUES(1)").unwrap();
    let outside = rig.folder.path().join("outside.db");
    let outside = outside.to_str().unwrap();
    let before = files(&rig);
    for sql in [
        format!("ATTACH '{outside}' AS o"),
        "ATTACH ':memory:' AS o".to_owned(),
        "ATTACH '' AS o".to_owned(),
        "ATTACH 'file::memory:?cache=shared' AS o".to_owned(),
        "DETACH main".to_owned(),
        format!("VACUUM INTO '{outside}'"),
        format!("/* x */ vacuum main into '{outside}'"),
        "SELECT load_extension('/lib/x.so')".to_owned(),
    ] {
        let sentence = refusal(rig.exec(&sql));
        assert!(sentence.contains("not available"), "{sql}: {sentence}");
        assert!(
            refusal(rig.script(&format!("{sql}; SELECT 1"))).contains("not available"),
            "{sql} in a script"
        );
    }
    for sql in ["SELECT readfile('/etc/passwd')", "SELECT writefile('x', 'y')", "SELECT edit('x')"] {
        assert!(matches!(rig.exec(sql), Err(Error::Sqlite(_))), "{sql}");
    }
    assert_eq!(files(&rig), before);
    assert_eq!(rig.number("SELECT x FROM t"), 1);
}

fn files(rig: &Rig) -> Vec<String> {
    let mut found: Vec<_> = [rig.folder.path().to_owned(), rig.folder.path().join("shop")]
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    found
}

// case Q1
#[test]
fn pragmas_that_would_change_how_the_file_is_written_are_refused() {
    let rig = Rig::new();
    rig.script("CREATE TABLE t(x); INSERT INTO t VALUES(1)").unwrap();
    for sql in [
        "PRAGMA journal_mode=DELETE",
        "PRAGMA journal_mode=OFF",
        "PRAGMA main.journal_mode('memory')",
        "PRAGMA page_size=8192",
        "PRAGMA wal_autocheckpoint=1",
        "PRAGMA wal_autocheckpoint",
        "PRAGMA wal_checkpoint",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "PRAGMA synchronous=FULL",
        "PRAGMA locking_mode=NORMAL",
        "PRAGMA mmap_size=1000000",
        "PRAGMA writable_schema=ON",
        "PRAGMA writable_schema=RESET",
        "PRAGMA schema_version=99",
        "PRAGMA temp_store_directory='/tmp'",
        "PRAGMA temp_store=MEMORY",
        "PRAGMA data_store_directory='/tmp'",
        "PRAGMA max_page_count=1000000000",
        "PRAGMA journal_size_limit=1",
        "PRAGMA cache_size=1000000",
        "PRAGMA cache_spill=0",
        "PRAGMA hard_heap_limit=1",
        "PRAGMA soft_heap_limit=1",
        "PRAGMA busy_timeout=1000000",
        "PRAGMA threads=8",
        "PRAGMA trusted_schema=ON",
        "PRAGMA query_only=ON",
        "PRAGMA encoding='UTF-16'",
        "PRAGMA database_list",
        "PRAGMA no_such_pragma",
        "PRAGMA lock_proxy_file=':auto:'",
        "PRAGMA activate_extensions('x')",
        "SELECT * FROM pragma_database_list",
        "SELECT * FROM pragma_wal_checkpoint",
    ] {
        let result = rig.rows(sql);
        assert!(
            matches!(&result, Err(Error::Refused(sentence)) if sentence.contains("PRAGMA"))
                || (sql.starts_with("SELECT") && matches!(result, Err(Error::Sqlite(_)))),
            "{sql}: {result:?}"
        );
    }
    assert_eq!(rig.value("PRAGMA journal_mode"), text("wal"));
    assert_eq!(rig.number("PRAGMA page_size"), 4096);
    rig.durable("INSERT INTO t VALUES(2)").unwrap();
    assert_eq!(rig.after_a_kill().number("SELECT count(*) FROM t"), 2);
}

#[test]
fn pragmas_that_ask_or_concern_the_guest_alone_work() {
    let rig = Rig::new();
    rig.script("CREATE TABLE p(x PRIMARY KEY); CREATE TABLE t(x REFERENCES p, y); CREATE INDEX i ON t(y)")
        .unwrap();
    for sql in [
        "PRAGMA table_info(t)",
        "PRAGMA table_xinfo('t')",
        "PRAGMA table_list",
        "PRAGMA index_list(t)",
        "PRAGMA index_info(i)",
        "PRAGMA index_xinfo(i)",
        "PRAGMA foreign_key_list(t)",
        "PRAGMA compile_options",
        "PRAGMA function_list",
        "PRAGMA integrity_check",
        "PRAGMA quick_check",
        "PRAGMA page_count",
        "PRAGMA freelist_count",
        "PRAGMA data_version",
        "PRAGMA max_page_count",
        "PRAGMA synchronous",
        "SELECT name FROM pragma_table_info('t')",
    ] {
        assert!(!rig.rows(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).is_empty(), "{sql}");
    }
    rig.script("PRAGMA foreign_key_check; PRAGMA optimize; PRAGMA incremental_vacuum(10)").unwrap();
    rig.script("PRAGMA user_version=42; PRAGMA application_id=7; PRAGMA recursive_triggers=ON").unwrap();
    assert_eq!(rig.number("PRAGMA user_version"), 42);
    assert_eq!(rig.number("PRAGMA foreign_keys"), 1, "on unless the guest turns them off");
    assert!(
        matches!(rig.exec("INSERT INTO t VALUES(1, 1)"), Err(Error::Sqlite(error)) if error.extended_code == 787)
    );
    rig.script("PRAGMA foreign_keys=OFF; INSERT INTO t VALUES(1, 1)").unwrap();
    let rig = rig.reopen();
    assert_eq!(rig.number("PRAGMA user_version"), 42);
    assert_eq!(rig.number("PRAGMA foreign_keys"), 1, "a switch lasts while the actor is awake");
}

// case Q2
#[test]
fn what_actors_are_promised_works() {
    let rig = Rig::new();
    rig.script(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b GENERATED ALWAYS AS (upper(a)) STORED, c AS (length(a)));
         INSERT INTO t(a) VALUES('one'), ('two');
         INSERT INTO t(id, a) VALUES(1, 'eins') ON CONFLICT(id) DO UPDATE SET a = excluded.a;
         CREATE TEMP TABLE scratch AS SELECT * FROM t;
         CREATE TRIGGER g AFTER DELETE ON t BEGIN INSERT INTO t(a) VALUES('was ' || old.a); END;
         CREATE VIEW v AS SELECT a FROM t;
         CREATE VIRTUAL TABLE docs USING fts5(body, tokenize = 'porter unicode61');
         CREATE VIRTUAL TABLE words USING fts5vocab(docs, 'row');
         INSERT INTO docs VALUES('the running dog'), ('a cat runs');
         CREATE TABLE strict_one(x INTEGER, y ANY) STRICT;
         CREATE VIRTUAL TABLE places USING rtree(id, x0, x1);
         INSERT INTO places VALUES(1, 0, 10)",
    )
    .unwrap();
    for (sql, expected) in [
        ("SELECT b || c FROM t WHERE id = 1", text("EINS4")),
        ("SELECT count(*) FROM docs WHERE docs MATCH 'run'", Value::Integer(2)),
        ("SELECT doc FROM words WHERE term = 'run'", Value::Integer(2)),
        ("SELECT highlight(docs, 0, '[', ']') FROM docs WHERE docs MATCH 'cat'", text("a [cat] runs")),
        ("SELECT json_extract('{\"a\": [1, 2]}', '$.a[1]')", Value::Integer(2)),
        ("SELECT '{\"a\": 5}' ->> 'a'", Value::Integer(5)),
        ("SELECT json_group_array(value) FROM json_each('[1,2]')", text("[1,2]")),
        ("SELECT group_concat(r) FROM (SELECT row_number() OVER (ORDER BY a DESC) AS r FROM t)", text("1,2")),
        ("SELECT count(*) FROM scratch", Value::Integer(2)),
        ("SELECT id FROM places WHERE x0 <= 5 AND x1 >= 5", Value::Integer(1)),
        ("SELECT sqrt(16.0)", Value::Real(4.0)),
        ("SELECT 'x' LIKE 'X'", Value::Integer(1)),
    ] {
        assert_eq!(rig.value(sql), expected, "{sql}");
    }
    let rows = rig.rows("DELETE FROM t WHERE id = 2 RETURNING a").unwrap();
    assert_eq!(rows, [[text("two")]]);
    assert_eq!(rig.number("SELECT count(*) FROM t WHERE a = 'was two'"), 1);
    rig.exec("INSERT INTO docs(docs) VALUES('optimize')").unwrap();
    rig.exec("INSERT INTO docs(docs) VALUES('integrity-check')").unwrap();
}

// case R4
#[test]
fn vacuum_and_auto_vacuum_shrink_the_file() {
    for auto in [false, true] {
        let rig = Rig::new();
        if auto {
            rig.script("PRAGMA auto_vacuum=INCREMENTAL; VACUUM").unwrap();
            assert_eq!(rig.number("PRAGMA auto_vacuum"), 2);
        }
        rig.exec("CREATE TABLE t(x)").unwrap();
        rig.exec("INSERT INTO t WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r WHERE n < 500) SELECT zeroblob(3000) FROM r").unwrap();
        assert!(rig.db.size_bytes() > 500 * 4096);
        rig.exec("DELETE FROM t").unwrap();
        rig.script(if auto { "PRAGMA incremental_vacuum" } else { " -- plain\n VACUUM" }).unwrap();
        assert!(rig.db.size_bytes() <= 4 * 4096, "{}", rig.db.size_bytes());
        assert!(rig.is_sound());
        assert_eq!(rig.db.size_bytes(), rig.after_a_kill().db.size_bytes());
    }
}

#[test]
fn the_schema_table_cannot_be_written() {
    let rig = Rig::new();
    rig.exec("CREATE TABLE t(x)").unwrap();
    for sql in [
        "UPDATE sqlite_schema SET sql = 'x'",
        "DELETE FROM sqlite_master",
        "INSERT INTO sqlite_schema VALUES('table', 'u', 'u', 0, 'x')",
        "CREATE TABLE sqlite_mine(x)",
        "SELECT sqlite_rename_table('main', '', '', '', '', '', 0)",
    ] {
        assert!(matches!(rig.rows(sql), Err(Error::Sqlite(_) | Error::Refused(_))), "{sql}");
    }
    rig.script("CREATE VIRTUAL TABLE f USING fts5(x)").unwrap();
    assert!(rig.exec("DELETE FROM f_data").is_err(), "defensive: shadow tables are read-only");
}
