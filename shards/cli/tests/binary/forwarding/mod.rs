//! What a node makes of what it sends to others: once, to whom the record names, with the answer that the other gave or a
//! sentence of its own. The other nodes are played by the test.

mod calls;

use std::{
    io::{Read, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    support::{
        self, Answer, Node,
        cluster::{Bucket, REAL_TTL, listener_address},
        eventually, guest,
    },
    tls::puppet::{Puppet, ReadWrite},
};
use tempfile::TempDir;

/// A real node that talks to others by its listener, and its disk.
struct Member {
    node: Node,
    listener: std::net::SocketAddr,
    _disk: TempDir,
}

impl Member {
    fn start(bucket: &Bucket, id: &str, more: &[&str]) -> Self {
        let listener = listener_address();
        let class = |name: &str| format!("--actor={name}={}", guest(name).display());
        let mut flags: Vec<_> = ["counter", "sql", "sockets"].map(class).into();
        let has_shards = more.iter().any(|flag| flag.starts_with("--shards"));
        flags.extend(bucket.encrypted(
            id,
            listener,
            &[&["--advertise=http://127.0.0.1:1", REAL_TTL], more].concat(),
        ));
        if has_shards {
            flags.retain(|flag| flag != "--shards=1");
        }
        let disk = tempfile::tempdir().unwrap();
        let node = Node::start_with(disk.path(), &flags);
        // Before that it asks nobody who may not know its certificate.
        eventually("it is ready", || node.get("/_wasmkeep/ready").status == 200);
        Self { node, listener, _disk: disk }
    }
}

/// Another node, with its lease renewed as long as this lives.
struct Other {
    puppet: Arc<Puppet>,
    beating: Arc<AtomicBool>,
}

impl Other {
    /// It has the actors `counter/of-ID` and `sockets/of-ID`.
    fn new(bucket: &Bucket, id: &'static str) -> Self {
        let puppet = Puppet::new(bucket, id, serve);
        let beating = Arc::new(AtomicBool::new(true));
        puppet.keep_beating(&beating);
        for class in ["counter", "sockets"] {
            puppet.take(class, &format!("of-{id}"));
        }
        Self { puppet, beating }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.beating.store(false, Ordering::Relaxed);
    }
}

/// How it serves its actors, by what is in the request's head; whether it leaves the connection open.
fn serve(head: &str, stream: &mut dyn ReadWrite) -> bool {
    const DISOWNED: &str = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nx-wasmkeep-elsewhere: 1\r\n\
         x-wasmkeep-call-outcome: overloaded\r\ncontent-length: 4\r\n\r\ngone";
    let is_upgrade = head.contains("upgrade: websocket");
    let answer = if head.contains("/disown") || (head.contains("/of-h") && !HAS.load(Ordering::Relaxed)) {
        DISOWNED
    } else if head.contains("/silent") {
        std::thread::sleep(support::PATIENCE);
        return false;
    } else if head.contains("/cut") {
        return false;
    } else if is_upgrade {
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
         sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
    } else if head.contains("x-wasmkeep-call-signature") {
        "HTTP/1.1 200 OK\r\nx-wasmkeep-call-outcome: answered\r\ncontent-length: 6\r\n\r\ncalled"
    } else {
        "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nsent"
    };
    stream.write_all(answer.as_bytes()).is_ok()
        && stream.flush().is_ok()
        && (is_upgrade || !head.contains("/last"))
}

/// Whether the node `h` has its actors.
static HAS: AtomicBool = AtomicBool::new(true);

/// Requests that were kept, however their waits ended.
fn kept(node: &Node) -> f64 {
    node.metric("wasmkeep_failover_waits_total", "")
}

/// Has the other node close the connection on which it answers, and waits until it has.
fn last_on_its_connection(a: &Member, other: &Puppet, path: &str) {
    let closed = other.closed.load(Ordering::Relaxed);
    assert_eq!(a.node.post(path, "x").expect(200).text, "sent");
    eventually("the connection is closed", || other.closed.load(Ordering::Relaxed) > closed);
}

#[track_caller]
fn assert_refused(answer: &Answer, sentence: &str) {
    let retry = answer.header("retry-after");
    assert_eq!((answer.status, retry, answer.text.trim()), (503, Some("1"), sentence));
}

const NOT_ANSWERED: &str = "the actor's node did not answer; retry";
const NOT_REACHABLE: &str = "the actor's node is not reachable; retry";

// R-FWD-1, R-FWD-2, R-FWD-3, R-WAIT-4
#[test]
fn what_is_sent_to_another_node_is_sent_once_and_its_failures_are_its_own() {
    let bucket = Bucket::new();
    let a = Member::start(&bucket, "a", &[]);
    let [d, c, s, m, h] = ["d", "c", "s", "m", "h"].map(|id| Other::new(&bucket, id));
    let waits_for_view = |other: &str| {
        eventually("it is in view", || a.node.get(&format!("/actor/counter/of-{other}")).text == "sent");
    };
    ["d", "c", "s", "m", "h"].into_iter().for_each(waits_for_view);
    let before = kept(&a.node);
    std::thread::scope(|scope| {
        scope.spawn(|| an_actor_that_its_node_does_not_serve_makes_nobody_suspect_the_node(&a, &d.puppet));
        scope.spawn(|| what_may_have_been_read_is_never_sent_again(&a, &c.puppet));
        scope.spawn(|| a_node_that_does_not_answer_in_time_costs_a_504(&a, &s.puppet));
        scope.spawn(|| what_is_disowned_goes_to_whoever_has_the_actor(&a, &h.puppet));
    });
    assert_eq!(kept(&a.node), before);
    a_connection_that_cannot_be_opened_costs_one_wait(&a, &m.puppet);
    assert_eq!(a.node.metric("wasmkeep_host_bugs_total", ""), 0.0);
}

fn an_actor_that_its_node_does_not_serve_makes_nobody_suspect_the_node(a: &Member, d: &Puppet) {
    let disowned = a.node.get("/actor/counter/of-d/disown");
    assert_refused(&disowned, "gone");
    // Its other requests are sent, and not kept as they are for a node that may be gone.
    let answer = a.node.get("/actor/counter/of-d/next").expect(200);
    assert_eq!((&*answer.text, answer.header("x-wasmkeep-node")), ("sent", Some("d")));
    assert_eq!(d.seen("/next"), 1);
}

fn what_may_have_been_read_is_never_sent_again(a: &Member, c: &Puppet) {
    for (n, method) in ["POST", "GET"].into_iter().enumerate() {
        let answer = a.node.request(method, "/actor/counter/of-c/cut", b"");
        assert_refused(&answer, NOT_ANSWERED);
        assert_eq!(c.seen("/cut"), n + 1, "{method}");
    }
    // A connection kept open that the node has closed costs nothing.
    for n in 1..=3 {
        last_on_its_connection(a, c, "/actor/counter/of-c/last");
        assert_eq!(c.seen("/last"), n);
    }
}

fn a_node_that_does_not_answer_in_time_costs_a_504(a: &Member, s: &Puppet) {
    let began = Instant::now();
    let answer = a.node.post("/actor/counter/of-s/silent", "x");
    assert_eq!((answer.status, answer.text.trim()), (504, "the actor's node did not answer in time"));
    assert!(began.elapsed() >= Duration::from_secs(30), "{:?}", began.elapsed());
    assert_eq!(s.seen("/silent"), 1);
}

/// A hint that is wrong costs one answer, which is not its caller's, and no more.
fn what_is_disowned_goes_to_whoever_has_the_actor(a: &Member, h: &Puppet) {
    let call = || {
        let answer = a.node.get("/actor/sql/caller/call?class=counter&name=of-h&path=%2F").expect(200);
        answer.json()["ok"]["text"].as_str().map(|text| text.trim().to_owned())
    };
    assert_eq!(call().as_deref(), Some("called"));
    assert_eq!(a.node.socket("/actor/sockets/of-h").answer.header("x-wasmkeep-node"), Some("h"));
    HAS.store(false, Ordering::Relaxed);
    for class in ["counter", "sockets"] {
        h.release(class, "of-h");
    }
    let socket = a.node.socket("/actor/sockets/of-h");
    assert_eq!(socket.answer.header("x-wasmkeep-node"), Some("a"));
    assert_eq!(call().as_deref(), Some("0"));
    assert_eq!(call().as_deref(), Some("0"));
    assert_eq!(a.node.post("/actor/counter/of-h", "").expect(200).text, "1\n");
}

/// R-FWD-3
fn a_connection_that_cannot_be_opened_costs_one_wait(a: &Member, m: &Puppet) {
    // The connection is closed behind the answer, and the node remembered.
    last_on_its_connection(a, m, "/actor/counter/of-m/last");
    m.mute.store(true, Ordering::Relaxed);
    let before = m.accepted.load(Ordering::Relaxed);
    let began = Instant::now();
    let answer = a.node.post("/actor/counter/of-m/write", "x");
    assert_refused(&answer, NOT_ANSWERED);
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(29), "{took:?}");
    assert_eq!(m.accepted.load(Ordering::Relaxed) - before, 1);
    assert_eq!(m.seen("/write"), 0);
}

