//! Alarms of a real node, through stops, kills and lost files.

use std::{
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use crate::support::{self, Node, eventually, guest, samples};
use serde_json::{Value, json};

/// An attempt as the sql sample notes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Attempt {
    due_ms: u64,
    number: u64,
    at_ms: u64,
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64
}

/// The attempts an actor has noted.
fn attempts(node: &Node, actor: &str) -> Vec<Attempt> {
    let outcome =
        node.steps(actor, json!([{"sql": "SELECT due, attempt, at FROM alarm_log ORDER BY rowid"}]));
    let rows = outcome[0]["ok"]["rows"].as_array().cloned().unwrap_or_default();
    let number = |value: &Value| value.as_u64().unwrap();
    rows.iter()
        .map(|row| Attempt { due_ms: number(&row[0]), number: number(&row[1]), at_ms: number(&row[2]) })
        .collect()
}

fn numbers(node: &Node, actor: &str) -> Vec<u64> {
    attempts(node, actor).iter().map(|attempt| attempt.number).collect()
}

#[track_caller]
fn set_in(node: &Node, actor: &str, ms: u64) {
    let outcome = node.get(&format!("/actor/sql/{actor}/alarm?in={ms}")).expect(200).json();
    assert_eq!(outcome, json!({ "ok": null }));
}

fn pending(node: &Node, actor: &str) -> Option<u64> {
    node.get(&format!("/actor/sql/{actor}/alarm")).expect(200).json()["ok"].as_u64()
}

/// Tells an actor what to do in its attempts.
fn plan(node: &Node, actor: &str, actions: &[(u64, &str)]) {
    let mut script = "CREATE TABLE alarm_plan (attempt, action);".to_owned();
    for (attempt, action) in actions {
        script.push_str(&format!("INSERT INTO alarm_plan VALUES ({attempt}, '{action}');"));
    }
    let outcome = node.steps(actor, json!([{"as": "script", "sql": script}]));
    assert_eq!(outcome[0]["ok"], Value::Null, "{outcome}");
}

#[test]
fn an_alarm_wakes_its_actor_at_its_time_and_once() {
    // R-ALM-1
    let node = Node::start(&["--hibernate-after-secs=0.2", "--shards=2"]);
    let before = now_ms();
    for actor in ["a", "b", "c", "d"] {
        set_in(&node, actor, 1_500);
    }
    assert_eq!(node.metric("wasmkeep_alarms", ""), 4.0);
    eventually("they sleep", || node.metric("wasmkeep_actors_resident", "") == 0.0);
    eventually("all have run", || {
        node.metric("wasmkeep_alarm_attempts_total", "outcome=\"succeeded\"") == 4.0
    });
    eventually("they sleep again", || node.metric("wasmkeep_actors_resident", "") == 0.0);
    for actor in ["a", "b", "c", "d"] {
        let attempts = attempts(&node, actor);
        let [Attempt { due_ms, number: 1, at_ms }] = attempts[..] else { panic!("{attempts:?}") };
        assert!(due_ms >= before + 1_500 && at_ms >= due_ms, "{attempts:?}");
        assert_eq!(pending(&node, actor), None);
    }
    assert_eq!(node.metric("wasmkeep_alarms", ""), 0.0);
    assert_eq!(node.metric("wasmkeep_host_bugs_total", ""), 0.0);
}

#[test]
fn an_alarm_belongs_to_the_transaction_it_is_set_in() {
    // case A2
    let node = Node::start(&[]);
    let step = |kind: &str, sql: &str| json!({"as": kind, "sql": sql});
    node.steps("a", json!([step("exec", "BEGIN"), step("alarm", "0"), step("exec", "ROLLBACK")]));
    assert_eq!(pending(&node, "a"), None);
    node.steps("b", json!([step("exec", "BEGIN"), step("alarm", "0"), step("exec", "COMMIT")]));
    // Left open: rolled back when the event ends.
    node.steps("c", json!([step("exec", "BEGIN"), step("alarm", "0")]));
    // An earlier one is taken back, and the later one that was there stays.
    set_in(&node, "d", 3_600_000);
    let later = pending(&node, "d");
    node.steps("d", json!([step("exec", "BEGIN"), step("alarm", "0"), step("exec", "ROLLBACK")]));
    eventually("b has run", || numbers(&node, "b") == [1]);
    eventually("nothing but d's is left", || node.metric("wasmkeep_alarms", "") == 1.0);
    for actor in ["a", "c", "d"] {
        assert_eq!(numbers(&node, actor), [0; 0], "{actor}");
    }
    assert_eq!(pending(&node, "d"), later);
}

