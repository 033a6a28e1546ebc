//! The sample actors, as an ordinary toolchain builds them.

use std::{path::Path, rc::Rc, sync::Arc};

use wasmkeep_actor::{Failure, Guest as _, TurnEnd};
use wasmkeep_storage::{Config, Database};

use super::kit::{self, RUNTIME, block_on, exchange, get, post};
use crate::{Cut, Instance, Mistake, Setting, Unanswered};

pub(super) fn sample(name: &str) -> Vec<u8> {
    let folder = std::env::var_os("WASMKEEP_GUESTS")
        .expect("WASMKEEP_GUESTS names the folder of the sample components: run scripts/test");
    let path = Path::new(&folder).join(format!("{name}.wasm"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; run scripts/test", path.display()))
}

/// An instance of a sample with a database of its own, its `on-init` run.
fn started(name: &str) -> (Instance, Rc<Database>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { root: folder.path().to_owned(), ..Config::default() };
    let database = Rc::new(Database::open(&folder.path().join("a.db"), &config).unwrap());
    let setting = Setting {
        database: Some(Rc::clone(&database)),
        env: Arc::new(vec![("GREETING".into(), "hi".into())]),
        ..kit::setting()
    };
    let mut instance = block_on(RUNTIME.load_actor(&sample(name)).unwrap().instantiate(setting)).unwrap();
    assert_eq!(block_on(instance.init()), Ok(()));
    (instance, database, folder)
}

#[test]
fn the_counter_counts_and_stays_resident() {
    let (mut instance, database, _folder) = started("counter");
    for n in 1..=50 {
        let path = if n % 10 == 0 { "/durable" } else { "/" };
        let (end, answer) = block_on(exchange(&mut instance, post(path, "")));
        let answer = answer.unwrap();
        assert_eq!((end, answer.text()), (TurnEnd::Ready, &*format!("{n}\n")));
        assert!(answer.whole, "{path}");
        assert!(database.take_committed(), "{path}");
    }
    let (_, answer) = block_on(exchange(&mut instance, get("/")));
    assert_eq!(answer.unwrap().text(), "50\n");
    let (_, answer) = block_on(exchange(&mut instance, get("/elsewhere")));
    assert_eq!(answer.unwrap().parts.status, 404);
}

#[test]
fn the_standard_library_finds_what_it_imports() {
    let (mut instance, ..) = started("sql");
    for path in [
        "/headers",
        "/context",
        "/env",
        "/clock",
        "/random",
        "/fs",
        "/socket",
        "/outbound?url=http://127.0.0.1:9/",
        "/log",
        "/sleep?ms=1",
    ] {
        let (end, answer) = block_on(exchange(&mut instance, get(path)));
        assert_eq!(end, TurnEnd::Ready, "{path}");
        let answer = answer.unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(answer.parts.status, 200, "{path}: {}", answer.text());
    }
}

#[test]
fn bodies_stream_both_ways() {
    let (mut instance, ..) = started("sql");
    let sent: Vec<u8> = (0..2_000_000_u32).map(|at| (at % 241) as u8).collect();
    let (end, answer) = block_on(exchange(&mut instance, post("/echo", sent.clone())));
    assert_eq!(end, TurnEnd::Ready);
    assert!(answer.unwrap().body == sent);
    let (_, answer) = block_on(exchange(&mut instance, get("/stream?bytes=3000000&chunk=10000")));
    let answer = answer.unwrap();
    assert_eq!((answer.body.len(), answer.end), (3_000_000, Ok(())));
}

// case H7
#[test]
fn mistakes_are_answered_and_the_actor_goes_on() {
    let (mut instance, ..) = started("sql");
    for path in ["/short-body", "/long-body", "/unfinished", "/status?code=101"] {
        match block_on(exchange(&mut instance, get(path))) {
            (TurnEnd::Ready, Err(Unanswered::Mistake(mistake))) => {
                assert_ne!(mistake, Mistake::NoResponse, "{path}");
            }
            (TurnEnd::Ready, Ok(received)) => {
                assert!(matches!(received.end, Err(Cut::Length | Cut::Unfinished)), "{path}: {received:?}");
            }
            other => panic!("{path}: {other:?}"),
        }
    }
    let (_, answer) = block_on(exchange(&mut instance, get("/header?name=x-wasmkeep-node&value=forged")));
    assert!(!answer.unwrap().parts.headers.contains_key("x-wasmkeep-node"));
}

#[test]
fn an_instance_that_returns_without_a_response_is_not_asked_again() {
    let (mut instance, ..) = started("sql");
    let (end, answer) = block_on(exchange(&mut instance, get("/no-response")));
    assert_eq!(end, TurnEnd::Retired);
    assert!(matches!(answer, Err(Unanswered::Mistake(Mistake::NoResponse))), "{answer:?}");
}

// case T4
#[test]
fn every_way_to_fail_is_a_trap() {
    for path in ["/trap", "/panic", "/exit?code=3", "/recurse"] {
        let (mut instance, ..) = started("sql");
        let (end, answer) = block_on(exchange(&mut instance, get(path)));
        assert!(matches!(end, TurnEnd::Poisoned(Failure::Trap(_))), "{path}: {end:?}");
        assert!(matches!(answer, Err(Unanswered::Failed(Failure::Trap(_)))), "{path}");
    }
}