// R-WAIT-3
#[test]
fn the_caps_of_kept_requests_are_the_nodes_and_not_a_shards() {
    let bucket = Bucket::new();
    // Silent already, and fenced once the node has watched it.
    let silent = Puppet::new(&bucket, "silent", serve);
    silent.take("counter", "of-silent");
    bucket.change_heartbeat("silent", |record| record.written_at_ms -= 11_000);
    let a = Member::start(&bucket, "a", &["--shards=2", "--max-connections=400", "--max-resident=100"]);
    let mut clients: Vec<_> = (0..65).map(|_| a.node.connect()).collect();
    for client in &mut clients {
        let request = b"GET /actor/counter/of-silent HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        client.write_all(request).unwrap();
    }
    let answers: Vec<String> = clients
        .into_iter()
        .map(|mut client| {
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            answer
        })
        .collect();
    let starting = |with: &str| answers.iter().filter(|answer| answer.starts_with(with)).count();
    assert_eq!((starting("HTTP/1.1 200"), starting("HTTP/1.1 503")), (64, 1), "{answers:?}");
    assert_eq!(a.node.metric("wasmkeep_failover_waits_total", "outcome=\"served\""), 64.0);
    assert_eq!(a.node.metric("wasmkeep_failover_waits_total", "outcome=\"over_cap\""), 1.0);
}