#[test]
fn an_alarm_survives_stops_and_kills_and_other_numbers_of_shards() {
    // case A3
    let folder = tempfile::tempdir().unwrap();
    let mut node = Node::start_on(folder.path(), &["--shards=2"]);
    for (round, (kill, shards)) in [(false, 2), (true, 2), (true, 1), (false, 2)].into_iter().enumerate() {
        let late = format!("late{round}");
        // One is due while nothing runs, one after the start, one much later.
        set_in(&node, &format!("down{round}"), 50);
        set_in(&node, &late, 2_500);
        set_in(&node, &format!("far{round}"), 3_600_000);
        if kill {
            node.kill();
        } else {
            assert_eq!(node.stop().0.code(), Some(0));
        }
        std::thread::sleep(Duration::from_millis(200));
        node = Node::start_on(folder.path(), &[&format!("--shards={shards}")]);
        eventually("the overdue one has run", || !numbers(&node, &format!("down{round}")).is_empty());
        eventually("the later one has run", || !numbers(&node, &late).is_empty());
        let attempts = attempts(&node, &late);
        assert!(attempts.iter().all(|attempt| attempt.at_ms >= attempt.due_ms), "{attempts:?}");
        assert_eq!(node.metric("wasmkeep_alarms", ""), (round + 1) as f64, "those far away");
    }
}

#[test]
fn what_fails_is_tried_again_and_the_count_survives_a_kill() {
    // case A3
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start_on(folder.path(), &["--event-limit-secs=1"]);
    plan(&node, "a", &[(1, "error"), (2, "trap"), (3, "begin")]);
    plan(&node, "slow", &[(1, "spin")]);
    set_in(&node, "a", 0);
    set_in(&node, "slow", 0);
    eventually("two attempts have failed", || numbers(&node, "a") == [1, 2]);
    node.kill();
    let node = Node::start_on(folder.path(), &["--event-limit-secs=1"]);
    eventually("the third succeeded", || {
        node.metric("wasmkeep_alarm_attempts_total", "outcome=\"succeeded\"") == 2.0
    });
    let attempts = attempts(&node, "a");
    assert_eq!(numbers(&node, "a"), [1, 2, 3]);
    assert!(attempts.iter().all(|attempt| attempt.due_ms == attempts[0].due_ms), "{attempts:?}");
    for (pair, wait_ms) in attempts.windows(2).zip([1_000, 2_000]) {
        assert!(pair[1].at_ms >= pair[0].at_ms + wait_ms, "{attempts:?}");
    }
    // Ended at its limit, or killed in it.
    assert_eq!(numbers(&node, "slow"), [1, 2]);
    assert_eq!(node.metric("wasmkeep_alarms", ""), 0.0);
}

#[test]
fn a_failing_attempt_keeps_its_retry_and_the_alarm_it_set() {
    // case A4
    let node = Node::start(&[]);
    plan(&node, "a", &[(1, "set 3600000"), (1, "trap")]);
    let before = now_ms();
    set_in(&node, "a", 0);
    eventually("it was tried again", || numbers(&node, "a") == [1, 2]);
    let left = pending(&node, "a").expect("what the first attempt set");
    assert!(left >= before + 3_600_000, "{left}");
    assert_eq!(node.metric("wasmkeep_alarms", ""), 1.0);
}

