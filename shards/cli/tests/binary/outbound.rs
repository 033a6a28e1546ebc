//! Outbound requests of actors through a whole node, to servers of this test on loopback.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use crate::support::{Node, PATIENCE, eventually, guest};
use serde_json::Value as Json;

const ALLOW: &str = "--allow-outbound=127.0.0.0/8";

/// A server; each connection is a thread that does what it was made with.
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Server {
    fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (counted, serve) = (Arc::clone(&connections), Arc::new(serve));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                counted.fetch_add(1, Ordering::SeqCst);
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let serve = Arc::clone(&serve);
                std::thread::spawn(move || serve(stream));
            }
        });
        Server { address, connections }
    }

    /// Answers with the head it was asked with.
    fn echoing_heads() -> Server {
        Server::start(|mut stream| {
            while let head @ [_, ..] = head(&mut stream).as_slice() {
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", head.len());
                stream.write_all(&[answer.as_bytes(), head].concat()).unwrap();
            }
        })
    }

    /// Sends a byte now and then, and tells when the client has gone.
    fn dripping() -> (Server, mpsc::Receiver<()>) {
        let (gone, ends) = mpsc::channel();
        let server = Server::start(move |mut stream| {
            head(&mut stream);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n").unwrap();
            while stream.write_all(b"d").is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
            let _ = gone.send(());
        });
        (server, ends)
    }

    /// Takes a request and says nothing, and tells when the client has gone.
    fn silent() -> (Server, mpsc::Receiver<()>) {
        let (gone, ends) = mpsc::channel();
        let server = Server::start(move |mut stream| {
            let mut rest = [0; 4096];
            while matches!(stream.read(&mut rest), Ok(1..)) {}
            let _ = gone.send(());
        });
        (server, ends)
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn head(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1..)) {
        head.push(byte[0]);
    }
    head
}

/// What the sql sample says about a request to `url`.
fn ask(node: &Node, url: &str, more: &str) -> Json {
    node.get(&format!("/actor/sql/a/outbound?url={url}{more}")).expect(200).json()
}

#[test]
fn an_actor_reaches_what_the_node_allows_and_nothing_else() {
    // R-FLAG-2, case H9
    let server = Server::echoing_heads();
    let closed = Node::start(&[]);
    let answer = ask(&closed, &server.url(), "");
    assert_eq!(answer["error"], "ErrorCode::DestinationIpProhibited", "{answer}");
    assert!(answer["text"].as_str().unwrap().contains("--allow-outbound"), "{answer}");
    let localhost = format!("http://localhost:{}/", server.address.port());
    assert_eq!(ask(&closed, &localhost, "")["error"], "ErrorCode::DestinationIpProhibited");
    assert_eq!(server.connections(), 0);
    assert_eq!(closed.metric("wasmkeep_outbound_requests_total", "prohibited"), 2.0);

    let open = Node::start(&["--allow-outbound=10.9.8.0/24", ALLOW]);
    let answer = ask(&open, &server.url(), "");
    assert_eq!(answer["status"], 200, "{answer}");
    assert_eq!(ask(&open, &localhost, "")["status"], 200);
    assert_eq!(open.metric("wasmkeep_outbound_requests_total", "answered"), 2.0);
}

#[test]
fn headers_of_the_connection_and_of_the_platform_stay_here() {
    let server = Server::echoing_heads();
    let node = Node::start(&[ALLOW]);
    for (header, passes) in [
        ("x-mine:1", true),
        ("authorization:secret", true),
        ("user-agent:mine", true),
        ("connection:close", false),
        ("transfer-encoding:chunked", false),
        ("upgrade:websocket", false),
        ("te:trailers", false),
        ("proxy-authorization:secret", false),
        ("x-wasmkeep-caller:sql/b", false),
    ] {
        let answer = ask(&node, &server.url(), &format!("&header={header}"));
        let seen = answer["body"].as_str().unwrap().to_ascii_lowercase();
        assert_eq!(seen.contains(&header.replacen(':', ": ", 1)), passes, "{header}: {seen}");
    }
    let answer = ask(&node, &server.url(), "&header=host:elsewhere");
    assert!(answer["text"].as_str().unwrap().contains("a header"), "{answer}");
    let answer = ask(&node, &server.url(), "&method=CONNECT");
    assert_eq!(answer["error"], "ErrorCode::HttpRequestMethodInvalid", "{answer}");
}

#[test]
fn the_environments_proxy_is_not_asked() {
    // case H9
    let proxy = Server::echoing_heads();
    let server = Server::echoing_heads();
    let variables: Vec<_> = ["http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"]
        .map(|name| (name, proxy.url()))
        .into_iter()
        .collect();
    let node = Node::start_in(&variables, &[ALLOW]);
    assert_eq!(ask(&node, &server.url(), "")["status"], 200);
    assert_eq!((proxy.connections(), server.connections()), (0, 1));
}