// R-WAIT-5
#[test]
fn without_waits_every_request_is_answered_at_once() {
    let bucket = Bucket::new();
    let a = Member::start(&bucket, "a", &["--failover-wait-secs=0"]);
    let (gone, silent) = (Other::new(&bucket, "gone"), Other::new(&bucket, "quiet"));
    for other in ["gone", "quiet"] {
        eventually("it is in view", || a.node.get(&format!("/actor/counter/of-{other}")).text == "sent");
    }
    // Nothing could be sent to it.
    last_on_its_connection(&a, &gone.puppet, "/actor/counter/of-gone/last");
    gone.puppet.mute.store(true, Ordering::Relaxed);
    let before = gone.puppet.accepted.load(Ordering::Relaxed);
    for n in 1..=2 {
        assert_refused(&a.node.get("/actor/counter/of-gone/read"), NOT_ANSWERED);
        assert_eq!(gone.puppet.accepted.load(Ordering::Relaxed) - before, n);
    }
    // Its heartbeat left the view.
    silent.beating.store(false, Ordering::Relaxed);
    eventually("it is answered for", || a.node.get("/actor/counter/of-quiet").text.trim() == NOT_REACHABLE);
    assert_refused(&a.node.get("/actor/counter/of-quiet"), NOT_REACHABLE);
    assert_eq!(kept(&a.node), 0.0);
}
