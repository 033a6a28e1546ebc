//! A real node in a process of its own, and plain requests to it.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tempfile::TempDir;

pub mod cluster;
pub mod socket;

/// How long anything may take that is expected to happen; only a hang is this long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A sample component, built by `scripts/build-guests`.
pub fn guest(name: &str) -> PathBuf {
    let folder = std::env::var_os("WASMKEEP_GUESTS")
        .expect("WASMKEEP_GUESTS names the folder of the sample components: run scripts/test");
    let path = Path::new(&folder).join(format!("{name}.wasm"));
    assert!(path.exists(), "{path:?} is missing: run scripts/test");
    path
}

/// Arguments of a node that serves the counter and sql samples on a free port.
pub fn samples() -> Vec<String> {
    let class = |name: &str| format!("--actor={name}={}", guest(name).display());
    vec![class("counter"), class("sql")]
}

/// The binary, with a clean environment for what it reads from it.
pub fn wasmkeep() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wasmkeep"));
    command.env_remove("WASMKEEP_LOG").env("RUST_BACKTRACE", "0");
    command
}

/// Compiled code shared by all tests, so that each component is compiled once.
pub fn share_compiled_code(data_dir: &Path) {
    let shared = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled");
    std::fs::create_dir_all(&shared).unwrap();
    std::fs::create_dir_all(data_dir).unwrap();
    let link = data_dir.join("compiled");
    if !link.exists() {
        std::os::unix::fs::symlink(shared, link).unwrap();
    }
}

/// A running node; killed when dropped.
pub struct Node {
    child: Child,
    pub address: SocketAddr,
    log: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
    pub data_dir: PathBuf,
    _folder: Option<TempDir>,
}

impl Node {
    /// A node with the samples and `flags` on a fresh data directory.
    pub fn start(flags: &[&str]) -> Node {
        let folder = tempfile::tempdir().unwrap();
        let mut node = Node::start_on(folder.path(), flags);
        node._folder = Some(folder);
        node
    }

    /// As [`Node::start`], on a data directory that may exist.
    pub fn start_on(data_dir: &Path, flags: &[&str]) -> Node {
        let mut arguments = samples();
        arguments.extend(flags.iter().map(ToString::to_string));
        Node::start_with(data_dir, &arguments)
    }

    /// As [`Node::start`], with variables in the environment of its process.
    pub fn start_in(variables: &[(&str, String)], flags: &[&str]) -> Node {
        let folder = tempfile::tempdir().unwrap();
        let mut arguments = samples();
        arguments.extend(flags.iter().map(ToString::to_string));
        let mut command = wasmkeep();
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let mut node = Node::run(command, folder.path(), &arguments);
        node._folder = Some(folder);
        node
    }

    /// As [`Node::start_on`], with `arguments` alone; on a free port unless they name an address.
    pub fn start_with(data_dir: &Path, arguments: &[String]) -> Node {
        Node::run(wasmkeep(), data_dir, arguments)
    }

    /// A node whose stderr is `stderr`, which nothing here reads.
    pub fn start_logging_to(stderr: Stdio, flags: &[&str]) -> Node {
        let folder = tempfile::tempdir().unwrap();
        let mut arguments = samples();
        arguments.extend(flags.iter().map(ToString::to_string));
        let mut node = Node::spawn(wasmkeep(), folder.path(), &arguments, stderr);
        node._folder = Some(folder);
        node
    }

    /// As [`Node::start_with`], by a command that runs `wasmkeep` with the arguments it is given.
    pub fn run(command: Command, data_dir: &Path, arguments: &[String]) -> Node {
        Node::spawn(command, data_dir, arguments, Stdio::piped())
    }

