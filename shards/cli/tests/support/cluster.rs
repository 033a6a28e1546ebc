//! Nodes that share a bucket in a folder. Each of them watches its id for 15 s before it serves.

use std::{net::SocketAddr, path::Path};

use tempfile::TempDir;

use super::{Node, eventually};

/// An address for a listener whose port has to be known before it listens: on a loopback address that nobody else
/// picks.
pub fn listener_address() -> SocketAddr {
    let [a, b, c, _] = rand::random::<[u8; 4]>();
    SocketAddr::from(([127, a, b, c.max(2)], 7443))
}

/// A cluster of its own, in a folder.
pub struct Bucket(pub TempDir);

impl Bucket {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn flags(&self, id: &str, more: &[&str]) -> Vec<String> {
        let mut flags = vec![
            format!("--bucket=file://{}", self.0.path().display()),
            format!("--node-id={id}"),
            "--cluster-plaintext=accept".to_owned(),
            "--shards=1".to_owned(),
        ];
        flags.extend(more.iter().map(ToString::to_string));
        flags
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
