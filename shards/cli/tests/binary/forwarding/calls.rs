//! Calls between nodes, by whoever knows the cluster's secret and by whoever does not.

use std::{
    net::SocketAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;
use wasmkeep_protocol::{
    ActorId,
    call_signature::{Call, Nonce, Secret},
};

use crate::{
    forwarding::{Member, Other},
    support::{Node, cluster::Bucket, eventually},
    tls::puppet::{Keys, ask},
};

/// A call as the test's node signs it for the node `a`.
struct SignedCall<'a> {
    secret: &'a Secret,
    age: Duration,
    nonce: Nonce,
}

impl SignedCall<'_> {
    /// The bytes of its request.
    fn request(&self) -> String {
        let caller = ActorId { class: "sql".parse().unwrap(), name: "somebody".parse().unwrap() };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let timestamp_ms = u64::try_from((now - self.age).as_millis()).unwrap();
        let (method, path, body) = ("POST", "/actor/counter/called/", b"");
        let signature = self.secret.sign(&Call {
            node: &"a".parse().unwrap(),
            method,
            path,
            body,
            caller: &caller,
            chain: std::slice::from_ref(&caller),
            timestamp_ms,
            nonce: self.nonce,
        });
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\
             x-wasmkeep-call-chain: sql/somebody\r\nx-wasmkeep-call-timestamp: {timestamp_ms}\r\n\
             x-wasmkeep-call-nonce: {}\r\nx-wasmkeep-call-signature: {}\r\nx-wasmkeep-call-time: 9000\r\n\r\n",
            hex(&self.nonce),
            hex(&signature)
        )
    }
}

fn send(keys: &Keys, to: SocketAddr, request: &str) -> String {
    ask(&mut keys.connect(to), request).unwrap()
}

fn call(node: &Node, caller: &str, class: &str, name: &str, path: &str) -> Value {
    node.get(&format!("/actor/sql/{caller}/call?class={class}&name={name}&path={path}")).expect(200).json()
}

// R-CALL-1, R-CALL-2
#[test]
fn a_call_counts_once_within_a_minute_and_a_cycle_is_refused() {
    let bucket = Bucket::new();
    let (a, b) = std::thread::scope(|scope| {
        let start = |id: &'static str| Member::start(&bucket, id, &[]);
        let (a, b) = (scope.spawn(move || start("a")), scope.spawn(move || start("b")));
        (a.join().unwrap(), b.join().unwrap())
    });
    let z = Other::new(&bucket, "z");
    let object = bucket.object("cluster/secret");
    // Behind what the file says of itself.
    let secret = Secret::parse(&object[object.len() - 64..]).unwrap();
    eventually("the test's node is let in", || {
        let health = "GET /_wasmkeep/health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        ask(&mut z.puppet.keys.connect(a.listener), health).is_ok_and(|answer| answer.contains("200 OK"))
    });
    let send = |request: &str| send(&z.puppet.keys, a.listener, request);
    let first = SignedCall { secret: &secret, age: Duration::ZERO, nonce: [1; 16] }.request();
    let answer = send(&first);
    assert!(answer.contains("x-wasmkeep-call-outcome: answered") && answer.ends_with("1\n"), "{answer}");
    let again = send(&first);
    assert!(again.starts_with("HTTP/1.1 403") && again.contains("accepted once already"), "{again}");
    for (age_s, is_taken) in [(61, false), (30, true)] {
        let age = Duration::from_secs(age_s);
        let answer = send(&SignedCall { secret: &secret, age, nonce: [2; 16] }.request());
        assert_eq!(answer.starts_with("HTTP/1.1 200"), is_taken, "{age_s}: {answer}");
        assert_eq!(answer.contains("expired"), !is_taken, "{age_s}: {answer}");
    }
    let forged = Secret::parse(&"0f".repeat(32)).unwrap();
    let answer = send(&SignedCall { secret: &forged, age: Duration::ZERO, nonce: [3; 16] }.request());
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("signature"), "{answer}");
    let said = "bad, expired or misaddressed signature (";
    assert_eq!(a.node.log().matches(said).count(), 1, "{}", a.node.log());
    // What was refused has not run.
    assert_eq!(a.node.get("/actor/counter/called").expect(200).text, "2\n");

    // of-a waits for of-b, which calls of-a.
    b.node.get("/actor/sql/of-b/context").expect(200);
    a.node.get("/actor/sql/of-a/context").expect(200);
    let back = "%2Fcall%3Fclass%3Dsql%26name%3Dof-a%26path%3D%252Fcontext";
    eventually("a knows b", || call(&a.node, "of-a", "sql", "of-b", "%2Fcontext")["ok"].is_object());
    let cycle = call(&a.node, "of-a", "sql", "of-b", back);
    let text = cycle["ok"]["text"].as_str().unwrap_or_default();
    assert!(text.contains("Error::Reentrant"), "{cycle}");
}

// R-CALL-2
#[test]
fn a_malformed_secret_stops_calls_between_nodes() {
    let bucket = Bucket::new();
    let good = "0f".repeat(32);
    let z = Other::new(&bucket, "z");
    z.puppet.put_object("cluster/secret", &good.as_bytes()[1..]);
    let a = Member::start(&bucket, "a", &[]);
    eventually("it is in view", || a.node.get("/actor/counter/of-z").text == "sent");
    let before = z.puppet.seen("call-signature");
    let called = call(&a.node, "caller", "counter", "of-z", "%2F");
    assert!(called["error"].as_str().is_some_and(|error| error.contains("malformed")), "{called}");
    assert_eq!(z.puppet.seen("call-signature"), before);
    // On this node they work, and a call from another is not believed, whatever it is signed with.
    assert!(call(&a.node, "caller", "counter", "here", "%2F")["ok"].is_object());
    let secret = Secret::parse(&good).unwrap();
    let answer = send(
        &z.puppet.keys,
        a.listener,
        &SignedCall { secret: &secret, age: Duration::ZERO, nonce: [1; 16] }.request(),
    );
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("malformed"), "{answer}");
}
