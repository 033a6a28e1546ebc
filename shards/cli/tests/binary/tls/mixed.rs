//! Nodes with and without a cluster listener in one cluster (R-TLS-3).

use serde_json::json;

use crate::{
    support::{
        self, Node,
        cluster::{Bucket, listener_address},
        eventually,
    },
    tls::classes,
};

/// One of three: `plain` has no listener, `both` has one and accepts plain HTTP, `strict` has one and refuses it.
fn start(bucket: &Bucket, id: &str) -> (Node, tempfile::TempDir) {
    let listener = listener_address();
    let mut flags = classes();
    flags.extend(match id {
        "plain" => bucket.flags(id, &[]),
        _ => bucket.encrypted(id, listener, &[]),
    });
    if id == "both" {
        flags.push("--cluster-plaintext=accept".to_owned());
    }
    let disk = tempfile::tempdir().unwrap();
    (Node::start_with(disk.path(), &flags), disk)
}

// R-TLS-3, R-OPS-1
#[test]
fn nodes_without_a_listener_are_used_by_those_that_accept_plain_http_alone() {
    let bucket = Bucket::new();
    let [(plain, _d1), (both, _d2), (strict, _d3)] = std::thread::scope(|scope| {
        let bucket = &bucket;
        ["plain", "both", "strict"]
            .map(|id| scope.spawn(move || start(bucket, id)))
            .map(|node| node.join().unwrap())
    });
    let nodes = [("plain", &plain), ("both", &both), ("strict", &strict)];
    for (id, node) in nodes {
        node.get(&format!("/actor/counter/of-{id}")).expect(200);
        node.get(&format!("/actor/sockets/of-{id}/made")).expect(200);
    }
    for (from, owner, reached) in [
        ("both", "plain", true),
        ("plain", "both", true),
        ("both", "strict", true),
        ("strict", "both", true),
        // As a client of it.
        ("plain", "strict", true),
        ("strict", "plain", false),
    ] {
        let node = nodes.iter().find(|(id, _)| *id == from).unwrap().1;
        let path = format!("/actor/counter/of-{owner}");
        if reached {
            eventually("they know each other", || node.get(&path).status == 200);
            assert_eq!(node.get(&path).header("x-wasmkeep-node"), Some(owner), "from {from}");
            continue;
        }
        eventually("they know each other", || node.get(&path).text.contains("uses no plain HTTP"));
        assert_eq!(node.get(&path).status, 503);
        let socket = node.try_socket(&format!("/actor/sockets/of-{owner}"), "").err().unwrap();
        assert_eq!(socket.status, 503);
    }
    calls_count_where_they_may(&plain, &both, &strict);
    let told = strict.log().matches("nodes without a cluster listener are not used").count();
    assert_eq!(told, 1, "{}", strict.log());
    assert!(!plain.log().contains("public address"), "{}", plain.log());
    what_status_says(&bucket);
}

fn calls_count_where_they_may(plain: &Node, both: &Node, strict: &Node) {
    let deposit = |node: &Node, bank: &str, to: &str, id: &str| {
        let wish = json!({ "id": id, "to": to, "amount": 5 }).to_string();
        node.post(&format!("/actor/bank/{bank}/deposit"), wish)
    };
    // Each account becomes its bank's node's.
    for (node, bank, account) in
        [(plain, "p", "at-plain"), (both, "b", "at-both"), (strict, "s", "at-strict")]
    {
        deposit(node, bank, account, &format!("first of {bank}")).expect(200);
    }
    for (node, bank, account, passes) in [
        (both, "b", "at-plain", true),
        (plain, "p", "at-both", true),
        (both, "b", "at-strict", true),
        (strict, "s", "at-both", true),
        // A plain call to a node that refuses plain HTTP is a client's request, and the class is internal.
        (plain, "p", "at-strict", false),
        (strict, "s", "at-plain", false),
    ] {
        let answer = deposit(node, bank, account, &format!("{bank} {account}"));
        assert_eq!(answer.status == 200, passes, "{bank} to {account}: {}", answer.text);
    }
}

fn what_status_says(bucket: &Bucket) {
    let url = format!("--bucket=file://{}", bucket.0.path().display());
    let (_, stdout, stderr) = support::run(support::wasmkeep().args(["cluster", "status"]).arg(url));
    let text = format!("{stdout}{stderr}");
    assert!(text.contains("TLS: 2 with a cluster listener, 1 plain"), "{text}");
    assert!(text.contains("plain HTTP and TLS between nodes are mixed: plain without"), "{text}");
    let row = stdout.lines().find(|line| line.starts_with("strict")).unwrap();
    assert!(row.contains("https://127.") && row.contains("pinned"), "{row}");
}