#[test]
fn https_is_spoken_with_servers_whose_certificate_is_trusted() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key);
    let config = Arc::new(config.unwrap());
    let server = Server::start(move |mut stream| {
        let mut session = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut tls = rustls::Stream::new(&mut session, &mut stream);
        if matches!(tls.read(&mut [0; 4096]), Ok(1..)) {
            tls.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret").unwrap();
        }
    });
    let url = format!("https://localhost:{}/", server.address.port());
    let folder = tempfile::tempdir().unwrap();
    let trusted = folder.path().join("trusted.pem");
    std::fs::write(&trusted, made.cert.pem()).unwrap();
    let node = Node::start_in(&[("SSL_CERT_FILE", trusted.display().to_string())], &[ALLOW]);
    let answer = ask(&node, &url, "");
    assert_eq!((&answer["status"], &answer["body"]), (&Json::from(200), &Json::from("secret")), "{answer}");
    let by_address = format!("https://127.0.0.1:{}/", server.address.port());
    assert_eq!(ask(&node, &by_address, "")["error"], "ErrorCode::TlsCertificateError");
    assert_eq!(ask(&Node::start(&[ALLOW]), &url, "")["error"], "ErrorCode::TlsCertificateError");
    assert_eq!(node.metric("wasmkeep_outbound_requests_total", "tls"), 1.0);
}

#[test]
fn bodies_stream_through_an_actor_in_both_directions() {
    let server = Server::start(|mut stream| {
        let head = String::from_utf8(head(&mut stream)).unwrap();
        assert!(head.contains("transfer-encoding: chunked"), "{head}");
        let mut body = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        while !body.ends_with(b"\r\n0\r\n\r\n") {
            let read = stream.read(&mut buffer).unwrap();
            body.extend_from_slice(&buffer[..read]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
        stream.write_all(&body).unwrap();
    });
    let node = Node::start(&[ALLOW, "--event-limit-secs=20"]);
    let body = vec![b'z'; 3_000_000];
    let path = format!("/actor/sql/a/outbound?method=POST&pass=1&url={}", server.url());
    let answer = node.post(&path, &body).expect(200).json();
    assert_eq!((&answer["status"], &answer["bytes"]), (&Json::from(200), &Json::from(3_000_000)), "{answer}");
    assert_eq!(answer["broken"], Json::Null);
}

#[test]
fn a_client_that_reads_slowly_holds_the_server_back_through_the_actor() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let server = Server::start(move |mut stream| {
        head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        while stream.write_all(&[b'x'; 64 << 10]).is_ok() {
            counted.fetch_add(64 << 10, Ordering::SeqCst);
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let mirror = format!("--actor=mirror={}", guest("mirror").display());
    let node = Node::start_with(folder.path(), &[mirror, ALLOW.to_owned()]);
    let mut client = node.connect();
    write!(client, "GET /actor/mirror/m/through?url={} HTTP/1.1\r\nhost: h\r\n\r\n", server.url()).unwrap();
    client.read_exact(&mut [0; 64]).unwrap();
    let steady = || {
        let before = sent.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(300));
        sent.load(Ordering::SeqCst) == before
    };
    eventually("the server waits", steady);
    assert!(sent.load(Ordering::SeqCst) < 64 << 20);
    drop(client);
    eventually("the request has ended", || node.metric("wasmkeep_outbound_open", "") == 0.0);
}

#[test]
fn the_events_limit_ends_a_request_that_drips_or_says_nothing() {
    // cases T2, H6
    let node = Node::start(&[ALLOW, "--event-limit-secs=1"]);
    for (server, ends) in [Server::dripping(), Server::silent()] {
        let began = Instant::now();
        let answer = node.get(&format!("/actor/sql/a/outbound?url={}", server.url())).expect(500);
        assert!(answer.text.contains("longer than its limit of 1 s"), "{}", answer.text);
        assert!(began.elapsed() < PATIENCE / 2);
        ends.recv_timeout(PATIENCE).expect("the connection is closed");
    }
    node.get("/actor/sql/a/get").expect(200);
    eventually("both were given up", || {
        node.metric("wasmkeep_outbound_requests_total", "given_up") == 2.0
            && node.metric("wasmkeep_outbound_open", "") == 0.0
    });
    assert_eq!(node.metric("wasmkeep_host_bugs_total", ""), 0.0);
}

#[test]
fn what_an_event_leaves_open_ends_with_it() {
    // case H6
    let node = Node::start(&[ALLOW]);
    let (silent, ends) = Server::silent();
    let path = format!("/actor/sql/a/outbound-many?keep=1&count=3&url={}", silent.url());
    node.get(&path).expect(200);
    for _ in 0..3 {
        ends.recv_timeout(PATIENCE).expect("the connection is closed");
    }
    // An answer whose body was not read.
    let (dripping, ends) = Server::dripping();
    assert_eq!(ask(&node, &dripping.url(), "&read=0")["status"], 200);
    ends.recv_timeout(PATIENCE).expect("the connection is closed");
    assert_eq!(ask(&node, &dripping.url(), "&read=3")["body"], "ddd");
    ends.recv_timeout(PATIENCE).expect("the connection is closed");
    eventually("none is open", || node.metric("wasmkeep_outbound_open", "") == 0.0);
    let kept = node.get("/actor/sql/a/outbound-kept").expect(200).json();
    assert_eq!(kept.as_array().unwrap().len(), 3, "{kept}");
    for state in kept.as_array().unwrap() {
        assert_eq!(state, "ErrorCode::ConnectionTerminated", "{kept}");
    }
}

#[test]
fn one_actor_has_its_share_of_requests_and_no_more() {
    let node = Node::start(&[ALLOW, "--event-limit-secs=2"]);
    let answering = Server::echoing_heads();
    let many = |url: &str| node.get(&format!("/actor/sql/a/outbound-many?count=40&url={url}"));
    let states = many(&answering.url()).expect(200).json();
    let count = |what: &str| states.as_array().unwrap().iter().filter(|state| **state == what).count();
    assert_eq!(count("200") + count("ErrorCode::ConnectionLimitReached"), 40, "{states}");
    assert!(count("ErrorCode::ConnectionLimitReached") <= 8 && count("200") >= 32, "{states}");
    let (silent, _ends) = Server::silent();
    many(&silent.url()).expect(500);
    assert_eq!(silent.connections(), 32);
    assert!(node.metric("wasmkeep_outbound_requests_total", "over_limit") >= 8.0);
}

#[test]
fn an_outbound_request_holds_no_core() {
    let node = Node::start(&[ALLOW, "--shards=1", "--event-limit-secs=5"]);
    let (silent, _ends) = Server::silent();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| ask(&node, &silent.url(), "&first_ms=1500&connect_ms=100"));
        eventually("it waits", || node.metric("wasmkeep_outbound_open", "") == 1.0);
        for _ in 0..20 {
            node.post("/actor/counter/neighbour", "").expect(200);
        }
        assert_eq!(waiting.join().unwrap()["error"], "ErrorCode::ConnectionReadTimeout");
    });
    assert_eq!(node.metric("wasmkeep_outbound_requests_total", "timeout"), 1.0);
}

