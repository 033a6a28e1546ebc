//! Connections that move to the shard their requests belong to.

use crate::harness::{Server, get, until};

fn moved(server: &Server) -> u64 {
    server.stats.iter().map(|stats| stats.moved_away()).sum()
}

#[test]
fn a_first_request_is_answered_by_the_shard_it_belongs_to() {
    let server = Server::new(2);
    for round in 0..40 {
        let owner = round % 2;
        let mut client = server.connect();
        for _ in 0..3 {
            assert_eq!(client.get(&format!("/shard/{owner}/a")).1, format!("shard {owner}"));
        }
    }
    // The kernel spreads connections by a hash: all 40 on the right shard has a chance of 2^-40.
    assert!(moved(&server) > 0);
    until("all places are free", || server.admission.open() == 0);
}

#[test]
fn what_was_read_already_moves_along() {
    let server = Server::new(2);
    for owner in [0, 1, 0, 1, 0, 1, 0, 1] {
        let mut client = server.connect();
        let path = format!("/shard/{owner}/a");
        let post = format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
        client.send(format!("{post}{}{}", get(&path), &get(&path)[..10]));
        for _ in 0..2 {
            assert_eq!(client.answer(), (200, format!("shard {owner}")));
        }
        client.send(&get(&path)[10..]);
        assert_eq!(client.answer(), (200, format!("shard {owner}")));
    }
}

#[test]
fn an_older_connection_moves_once_its_requests_settle_on_another_shard() {
    let server = Server::new(2);
    let mut client = server.connect();
    // The first request belongs to no shard, so the connection stays where it was accepted.
    let here = client.get("/a").1;
    let (this, other) = if here == "shard 0" { (0, 1) } else { (1, 0) };
    let mut second = server.connect();
    second.get(&format!("/shard/{this}/a"));
    let before = moved(&server);
    let mut ask = |owner: usize| {
        // So that the first is not alone there.
        second.get(&format!("/shard/{this}/a"));
        client.get(&format!("/shard/{owner}/a")).1
    };
    for _ in 0..7 {
        assert_eq!(ask(other), here, "not yet");
    }
    assert_eq!(ask(this), here, "the row is broken");
    for _ in 0..7 {
        assert_eq!(ask(other), here, "not yet again");
    }
    assert_eq!(moved(&server), before);
    for _ in 0..20 {
        assert_eq!(ask(other), format!("shard {other}"), "from the eighth on it is there");
    }
    assert_eq!(moved(&server), before + 1);
    assert_eq!(server.admission.open(), 2, "its place moved with it");
}

#[test]
fn a_connection_that_is_alone_moves_with_each_request_for_another_shard() {
    let server = Server::new(2);
    let mut client = server.connect();
    for _ in 0..10 {
        client.get("/a");
    }
    for round in 0..40 {
        for owner in [round % 2, round / 2 % 2, 0] {
            assert_eq!(client.get(&format!("/shard/{owner}/a")).1, format!("shard {owner}"));
        }
    }
    let alone = moved(&server);
    let mut second = server.connect();
    for _ in 0..10 {
        second.get("/shard/0/a");
        let here = client.get("/a").1;
        let other = if here == "shard 0" { 1 } else { 0 };
        second.get("/shard/0/a");
        second.get("/shard/1/a");
        assert_eq!(client.get(&format!("/shard/{other}/a")).1, here);
    }
    assert!(moved(&server) <= alone + 1);
}

#[test]
fn without_a_budget_older_connections_stay() {
    let server = Server::with(2, 10, |config| config.moves_per_second = 0);
    let mut client = server.connect();
    let here = client.get("/a").1;
    let other = if here == "shard 0" { 1 } else { 0 };
    for _ in 0..30 {
        assert_eq!(client.get(&format!("/shard/{other}/a")).1, here);
    }
}

#[test]
fn a_route_to_a_shard_that_is_not_there_is_served_here() {
    let server = Server::new(1);
    assert!(server.connect().get("/shard/7/a").1.starts_with("shard 0"));
}
