//! A component that no SDK of ours made: the JavaScript sample, built by its ordinary toolchain.

use crate::support::{self, Node};

#[test]
#[ignore = "needs the JavaScript sample: run scripts/test-js"]
fn an_actor_in_javascript_keeps_its_state() {
    let folder = tempfile::tempdir().unwrap();
    let hello = format!("--actor=hello={}", support::guest("hello").display());
    let node = Node::start_with(folder.path(), std::slice::from_ref(&hello));
    let first = node.post("/actor/hello/alice", "").expect(200).text;
    let second = node.post("/actor/hello/alice", "").expect(200).text;
    assert_ne!(first, second, "it counts");
    node.stop();
    let node = Node::start_with(folder.path(), &[hello]);
    let third = node.post("/actor/hello/alice", "").expect(200).text;
    assert!(third != first && third != second, "{first}{second}{third}: it goes on where it was");
}