    /// Two shards unless `arguments` say how many, whatever suits the machine: that requests cross shards is tested too.
    /// Where they sit is the system's to choose unless there is a `--cpuset`.
    fn spawn(mut command: Command, data_dir: &Path, arguments: &[String], stderr: Stdio) -> Node {
        share_compiled_code(data_dir);
        let listen = arguments.iter().find(|argument| argument.starts_with("--listen="));
        let listen = listen.map_or("--listen=127.0.0.1:0", String::as_str);
        let shards =
            (!arguments.iter().any(|argument| argument.starts_with("--shards="))).then_some("--shards=2");
        let arguments = arguments.iter().filter(|argument| *argument != listen);
        let places = arguments.clone().any(|argument| argument.starts_with("--cpuset="));
        let mut child = command
            .args(["serve", listen, "--data-dir"])
            .arg(data_dir)
            .args(arguments)
            .args(shards)
            .args((!places).then_some("--overprovisioned"))
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let mut reader = child.stderr.take().map(|stderr| follow(stderr, Arc::clone(&log)));
        let line = first_line(child.stdout.take().unwrap()).unwrap_or_default();
        let Some(address) = line.trim().strip_prefix("listening on http://") else {
            // One that hangs says no more than this.
            let _ = child.kill();
            let status = child.wait().unwrap();
            if let Some(reader) = reader.take() {
                reader.join().unwrap();
            }
            panic!("the node did not start ({status}): {}", log.lock().unwrap());
        };
        let address = address.parse().unwrap();
        Node { child, address, log, reader, data_dir: data_dir.to_owned(), _folder: None }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it logged so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end and returns how it ended and what it logged.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let status = wait(&mut self.child);
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        (status, self.log())
    }

    /// SIGTERM, then [`Node::wait`].
    pub fn stop(self) -> (ExitStatus, String) {
        self.signal(rustix::process::Signal::TERM);
        self.wait()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn get(&self, path: &str) -> Answer {
        self.request("GET", path, b"")
    }

    pub fn post(&self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.request("POST", path, body.as_ref())
    }

    /// One request on a connection of its own.
    pub fn request(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        let agent = agent();
        let request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header("connection", "close")
            .body(body)
            .unwrap();
        let answer =
            agent.run(request).unwrap_or_else(|error| panic!("{method} {path}: {error}\n{}", self.log()));
        Answer::read(answer)
    }

    /// A raw connection.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends raw bytes and reads until the node closes.
    pub fn raw(&self, bytes: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // A reset after the answer is a close too.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The sum of a metric over its labels; those that contain `label`, when it is not empty.
    pub fn metric(&self, name: &str, label: &str) -> f64 {
        let text = self.get("/_wasmkeep/metrics").text;
        text.lines()
            .filter(|line| line.starts_with(name) && line[name.len()..].starts_with(['{', ' ']))
            .filter(|line| line.contains(label))
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
            .sum()
    }

    /// Runs SQL in one event of `actor` of the sql sample and returns the outcomes.
    pub fn steps(&self, actor: &str, steps: serde_json::Value) -> serde_json::Value {
        self.post(&format!("/actor/sql/{actor}/steps"), steps.to_string()).expect(200).json()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines into `log` until the end.
pub fn follow(from: impl Read + Send + 'static, log: Arc<Mutex<String>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = String::new();
        while matches!(from.read_line(&mut line), Ok(1..)) {
            log.lock().unwrap().push_str(&std::mem::take(&mut line));
        }
    })
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: ureq::http::HeaderMap,
    pub text: String,
    pub bytes: Vec<u8>,
    /// The body broke off.
    pub cut: bool,
}

impl Answer {
    pub fn read(answer: ureq::http::Response<ureq::Body>) -> Answer {
        let (parts, body) = answer.into_parts();
        let mut bytes = Vec::new();
        let cut = body.into_reader().read_to_end(&mut bytes).is_err();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Answer { status: parts.status.as_u16(), headers: parts.headers, text, bytes, cut }
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "{}", self.text);
        assert!(!self.cut, "the body broke off");
        self
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.text).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

pub fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(PATIENCE))
        .allow_non_standard_methods(true)
        .build();
    ureq::Agent::new_with_config(config)
}

/// Runs the binary to its end and returns its status, stdout and stderr.
pub fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let status = wait(&mut child);
    let read = |from: &mut dyn Read| {
        let mut text = String::new();
        from.read_to_string(&mut text).unwrap();
        text
    };
    let (stdout, stderr) = (read(&mut child.stdout.take().unwrap()), read(&mut child.stderr.take().unwrap()));
    (status.code(), stdout, stderr)
}

/// Waits for the end of a process.
pub fn wait(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("the process did not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The first line that comes within [`PATIENCE`].
fn first_line(from: impl Read + Send + 'static) -> Option<String> {
    let (said, line) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        if BufReader::new(from).read_line(&mut line).is_ok() {
            // Nobody waits any more when it comes too late.
            let _ = said.send(line);
        }
    });
    line.recv_timeout(PATIENCE).ok()
}

/// Waits until `done`; only a hang makes it fail.
#[track_caller]
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "still not: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
