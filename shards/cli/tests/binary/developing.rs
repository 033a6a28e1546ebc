//! A project made, tested, served and changed, as a person would: `wasmkeep new`, an editor, `wasmkeep dev`.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use crate::support::{self, Answer, agent, run, wasmkeep};
use rustix::process::{Pid, Signal, kill_process, test_kill_process_group};

/// A first build compiles the standard library; only a hang is this long.
const BUILD_PATIENCE: Duration = Duration::from_secs(1800);

/// In a folder, with no packet to a registry and nothing of the cargo that runs this test.
fn in_folder(mut command: Command, folder: &Path) -> Command {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("CARGO_") && name != "CARGO_HOME"
            || name.starts_with("__CARGO")
            || name == "RUSTFLAGS"
        {
            command.env_remove(name);
        }
    }
    command.env("CARGO_NET_OFFLINE", "true").current_dir(folder);
    command
}

/// `wasmkeep dev` in a project.
struct Dev {
    child: Child,
    project: PathBuf,
    log: Arc<Mutex<String>>,
    address: SocketAddr,
}

impl Dev {
    fn start(project: &Path) -> Dev {
        let mut child = in_folder(wasmkeep(), project)
            .args(["dev", "--listen=127.0.0.1:0", "--overprovisioned"])
            // Of the platform's own stack nothing is to be seen all the same.
            .env("RUST_BACKTRACE", "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (sink, mut stderr) = (Arc::clone(&log), BufReader::new(child.stderr.take().unwrap()));
        std::thread::spawn(move || {
            let mut line = String::new();
            while matches!(stderr.read_line(&mut line), Ok(1..)) {
                sink.lock().unwrap().push_str(&std::mem::take(&mut line));
            }
        });
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").map(|text| text.parse().unwrap());
        let address = address.unwrap_or_else(|| panic!("nothing is served: {}", log.lock().unwrap()));
        Dev { child, project: project.to_owned(), log, address }
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Puts `new` where `old` is in the source.
    #[track_caller]
    fn edit(&self, old: &str, new: &str) {
        let file = self.project.join("src/lib.rs");
        let source = fs::read_to_string(&file).unwrap();
        assert!(source.contains(old), "{old:?}");
        fs::write(file, source.replacen(old, new, 1)).unwrap();
    }

    #[track_caller]
    fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let deadline = Instant::now() + BUILD_PATIENCE;
        while !done() {
            assert!(Instant::now() < deadline, "still not: {what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn get(&self, path: &str) -> Answer {
        let answer = agent().get(format!("http://{}/actor/guest-book/{path}", self.address)).call().unwrap();
        Answer::read(answer)
    }

    fn sign(&self, name: &str) -> String {
        let url = format!("http://{}/actor/guest-book/lobby", self.address);
        let answer = agent().post(url).send(format!("{{\"name\": \"{name}\"}}")).unwrap();
        Answer::read(answer).expect(200).text
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_machine_without_cargo_is_told_what_to_install() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("Cargo.toml"), "[package]\nname = \"a\"\n").unwrap();
    let mut dev = in_folder(wasmkeep(), folder.path());
    let (status, _, stderr) = run(dev.arg("dev").env("PATH", folder.path()).env_remove("CARGO"));
    assert!(status == Some(16) && stderr.contains("cargo is not installed"), "{status:?} {stderr}");
}

/// One connection that stays open over changes.
struct Connection(BufReader<TcpStream>);

impl Connection {
    fn to(address: SocketAddr) -> Connection {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(support::PATIENCE)).unwrap();
        Connection(BufReader::new(stream))
    }

    fn sign(&mut self, name: &str) -> String {
        let body = format!("{{\"name\": \"{name}\"}}");
        let length = body.len();
        let head =
            format!("POST /actor/guest-book/lobby HTTP/1.1\r\nhost: h\r\ncontent-length: {length}\r\n\r\n");
        self.0.get_mut().write_all((head + &body).as_bytes()).unwrap();
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            self.0.read_line(&mut line).unwrap();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        String::from_utf8(body).unwrap()
    }
}

#[test]
fn a_new_project_is_tested_served_changed_and_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (status, said, stderr) = run(in_folder(wasmkeep(), folder.path()).args(["new", "guest-book"]));
    assert_eq!(status, Some(0), "{stderr}");
    assert!(said.contains("cd guest-book") && said.contains("wasmkeep dev"), "{said}");
    let project = folder.path().join("guest-book");

    // Its own test, on this machine. What it builds is kept for the next time.
    let mut cargo = in_folder(Command::new("cargo"), &project);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest-book");
    let tested = cargo.args(["test", "--target-dir"]).arg(target).output().unwrap();
    let output = String::from_utf8_lossy(&tested.stdout).into_owned();
    assert!(tested.status.success(), "{output}{}", String::from_utf8_lossy(&tested.stderr));
    assert!(output.contains("2 passed"), "{output}");

    let mut dev = Dev::start(&project);
    assert_eq!(dev.sign("Ada"), "hello Ada, you are number 1\n");
    assert_eq!(dev.get("lobby").expect(200).json()["signed"][0], "Ada");
    let mut open = Connection::to(dev.address);
    assert_eq!(open.sign("Grace"), "hello Grace, you are number 2\n");

    a_change_is_served_with_the_data_and_over_open_connections(&dev, &mut open);
    what_does_not_compile_is_shown_and_changes_nothing(&dev, &mut open);
    prints_and_traps_are_in_the_log_with_their_lines(&dev);
    an_alarm_set_before_a_change_rings_after_it(&dev);

    ctrl_c_ends_the_node_and_the_build_under_way(&mut dev);
    // Its data is there for the next time.
    let again = Dev::start(&project);
    assert!(again.sign("Last").starts_with("hail Last, you are number "));
}

fn a_change_is_served_with_the_data_and_over_open_connections(dev: &Dev, open: &mut Connection) {
    dev.edit("hello {name}", "welcome {name}");
    let mut signed = 2;
    dev.until("the change is served", || {
        signed += 1;
        let answer = open.sign("Joan");
        assert!(answer.ends_with(&format!("you are number {signed}\n")), "{answer}: the data stays");
        answer.starts_with("welcome")
    });
    // on-init runs once for each version.
    dev.edit("        Ok(())\n    }\n}\n\nimpl Handle", INIT_TWICE);
    let ran = || dev.get("lobby").expect(200).json()["signed"].to_string().matches("on-init").count();
    dev.until("the new on-init has run", || ran() > 0);
    dev.sign("Edsger");
    assert_eq!(ran(), 1);
}

const INIT_TWICE: &str =
    "        storage::exec(\"INSERT INTO signature (name) VALUES ('on-init')\", params![])?;
        Ok(())\n    }\n}\n\nimpl Handle";