#[test]
fn a_deleted_actor_has_no_alarm() {
    // case A5
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start_on(folder.path(), &[]);
    plan(&node, "within", &[(1, "delete"), (1, "trap")]);
    plan(&node, "after", &[(1, "delete")]);
    for actor in ["within", "after", "request"] {
        set_in(&node, actor, 1_000);
    }
    node.post("/actor/sql/request/delete", "").expect(200);
    eventually("no alarm is left", || node.metric("wasmkeep_alarms", "") == 0.0);
    std::thread::sleep(Duration::from_millis(2_500));
    node.kill();
    let node = Node::start_on(folder.path(), &[]);
    assert_eq!(node.metric("wasmkeep_alarms", ""), 0.0);
    assert_eq!(node.metric("wasmkeep_actor_wakes_total", ""), 0.0, "nobody is woken for one");
    for actor in ["within", "after", "request"] {
        assert_eq!(pending(&node, actor), None, "{actor}");
        assert_eq!(numbers(&node, actor), [0; 0], "{actor} is fresh");
    }
}

#[test]
fn an_alarm_finds_its_turn_at_a_busy_actor() {
    let node = Node::start(&["--mailbox=1", "--event-limit-secs=20"]);
    set_in(&node, "a", 500);
    std::thread::scope(|scope| {
        let sleep = || node.get("/actor/sql/a/sleep?ms=1500").status;
        let running = scope.spawn(sleep);
        let waiting = scope.spawn(sleep);
        eventually("the mailbox is full with the alarm in it", || {
            node.metric("wasmkeep_mailbox_events", "") == 2.0
        });
        node.get("/actor/sql/a/get").expect(503);
        assert_eq!((running.join().unwrap(), waiting.join().unwrap()), (200, 200));
    });
    eventually("it has run", || numbers(&node, "a") == [1]);
}

#[test]
fn an_alarm_may_call_and_set_the_next() {
    let node = Node::start(&["--shards=2"]);
    plan(&node, "ticker", &[(1, "call counter ticks"), (1, "set 20")]);
    set_in(&node, "ticker", 0);
    eventually("it ticks", || node.get("/actor/counter/ticks").text.trim().parse::<u32>().unwrap() >= 5);
    assert!(numbers(&node, "ticker").iter().all(|number| *number == 1), "each is an alarm of its own");
}

#[test]
fn an_alarm_waits_for_code_that_takes_it() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start_on(folder.path(), &[]);
    set_in(&node, "a", 300);
    node.kill();
    // A version without on-alarm, then none of the class at all.
    let mute = format!("--actor=sql={}", guest("counter").display());
    let other = format!("--actor=counter={}", guest("counter").display());
    for argument in [mute, other] {
        let node = Node::start_with(folder.path(), &[argument]);
        std::thread::sleep(Duration::from_millis(600));
        assert_eq!(node.metric("wasmkeep_actor_wakes_total", ""), 0.0);
        assert_eq!(node.metric("wasmkeep_alarms", ""), 1.0, "it is not forgotten");
        node.kill();
    }
    let node = Node::start_on(folder.path(), &[]);
    eventually("it has run", || numbers(&node, "a") == [1]);
}

#[test]
fn without_its_index_a_node_finds_every_alarm_in_the_databases() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start_on(folder.path(), &["--shards=2"]);
    let long = "x".repeat(250);
    let actors = ["plain", "a%2Fb", &long];
    for actor in actors {
        set_in(&node, actor, 1_000);
    }
    set_in(&node, "awake", 1_000);
    node.get("/actor/counter/none").expect(200);
    node.kill();
    std::fs::remove_dir_all(folder.path().join("alarms")).unwrap();
    let node = Node::start_on(folder.path(), &["--shards=2"]);
    // In memory before its database may have been looked at.
    node.get("/actor/sql/awake/get").expect(200);
    for actor in actors.into_iter().chain(["awake"]) {
        eventually("it has run", || numbers(&node, actor) == [1]);
    }
    eventually("the look has ended", || node.log().contains("the index of alarms was made anew"));
    node.kill();
    let node = Node::start_on(folder.path(), &["--shards=2"]);
    assert_eq!(node.metric("wasmkeep_alarms", ""), 0.0);
    std::thread::sleep(Duration::from_millis(300));
    assert!(!node.log().contains("made anew"), "the index can be trusted again: {}", node.log());
}

