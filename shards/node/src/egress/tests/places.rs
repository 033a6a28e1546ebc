//! Where requests go, and where they do not. No packet leaves the machine: what is not allowed is on loopback.

use std::{
    io::Write,
    net::IpAddr,
    sync::atomic::{AtomicUsize, Ordering},
};

use wasmkeep_host::outbound::OutboundError;

use super::kit::{Client, Server, head};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Two servers on one port, of which a client may reach the second.
fn pair() -> (Server, Server) {
    let answer = |mut stream| {
        while !head(&mut stream).is_empty() {
            stream.write_all(OK.as_bytes()).unwrap();
        }
    };
    loop {
        let reachable = Server::on("127.0.0.2:0", answer);
        let address = format!("127.0.0.1:{}", reachable.address.port());
        if std::net::TcpListener::bind(&address).is_ok() {
            return (Server::on(&address, answer), reachable);
        }
    }
}

// case H9
#[test]
fn an_address_in_a_url_is_not_connected_to_unless_it_is_allowed() {
    let server = Server::answering(OK);
    let port = server.address.port();
    let client = Client::new(&[]);
    for host in ["127.0.0.1", "127.1", "0x7f000001", "0", "[::ffff:127.0.0.1]", "[::]", "[::1]"] {
        let answer = client.get(&format!("http://{host}:{port}/"));
        assert!(matches!(answer, Err(OutboundError::DestinationIpProhibited)), "{host}: {answer:?}");
    }
    assert_eq!((server.connections(), client.counted("prohibited")), (0, 7));
    assert_eq!(Client::new(&["127.0.0.1"]).get(&server.url()).unwrap().0, 200);
}

// case H9
#[test]
fn the_names_of_this_machine_are_judged_by_their_addresses() {
    let server = Server::answering(OK);
    let system = Client::new(&[]);
    // Not every system's resolver knows it without asking a server for the form with a dot.
    let dotted = Client::looking_up(&[], || Some(addresses(&["127.0.0.1", "::1"])));
    for (client, host) in [(&system, "localhost"), (&system, "LOCALHOST"), (&dotted, "localhost.")] {
        let answer = client.get(&format!("http://{host}:{}/", server.address.port()));
        assert!(matches!(answer, Err(OutboundError::DestinationIpProhibited)), "{host}: {answer:?}");
    }
    assert_eq!(server.connections(), 0);
}

// case H9
#[test]
fn of_a_names_addresses_only_the_reachable_one_gets_a_connection() {
    let (private, reachable) = pair();
    let url = format!("http://both.test:{}/", reachable.address.port());
    let client =
        Client::looking_up(&["127.0.0.2"], || Some(addresses(&["127.0.0.1", "127.0.0.2", "10.0.0.1"])));
    assert_eq!(client.get(&url).unwrap().0, 200);
    assert_eq!((private.connections(), reachable.connections()), (0, 1));
    let none = Client::looking_up(&["127.0.0.2"], || Some(addresses(&["127.0.0.1", "169.254.169.254"])));
    assert!(matches!(none.get(&url), Err(OutboundError::DestinationIpProhibited)));
    assert_eq!(private.connections(), 0);
}

// case H9
#[test]
fn a_name_that_changes_between_check_and_connection_gains_nothing() {
    let (private, reachable) = pair();
    let url = format!("http://rebinding.test:{}/", reachable.address.port());
    let asked = AtomicUsize::new(0);
    let client = Client::looking_up(&["127.0.0.2"], move || {
        let first = asked.fetch_add(1, Ordering::SeqCst) == 0;
        Some(addresses(&[if first { "127.0.0.2" } else { "127.0.0.1" }]))
    });
    // The second request finds the connection that was checked; a new one would be checked anew.
    for _ in 0..2 {
        assert_eq!(client.get(&url).unwrap().0, 200);
        let_it_be_kept();
    }
    assert_eq!((private.connections(), reachable.connections()), (0, 1));
}

/// A connection is kept for the next request a moment after its answer has ended.
fn let_it_be_kept() {
    std::thread::sleep(std::time::Duration::from_millis(50));
}

// case H9
#[test]
fn a_redirect_is_an_answer() {
    let server =
        Server::answering("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n");
    let client = Client::new(&["127.0.0.1"]);
    assert_eq!(client.get(&server.url()).unwrap().0, 302);
    assert_eq!(server.connections(), 1);
}

#[test]
fn requests_to_one_place_share_a_connection() {
    let server = Server::answering(OK);
    let client = Client::new(&["127.0.0.0/8"]);
    for _ in 0..5 {
        assert_eq!(client.get(&server.url()).unwrap().1, "ok");
        let_it_be_kept();
    }
    assert_eq!((server.connections(), client.counted("answered"), client.open()), (1, 5, 0));
}

#[test]
fn a_connection_that_the_server_closed_meanwhile_is_replaced() {
    // case H3, of an actor's own requests
    let server = Server::start(|mut stream| {
        head(&mut stream);
        stream.write_all(OK.as_bytes()).unwrap();
    });
    let client = Client::new(&["127.0.0.0/8"]);
    for round in 1..=3 {
        assert_eq!(client.get(&server.url()).unwrap().1, "ok");
        assert_eq!(server.connections(), round);
        // The client learns of the close when it looks.
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}