#[test]
fn a_request_body_that_ends_early_is_not_sent_as_a_whole_one() {
    let (whole, ends) = mpsc::channel();
    let server = Server::start(move |mut stream| {
        head(&mut stream);
        let mut body = Vec::new();
        let _ = stream.read_to_end(&mut body);
        let _ = whole.send(body.ends_with(b"0\r\n\r\n"));
    });
    let node = Node::start(&[ALLOW]);
    let answer = ask(&node, &server.url(), "&method=POST&body=1000&stall=1");
    assert!(answer["text"].as_str().unwrap().contains("half is enough"), "{answer}");
    assert!(!ends.recv_timeout(PATIENCE).unwrap(), "the end of the body was not said");
}

#[test]
fn the_mirror_of_the_guide_keeps_copies() {
    let changed = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&changed);
    let server = Server::start(move |mut stream| {
        while let head @ [_, ..] = head(&mut stream).as_slice() {
            counted.fetch_add(1, Ordering::SeqCst);
            let confirmed = String::from_utf8_lossy(head).contains("if-none-match: \"1\"");
            let answer: &[u8] = if confirmed {
                b"HTTP/1.1 304 Not Modified\r\netag: \"1\"\r\n\r\n"
            } else {
                b"HTTP/1.1 200 OK\r\netag: \"1\"\r\ncontent-type: text/plain\r\ncontent-length: 4\r\n\r\npage"
            };
            stream.write_all(answer).unwrap();
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let values = folder.path().join("values");
    std::fs::write(&values, "MAX_AGE_SECS=0\n").unwrap();
    let class = |name: &str| format!("--actor={name}={}", guest("mirror").display());
    let fresh = format!("--env=fresh={}", values.display());
    let node = Node::start_with(folder.path(), &[class("mirror"), class("fresh"), fresh, ALLOW.to_owned()]);
    let path = |class: &str, place: &str| format!("/actor/{class}/m{place}?url={}", server.url());
    let page = |class: &str| node.get(&path(class, "")).expect(200);
    for source in ["fetched", "kept", "kept"] {
        let answer = page("mirror");
        assert_eq!((answer.text.as_str(), answer.header("x-mirror")), ("page", Some(source)));
        assert_eq!(answer.header("content-type"), Some("text/plain"));
    }
    assert_eq!(changed.load(Ordering::SeqCst), 1);
    page("fresh");
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(page("fresh").header("x-mirror"), Some("confirmed"));
    assert_eq!(node.get(&path("mirror", "/through")).expect(200).text, "page");
    assert_eq!(node.post(&path("mirror", ""), "x").expect(200).text, "page");
    assert_eq!(node.get("/actor/mirror/m/list").expect(200).text, format!("4 {}\n", server.url()));
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let answer = node.get(&format!("/actor/mirror/m?url=http://{nobody}/")).expect(502);
    assert!(answer.text.contains("refused"), "{}", answer.text);
}
