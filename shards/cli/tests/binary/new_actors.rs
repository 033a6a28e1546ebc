//! Actors that are new: the databases made ahead for them, and what a killed node leaves of those.

use std::path::Path;

use crate::support::{Node, eventually, guest};
use serde_json::json;

const ACTORS: usize = 40;

/// The highest number among the names of the spare databases of a node of one shard.
fn latest_spare(data_dir: &Path) -> Option<u64> {
    let entries = std::fs::read_dir(data_dir.join("spares/0")).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.strip_suffix(".db")?.parse().ok()).max()
}

/// Whether a spare of a node of one shard holds what `on-init` left elsewhere: an empty one has an empty WAL.
fn a_spare_has_begun(data_dir: &Path) -> bool {
    let entries = std::fs::read_dir(data_dir.join("spares/0")).unwrap().flatten();
    let mut wals = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with("-wal"));
    wals.any(|wal| wal.metadata().is_ok_and(|found| found.len() > 0))
}

fn databases(data_dir: &Path, class: &str) -> usize {
    let entries = std::fs::read_dir(data_dir.join("actors/default").join(class)).unwrap();
    entries.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|end| end == "db")).count()
}

#[test]
fn new_actors_take_databases_made_ahead_and_keep_their_data_when_the_node_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start_on(folder.path(), &["--shards=1"]);
    assert_eq!(latest_spare(folder.path()), None, "no actor, no spare");
    for actor in 0..ACTORS {
        let path = format!("/actor/counter/a{actor}");
        assert_eq!(node.post(&path, "").expect(200).text, "1\n");
        assert_eq!(node.post(&format!("{path}/durable"), "").expect(200).text, "2\n");
    }
    assert_eq!(databases(folder.path(), "counter"), ACTORS);
    // Those of lower numbers have been taken: no more than a few are kept.
    eventually("spares were taken and made anew", || {
        latest_spare(folder.path()).is_some_and(|latest| latest >= ACTORS as u64 / 2)
    });
    node.kill();
    assert!(latest_spare(folder.path()).is_some(), "a killed node leaves them");

    let node = Node::start_on(folder.path(), &["--shards=1"]);
    assert_eq!(latest_spare(folder.path()), None, "the next one removes them");
    for actor in 0..ACTORS {
        assert_eq!(node.get(&format!("/actor/counter/a{actor}")).expect(200).text, "2\n");
    }
    assert_eq!(node.metric("wasmkeep_host_bugs_total", ""), 0.0);
    let (status, log) = node.stop();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(!log.contains("spare"), "{log}");
}

#[test]
fn what_on_init_leaves_is_given_to_new_actors_whose_data_are_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let class = format!("--actor=notes={}", guest("notes").display());
    let flags = ["--shards=1", &*class];
    let node = Node::start_on(folder.path(), &flags);
    let notes = |actor: usize| format!("/actor/notes/n{actor}/notes");
    for actor in 0..ACTORS {
        assert_eq!(node.get(&notes(actor)).expect(200).json(), json!([]), "it begins empty");
        let note = json!({ "title": format!("of n{actor}"), "body": "some words" }).to_string();
        node.post(&notes(actor), &note).expect(201);
    }
    eventually("spares begin with it", || a_spare_has_begun(folder.path()));
    node.kill();

    let node = Node::start_on(folder.path(), &flags);
    for actor in 0..ACTORS {
        let found = node.get(&format!("{}?q=words", notes(actor))).expect(200).json();
        assert_eq!(found.as_array().map(Vec::len), Some(1), "{found}");
        assert_eq!(found[0]["title"], json!(format!("of n{actor}")));
    }
    assert_eq!(node.metric("wasmkeep_host_bugs_total", ""), 0.0);
    let (status, log) = node.stop();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(!log.contains("spare"), "{log}");
}

#[test]
fn an_instance_made_ahead_is_its_actors_alone_and_gone_when_nobody_comes() {
    let node = Node::start(&["--shards=1", "--hibernate-after-secs=1"]);
    for actor in 0..ACTORS {
        let name = format!("b{actor}");
        let told = node.get(&format!("/actor/sql/{name}/context")).expect(200).json();
        assert_eq!((&told["class"], &told["name"]), (&json!("sql"), &json!(name)), "{told}");
        assert_eq!(node.get(&format!("/actor/sql/{name}/get")).expect(200).json(), "");
        node.get(&format!("/actor/sql/{name}/set?value={name}")).expect(200);
        node.get(&format!("/actor/sql/{name}/log?text=said-by-{name}.")).expect(200);
    }
    for actor in [2, ACTORS / 2, ACTORS - 1] {
        let (said, named) = (format!("said-by-b{actor}."), format!("\"name\":\"b{actor}\""));
        eventually("what it said is in the log under its name", || {
            node.log().lines().any(|line| line.contains(&said) && line.contains(&named))
        });
    }
    eventually("all rest", || node.metric("wasmkeep_actors_resident", "") == 0.0);
    eventually("nothing is held for actors to come", || {
        node.metric("wasmkeep_instance_memory_bytes", "") == 0.0
    });
    assert_eq!(node.get("/actor/sql/b1/get").expect(200).json(), "");
    assert_eq!(node.metric("wasmkeep_host_bugs_total", ""), 0.0);
}

#[test]
fn an_actor_that_was_deleted_begins_anew_in_a_database_made_ahead() {
    let node = Node::start(&["--shards=1"]);
    let long = "n".repeat(200);
    for actor in ["plain", &long] {
        for _ in 0..10 {
            let made = node.steps(actor, json!([{"as": "script", "sql": "CREATE TABLE t (x)"}]));
            assert!(made[0].get("ok").is_some(), "{made}");
            let path = format!("/actor/sql/{actor}/delete");
            node.post(&path, "").expect(200);
        }
    }
    eventually("spares were taken", || latest_spare(&node.data_dir).is_some_and(|latest| latest >= 8));
    eventually("nothing is left", || databases(&node.data_dir, "sql") == 0);
}