fn what_does_not_compile_is_shown_and_changes_nothing(dev: &Dev, open: &mut Connection) {
    dev.edit("welcome {name}", "good day {name}");
    dev.edit("const BODY_BYTES_MAX: usize = 64 << 10;", "const BODY_BYTES_MAX: usize = \"much\";");
    dev.until("the mistake is shown", || dev.log().contains("the version before stays"));
    let log = dev.log();
    assert!(log.contains("error[E0308]") && log.contains("--> src/lib.rs:"), "{log}");
    assert!(open.sign("Barbara").starts_with("welcome Barbara"));
    dev.edit("const BODY_BYTES_MAX: usize = \"much\";", "const BODY_BYTES_MAX: usize = 64 << 10;");
    dev.edit("good day {name}", "welcome {name}");
    dev.edit(
        "(\"GET\", \"/\") =>",
        "(\"GET\", \"/print\") => { println!(\"printed\"); oops() }\n(\"GET\", \"/\") =>",
    );
    dev.edit("fn checked", "#[inline(never)]\nfn oops() -> Result<Response> {\n    core::arch::wasm32::unreachable()\n}\n\nfn checked");
    dev.until("it is repaired", || dev.get("lobby/print").status == 500);
}

fn prints_and_traps_are_in_the_log_with_their_lines(dev: &Dev) {
    let source = fs::read_to_string(dev.project.join("src/lib.rs")).unwrap();
    let line = 1 + source.lines().position(|line| line.contains("wasm32::unreachable")).unwrap();
    let shown = format!("src/lib.rs:{line}");
    dev.until("the trap and its line are in the log", || dev.log().contains(&shown));
    let log = dev.log();
    let printed = log.lines().find(|line| line.ends_with("printed") || line.contains("printed ")).unwrap();
    assert!(printed.contains("guest-book") && printed.contains("lobby"), "{printed}");
    assert!(!log.contains("Stack backtrace"), "{log}");
    assert!(!log.lines().any(|line| line.starts_with('{')), "{log}: for a person, not as JSON");
}