/// Everything a client was told is set has run at its end, whenever the node was killed.
#[test]
fn no_alarm_is_lost_by_kills_at_any_moment() {
    // R-ALM-1, cases A1 and A3
    let folder = tempfile::tempdir().unwrap();
    let mut told: Vec<(String, u64)> = Vec::new();
    for round in 0..8_u64 {
        let node = Node::start_on(folder.path(), &["--shards=2"]);
        let (address, stop) = (node.address, Instant::now() + Duration::from_millis(120 + 90 * round));
        let setters = (0..2_u64).map(|setter| {
            std::thread::spawn(move || {
                let (mut set, agent) = (Vec::new(), support::agent());
                for n in 0.. {
                    // Some are set again and again, earlier and later; some are due at once and run meanwhile.
                    let actor = format!("k{round}-{setter}-{}", n % 40);
                    let due_ms = now_ms() + [0, 700, 30, 250][n as usize % 4];
                    let url = format!("http://{address}/actor/sql/{actor}/alarm?set={due_ms}");
                    match agent.get(&url).call() {
                        Ok(answer) if answer.status() == 200 => set.push((actor, due_ms)),
                        _ => return set,
                    }
                }
                set
            })
        });
        let setters: Vec<_> = setters.collect();
        std::thread::sleep(stop.saturating_duration_since(Instant::now()));
        node.kill();
        for setter in setters {
            told.extend(setter.join().unwrap());
        }
    }
    assert!(!told.is_empty(), "the machine was too slow for anything to be set");
    let node = Node::start_on(folder.path(), &["--shards=2"]);
    eventually("no alarm is pending", || node.metric("wasmkeep_alarms", "") == 0.0);
    let mut last = std::collections::BTreeMap::new();
    for (actor, due_ms) in &told {
        last.insert(actor.clone(), *due_ms);
    }
    for (actor, due_ms) in last {
        let attempts = attempts(&node, &actor);
        // The set that was under way at the kill may have replaced the last one the client was told of.
        let ran = attempts.last().is_some_and(|attempt| attempt.due_ms >= due_ms);
        assert!(ran, "{actor} was to run at {due_ms}: {attempts:?}");
        assert!(attempts.iter().all(|attempt| attempt.at_ms >= attempt.due_ms), "{actor}: {attempts:?}");
    }
    assert_eq!(node.metric("wasmkeep_host_bugs_total", ""), 0.0);
}

#[test]
fn many_overdue_alarms_run_while_the_node_answers() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start_on(folder.path(), &["--shards=2"]);
    let actors: Vec<_> = (0..400).map(|n| format!("m{n}")).collect();
    for actor in &actors {
        set_in(&node, actor, 1);
    }
    node.kill();
    let node = Node::start_on(folder.path(), &["--shards=2"]);
    node.post("/actor/counter/a", "").expect(200);
    eventually("all have run", || node.metric("wasmkeep_alarms", "") == 0.0);
    for actor in &actors {
        assert!(!numbers(&node, actor).is_empty(), "{actor}");
    }
}

fn reminders(data_dir: &Path) -> Node {
    let mut arguments = samples();
    arguments.push(format!("--actor=reminder={}", guest("reminder").display()));
    Node::start_with(data_dir, &arguments)
}

#[test]
fn the_reminder_reminds_in_order_across_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let node = reminders(folder.path());
    for (in_ms, text) in [(2_000, "third"), (300, "first"), (900, "second"), (3_600_000, "much later")] {
        let wish = json!({ "in_ms": in_ms, "text": text }).to_string();
        node.post("/actor/reminder/alice/remind", wish).expect(204);
    }
    let came = |node: &Node| node.get("/actor/reminder/alice").expect(200).json();
    eventually("one came", || came(&node)["came"].as_array().unwrap().contains(&json!("first")));
    node.kill();
    let node = reminders(folder.path());
    eventually("three came", || came(&node)["came"] == json!(["first", "second", "third"]));
    assert_eq!(came(&node)["to_come"], json!(["much later"]));
}
