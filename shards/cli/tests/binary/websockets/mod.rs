//! What a node promises of WebSockets, over real sockets (R-WS-1 to R-WS-3).

mod closing;
mod frames;
mod messages;
mod opening;
mod relayed;
mod sleeping;

use crate::support::{Node, guest};

/// A node that serves the sockets sample too.
fn start(flags: &[&str]) -> Node {
    let sockets = format!("--actor=sockets={}", guest("sockets").display());
    Node::start(&[&[&*sockets], flags].concat())
}

impl Node {
    /// What the hooks of `actor` saw, in order.
    fn seen(&self, actor: &str) -> Vec<String> {
        let log = self.get(&format!("/actor/sockets/{actor}/log")).expect(200).json();
        serde_json::from_value(log).unwrap()
    }

    /// The open sockets of `actor`.
    fn connections(&self, actor: &str) -> Vec<serde_json::Value> {
        let answer = self.get(&format!("/actor/sockets/{actor}/connections")).expect(200).json();
        answer["ok"].as_array().unwrap().clone()
    }

    /// Asks `actor` for something; what it answered.
    fn ask(&self, actor: &str, what: &str, body: &str) -> serde_json::Value {
        self.post(&format!("/actor/sockets/{actor}/{what}"), body).expect(200).json()
    }

    /// The id of the only open socket of `actor`.
    fn only(&self, actor: &str) -> u64 {
        let all = self.connections(actor);
        assert_eq!(all.len(), 1, "{all:?}");
        all[0]["id"].as_u64().unwrap()
    }
}