// case A3
fn an_alarm_set_before_a_change_rings_after_it(dev: &Dev) {
    dev.edit("use wasmkeep_sdk::{", "use wasmkeep_sdk::{Alarm, alarm, ");
    dev.edit(
        "(\"GET\", \"/print\")",
        "(\"GET\", \"/later\") => { alarm::set(alarm::now_ms() + 2000)?; Ok(Response::text(\"set\")) }\n(\"GET\", \"/print\")",
    );
    dev.edit("actor!(GuestBook, init);", WITH_ALARM);
    dev.until("the alarm can be set", || dev.get("lobby/later").status == 200);
    dev.edit("welcome {name}", "hail {name}");
    // Set anew each time, so that one is pending when the version changes.
    dev.until("the change is served", || {
        dev.get("lobby/later").expect(200);
        dev.sign("Radia").starts_with("hail")
    });
    dev.until("the alarm has rung", || {
        dev.get("lobby").expect(200).json()["signed"].to_string().contains("rang")
    });
}

const WITH_ALARM: &str = "actor!(GuestBook, init, alarm);

impl Alarm for GuestBook {
    fn alarm(_: u64, _: u32) -> Result<()> {
        storage::exec(\"INSERT INTO signature (name) VALUES ('rang')\", params![])?;
        Ok(())
    }
}";

fn ctrl_c_ends_the_node_and_the_build_under_way(dev: &mut Dev) {
    // A build script that would not end.
    let script = "fn main() {
        std::fs::write(\"target-running\", \"\").unwrap();
        std::thread::sleep(std::time::Duration::from_secs(3600));
    }";
    fs::write(dev.project.join("build.rs"), script).unwrap();
    let running = dev.project.join("target-running");
    dev.until("the build runs", || running.exists());
    let cargo = children(dev.child.id()).into_iter().next().expect("cargo runs");
    kill_process(Pid::from_child(&dev.child), Signal::INT).unwrap();
    let status = dev.child.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{}", dev.log());
    assert!(TcpStream::connect(dev.address).is_err(), "nothing listens any more");
    support::eventually("cargo and its build script have ended", || test_kill_process_group(cargo).is_err());
    fs::remove_file(dev.project.join("build.rs")).unwrap();
}

/// The processes a process has started.
fn children(parent: u32) -> Vec<Pid> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{parent}/task")).unwrap().flatten() {
        let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
    }
    found
}

#[test]
fn what_cannot_be_developed_is_told_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let ask = |arguments: &[&str]| run(in_folder(wasmkeep(), folder.path()).args(arguments));
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("taken/file", "");
    for (arguments, part) in [
        (["new", "taken"].as_slice(), "is here already"),
        (&["new", "match"], "a crate cannot be called match"),
        (&["new", "wasmkeep-sdk"], "a crate cannot be called"),
        (&["new", "Upper"], "Upper"),
        (&["new", "../up"], "../up"),
        (&["new", "a", "--lang", "cobol"], "possible values: rust"),
        (&["dev"], "there is no Cargo.toml here"),
    ] {
        let (status, _, stderr) = ask(arguments);
        assert_eq!(status, Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(part), "{arguments:?}: {stderr}");
    }
    write("src/lib.rs", "");
    write("Cargo.toml", "[package]\nname = \"library\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
    assert!(ask(&["dev"]).2.contains("crate-type = [\"cdylib\"]"));
    write("Cargo.toml", "[workspace]\nmembers = []\n");
    assert!(ask(&["dev"]).2.contains("of a workspace"));
    write("Cargo.toml", "[package\n");
    let (status, _, stderr) = ask(&["dev"]);
    assert!(status == Some(2) && stderr.contains("cargo cannot read the project"), "{stderr}");
}
