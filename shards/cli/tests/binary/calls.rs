//! Calls between actors of one node, on the same shard and across shards.

use std::time::{Duration, Instant};

use crate::support::{Node, eventually, guest};
use serde_json::{Value, json};
use wasmkeep_protocol::placement::{actor_hash, shard_of};

/// Two names of the sql sample on one shard of two, and one on the other.
fn names() -> [String; 3] {
    let shard = |name: &String| shard_of(actor_hash("sql", name), 2);
    let of = |wanted: usize| (0..).map(|n| format!("n{n}")).filter(move |name| shard(name) == wanted);
    let mut here = of(0);
    [here.next().unwrap(), here.next().unwrap(), of(1).next().unwrap()]
}

/// Percent-encodes a path so that it can be a value in a query.
fn encoded(path: &str) -> String {
    path.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// The path with which one actor of the sql sample calls another.
fn call(to: &str, path: &str) -> String {
    format!("/call?class=sql&name={to}&path={}", encoded(path))
}

/// What `from` was told of its call.
fn told(node: &Node, from: &str, path: &str) -> Value {
    node.get(&format!("/actor/sql/{from}{path}")).expect(200).json()
}

/// What the callee answered.
fn answered(outcome: &Value) -> Value {
    serde_json::from_str(outcome["ok"]["text"].as_str().unwrap_or_else(|| panic!("{outcome}"))).unwrap()
}

#[test]
fn an_actor_reaches_others_on_its_shard_and_on_another() {
    // R-CALL-1, R-CALL-2
    let node = Node::start(&["--shards=2"]);
    let [from, same, other] = names();
    for to in [&same, &other] {
        let before = node.metric("wasmkeep_calls_total", "outcome=\"answered\"");
        let outcome = told(&node, &from, &call(to, "/context"));
        let seen = answered(&outcome);
        assert_eq!(seen["name"], to.as_str());
        assert_eq!(seen["caller"], json!(["sql", from]), "the callee knows who called");
        assert_eq!(node.metric("wasmkeep_calls_total", "outcome=\"answered\""), before + 1.0);
    }
    let seen = node.get(&format!("/actor/sql/{same}/context")).expect(200).json();
    assert_eq!(seen["caller"], Value::Null, "a request from outside has no caller");
    let headers = answered(&told(&node, &from, &call(&other, "/headers?q=1")));
    assert_eq!((&headers["path"], &headers["query"]), (&json!("/headers"), &json!("q=1")));
    assert!(headers["headers"].as_array().unwrap().contains(&json!(["x-sent", "1"])), "{headers}");
}

#[test]
fn a_cycle_of_calls_is_refused_wherever_it_closes() {
    // R-CALL-2
    let node = Node::start(&["--shards=2"]);
    let [a, b, c] = names();
    assert_eq!(told(&node, &a, &call(&a, "/get")), json!({ "error": "Error::Reentrant" }));
    for back in [&a, &b] {
        let closing = call(back, "/get");
        let outcome = told(&node, &a, &call(&b, &call(&c, &closing)));
        let at_b = answered(&outcome);
        let at_c = answered(&at_b);
        assert_eq!(at_c, json!({ "error": "Error::Reentrant" }), "{outcome}");
    }
    // Nobody was left waiting.
    for name in [&a, &b, &c] {
        node.get(&format!("/actor/sql/{name}/get")).expect(200);
    }
}

#[test]
fn a_callee_without_room_is_overloaded_and_an_unknown_class_is_named() {
    let node = Node::start(&["--mailbox=1", "--shards=2"]);
    let [a, b, _] = names();
    let outcome = told(&node, &a, "/call?class=nope&name=x");
    assert_eq!(outcome, json!({ "error": "Error::NoSuchClass" }));
    std::thread::scope(|scope| {
        let running = scope.spawn(|| node.get(&format!("/actor/sql/{b}/sleep?ms=1500")).status);
        eventually("it runs", || node.metric("wasmkeep_actors_resident", "") == 2.0);
        let waiting = scope.spawn(|| node.get(&format!("/actor/sql/{b}/get")).status);
        eventually("one waits", || node.metric("wasmkeep_mailbox_events", "") == 1.0);
        assert_eq!(told(&node, &a, &call(&b, "/get")), json!({ "error": "Error::Overloaded" }));
        assert_eq!((running.join().unwrap(), waiting.join().unwrap()), (200, 200));
    });
}

#[test]
fn a_callee_has_what_is_left_of_its_callers_time() {
    let node = Node::start(&["--event-limit-secs=3", "--shards=2"]);
    let [a, b, c] = names();
    let began = Instant::now();
    // The innermost runs out first, and everybody else can still say so.
    let outcome = told(&node, &a, &call(&b, &call(&c, "/sleep?ms=60000")));
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(answered(&outcome), json!({ "error": "Error::TimedOut" }));
    eventually("the sleeper was ended", || {
        node.metric("wasmkeep_event_failures_total", "class=\"sql\"") == 1.0
    });
    node.get(&format!("/actor/sql/{c}/get")).expect(200);
}

#[test]
fn a_callee_that_has_not_begun_when_its_caller_gives_up_never_runs() {
    let node = Node::start(&["--event-limit-secs=3", "--shards=2"]);
    let [a, b, _] = names();
    std::thread::scope(|scope| {
        // Two events of two seconds before the call: longer than it waits.
        let sleep = || node.get(&format!("/actor/sql/{b}/sleep?ms=2000")).status;
        let busy = [scope.spawn(sleep), scope.spawn(sleep)];
        eventually("one waits", || node.metric("wasmkeep_mailbox_events", "") == 1.0);
        let outcome = told(&node, &a, &call(&b, "/set?value=ran"));
        assert_eq!(outcome, json!({ "error": "Error::TimedOut" }));
        for busy in busy {
            assert_eq!(busy.join().unwrap(), 200);
        }
    });
    assert_eq!(node.get(&format!("/actor/sql/{b}/get")).expect(200).json(), "");
    assert_eq!(node.metric("wasmkeep_mailbox_events", ""), 0.0);
}

#[test]
fn what_a_callee_does_wrong_is_the_callers_to_handle() {
    let node = Node::start(&["--shards=2"]);
    let [a, b, c] = names();
    for to in [&b, &c] {
        for path in ["/trap", "/no-response", "/short-body", "/unfinished", "/trap-after-head"] {
            let outcome = told(&node, &a, &call(to, path));
            assert!(
                outcome["error"].as_str().is_some_and(|error| error.starts_with("Error::Failed")),
                "{outcome}"
            );
        }
        let outcome = told(&node, &a, &call(to, "/status?code=418"));
        assert_eq!(outcome["ok"]["status"], 418, "a status the callee chose is a response");
    }
    assert_eq!(node.metric("wasmkeep_host_bugs_total", ""), 0.0);
}

#[test]
fn bodies_up_to_the_limit_pass_and_longer_ones_do_not() {
    let node = Node::start(&["--shards=2"]);
    let [a, b, c] = names();
    const LIMIT: usize = 16 << 20;
    for to in [&b, &c] {
        let outcome = told(&node, &a, &call(to, &format!("/stream?bytes={LIMIT}&chunk=60000")));
        assert_eq!(outcome["ok"]["bytes"], LIMIT, "{outcome}");
        let outcome = told(&node, &a, &call(to, &format!("/stream?bytes={}&chunk=60000", LIMIT + 1)));
        assert!(outcome["error"].as_str().unwrap().contains("longer than"), "{outcome}");
        let sent = format!("{}&bytes={LIMIT}&method=POST", call(to, "/count"));
        let outcome = told(&node, &a, &sent);
        assert_eq!(outcome["ok"]["text"], format!("{LIMIT}\n"), "{outcome}");
        let sent = format!("{}&bytes={}&method=POST", call(to, "/count"), LIMIT + 1);
        let outcome = told(&node, &a, &sent);
        assert!(outcome["error"].as_str().unwrap().contains("longer than"), "{outcome}");
    }
}

#[test]
fn access_rules_are_for_requests_from_outside() {
    // R-ACC-1, R-CALL-2
    let node = Node::start(&["--access=counter=existing", "--shards=2"]);
    node.get("/actor/counter/new").expect(404);
    let outcome = told(&node, "maker", "/call?class=counter&name=new&path=%2F&method=POST");
    assert_eq!(outcome["ok"]["text"], "1\n", "a call makes the actor");
    assert_eq!(node.post("/actor/counter/new", "").expect(200).text, "2\n", "and then it exists");
}

#[test]
fn a_bank_moves_money_between_accounts_nobody_else_reaches() {
    // R-CALL-2
    let folder = tempfile::tempdir().unwrap();
    let class = |name: &str| format!("--actor={name}={}", guest(name).display());
    let flags = ["--access=account=internal".to_owned(), "--shards=2".to_owned()];
    let arguments: Vec<_> = [class("bank"), class("account")].into_iter().chain(flags).collect();
    let node = Node::start_with(folder.path(), &arguments);
    let post = |path: &str, body: Value| node.post(&format!("/actor/bank/main{path}"), body.to_string());
    node.get("/actor/account/alice").expect(403);
    post("/deposit", json!({"id": "d1", "to": "alice", "amount": 100})).expect(200);
    for _ in 0..3 {
        let transfer = json!({"id": "t1", "from": "alice", "to": "bob", "amount": 30});
        assert_eq!(post("/transfer", transfer).expect(200).json(), 30, "asked again, booked once");
    }
    let refused =
        post("/transfer", json!({"id": "t2", "from": "alice", "to": "bob", "amount": 71})).expect(409);
    assert_eq!(refused.text, "there is not enough on the account\n");
    for (name, balance) in [("alice", 70), ("bob", 30), ("carol", 0)] {
        let answer = node.get(&format!("/actor/bank/other/balance?of={name}")).expect(200);
        assert_eq!(answer.json(), balance, "{name}");
    }
}
