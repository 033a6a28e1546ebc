//! Nodes that share a bucket in a folder.
//!
//! Their leases are short, in the proportions of the real ones: what takes 15 s to the documented timings takes 6 s, and
//! a node that gets no processor for 2 s still keeps its lease. Tests of documented figures ask for [`REAL_TTL`].

use std::{
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tempfile::TempDir;
use wasmkeep_bucket::{Bucket as _, FileBucket, Precondition};
use wasmkeep_protocol::{
    lease::Timing,
    records::{NodeRecord, NodeState, Nonce, Presence, Process, Shape},
};

use super::{Node, eventually};

/// An address for a listener whose port has to be known before it listens: on a loopback address that nobody else
/// picks.
pub fn listener_address() -> SocketAddr {
    let [a, b, c, _] = rand::random::<[u8; 4]>();
    SocketAddr::from(([127, a, b, c.max(2)], 7443))
}

/// The flag that gives nodes short leases.
pub const SHORT_TTL: &str = "--lease-ttl-ms=4000";

/// The flag that gives them what they have without one.
pub const REAL_TTL: &str = "--lease-ttl-ms=10000";

/// The timings of short leases.
pub fn timing() -> Timing {
    Timing::of_ttl(Duration::from_secs(4))
}

/// The heartbeat of a node that stopped cleanly an hour ago: the next process with its id has nothing to wait for.
pub fn stopped_long_ago() -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() - Duration::from_secs(3600);
    let record = NodeRecord {
        process: Process::from_bits(1),
        sequence: 1,
        nonce: Nonce::from_bits(1),
        state: NodeState::Released,
        written_at_ms: now.as_millis() as u64,
        ttl: Timing::default().ttl,
        shape: Shape::NONE,
        presence: Arc::new(Presence { advertise: "http://127.0.0.1:1".into(), ..Presence::default() }),
    };
    record.encode()
}

/// A cluster of its own, in a folder.
pub struct Bucket(pub TempDir);

impl Bucket {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Flags of a node whose id was used before, unless [`Bucket::forget`] follows: so it need not watch the id.
    pub fn flags(&self, id: &str, more: &[&str]) -> Vec<String> {
        self.create(&format!("nodes/{id}"), stopped_long_ago());
        let mut flags = vec![
            format!("--bucket=file://{}", self.0.path().display()),
            format!("--node-id={id}"),
            "--cluster-plaintext=accept".to_owned(),
            "--shards=1".to_owned(),
        ];
        if !more.iter().any(|flag| flag.starts_with("--lease-ttl-ms")) {
            flags.push(SHORT_TTL.to_owned());
        }
        flags.extend(more.iter().map(ToString::to_string));
        flags
    }

    /// Puts an object unless there is one.
    fn create(&self, key: &str, body: Vec<u8>) {
        let bucket = FileBucket::open(self.0.path()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let key = key.parse().unwrap();
        // One that is there is not written over.
        let _ = runtime.block_on(bucket.put(&key, body.into(), &Precondition::Absent));
    }

    /// Removes a node's heartbeat, as if the id had never been used.
    pub fn forget(&self, id: &str) {
        std::fs::remove_file(self.0.path().join(format!("objects/nodes/{id}#"))).unwrap();
    }

    /// Reads a node's heartbeat and writes what `change` makes of it.
    pub fn change_heartbeat(&self, id: &str, change: impl FnOnce(&mut NodeRecord)) {
        let bucket = FileBucket::open(self.0.path()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let key = format!("nodes/{id}").parse().unwrap();
        runtime.block_on(async {
            let bytes = bucket.get(&key, None).await.unwrap().bytes(u64::MAX).await.unwrap();
            let mut record = NodeRecord::decode(&bytes).unwrap();
            change(&mut record);
            let put = bucket.put(&key, record.encode().into(), &Precondition::None).await;
            assert!(matches!(put, wasmkeep_bucket::Outcome::Written(_)), "{put:?}");
        });
    }

    /// Flags of a node that talks to others by its listener alone.
    pub fn encrypted(&self, id: &str, listener: SocketAddr, more: &[&str]) -> Vec<String> {
        let mut flags = self.flags(id, more);
        flags.retain(|flag| flag != "--cluster-plaintext=accept");
        flags.push(format!("--cluster-listen={listener}"));
        flags.push(format!("--cluster-advertise=https://{listener}"));
        flags
    }

    pub fn node_on(&self, id: &str, data_dir: &Path, more: &[&str]) -> Node {
        let flags = self.flags(id, more);
        Node::start_on(data_dir, &flags.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// A node on an empty disk.
    pub fn node(&self, id: &str) -> Node {
        self.node_with(id, &[])
    }

    pub fn node_with(&self, id: &str, more: &[&str]) -> Node {
        let flags = self.flags(id, more);
        Node::start(&flags.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Two nodes on empty disks that know each other.
    pub fn pair(&self) -> (Node, Node) {
        self.pair_with(&[])
    }

    pub fn pair_with(&self, more: &[&str]) -> (Node, Node) {
        let (a, b) = std::thread::scope(|scope| {
            let a = scope.spawn(|| self.node_with("a", more));
            let b = scope.spawn(|| self.node_with("b", more));
            (a.join().unwrap(), b.join().unwrap())
        });
        let probe = |from: &Node, name: &str| {
            eventually("the nodes know each other", || {
                from.get(&format!("/actor/counter/{name}")).status == 200
            });
        };
        a.post("/actor/counter/of-a", "").expect(200);
        probe(&b, "of-a");
        b.post("/actor/counter/of-b", "").expect(200);
        probe(&a, "of-b");
        (a, b)
    }

    /// An object, as text.
    pub fn object(&self, key: &str) -> String {
        let object = std::fs::read(self.0.path().join("objects").join(format!("{key}#"))).unwrap();
        String::from_utf8_lossy(&object).into_owned()
    }

    /// Actors of a class that have an ownership record.
    pub fn owners(&self, class: &str) -> Vec<String> {
        let folder = self.0.path().join("objects/owners/default").join(class);
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().trim_end_matches('#').to_owned())
            .collect();
        names.sort_unstable();
        names
    }

    /// Files of an actor's history.
    pub fn history(&self, actor: &str) -> Vec<std::path::PathBuf> {
        let root = self.0.path().join("objects/actors/default").join(actor).join("wal");
        let mut files = Vec::new();
        for generation in std::fs::read_dir(root).into_iter().flatten() {
            files.extend(
                std::fs::read_dir(generation.unwrap().path()).unwrap().map(|file| file.unwrap().path()),
            );
        }
        files.sort();
        files
    }
}
