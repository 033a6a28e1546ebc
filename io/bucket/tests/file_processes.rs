//! Several processes on one directory: the promise a cluster on one machine stands on.
//!
//! This test binary starts itself again as the racing processes (`a_racing_process` below).

use std::path::Path;
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use wasmkeep_bucket::{Bucket, FileBucket, Key, Nonce, Outcome, Precondition, Version};

/// Races of each kind.
const ROUNDS: usize = 200;

/// Processes in each race.
const PROCESSES: usize = 2;

fn on_tokio<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn key(kind: &str, round: usize) -> Key {
    format!("races/{kind}/{round}").parse().unwrap()
}

fn start(dir: &Path, id: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_racing_process", "--nocapture", "--test-threads=1"])
        .env("WASMKEEP_TEST_RACE_DIR", dir)
        .env("WASMKEEP_TEST_RACE_ID", id.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until every process has come to this point, so that all of them write at the same moment.
fn meet(sync: &Path, point: &str, id: usize) {
    std::fs::write(sync.join(format!("{point}-{id}")), "").unwrap();
    while !(0..PROCESSES).all(|other| sync.join(format!("{point}-{other}")).exists()) {
        std::hint::spin_loop();
    }
}

/// Not a test by itself: one of the racing processes, and nothing when run without its variables.
#[test]
fn a_racing_process() {
    let Some(dir) = std::env::var_os("WASMKEEP_TEST_RACE_DIR") else { return };
    let id: usize = std::env::var("WASMKEEP_TEST_RACE_ID").unwrap().parse().unwrap();
    let dir = Path::new(&dir);
    let (bucket, sync) = (FileBucket::open(&dir.join("bucket")).unwrap(), dir.join("sync"));
    on_tokio(async {
        for round in 0..ROUNDS {
            for kind in ["create", "replace"] {
                let key = key(kind, round);
                let condition = match kind {
                    "create" => Precondition::Absent,
                    _ => Precondition::Version(bucket.head(&key).await.unwrap().version),
                };
                let body = format!("{id} {}", Nonce::random());
                meet(&sync, &format!("{kind}-{round}"), id);
                match bucket.put(&key, Bytes::from(body.clone()), &condition).await {
                    Outcome::Written(version) => println!("\nWON {kind} {round} {version} {body}"),
                    Outcome::ConditionFailed => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    });
}

#[test]
fn two_processes_that_race_have_one_winner_each_time() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("sync")).unwrap();
    let bucket = FileBucket::open(&dir.path().join("bucket")).unwrap();
    on_tokio(async {
        for round in 0..ROUNDS {
            let put = bucket.put(&key("replace", round), Bytes::new(), &Precondition::Absent).await;
            assert!(matches!(put, Outcome::Written(_)), "{put:?}");
        }
    });
    let racing: Vec<Child> = (0..PROCESSES).map(|id| start(dir.path(), id)).collect();
    let mut won = Vec::new();
    for process in racing {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let output = String::from_utf8(output.stdout).unwrap();
        won.extend(output.lines().filter_map(|line| line.strip_prefix("WON ")).map(str::to_owned));
    }
    on_tokio(async {
        for kind in ["create", "replace"] {
            for round in 0..ROUNDS {
                let race = format!("{kind} {round} ");
                let winners: Vec<&str> = won.iter().filter_map(|line| line.strip_prefix(&race)).collect();
                let [winner] = winners[..] else { panic!("{race} has the winners {winners:?}") };
                let (version, body) = winner.split_once(' ').unwrap();
                let stands = bucket.get(&key(kind, round), None).await.unwrap();
                assert_eq!(stands.meta.version, Version::new(version).unwrap());
                assert_eq!(stands.bytes(99).await.unwrap(), body);
            }
        }
    });
}

#[test]
fn a_process_killed_while_it_writes_blocks_nobody_and_leaves_whole_objects() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("sync")).unwrap();
    let bucket = FileBucket::open(&dir.path().join("bucket")).unwrap();
    for _ in 0..5 {
        let mut writer = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_writing_process", "--nocapture", "--test-threads=1"])
            .env("WASMKEEP_TEST_WRITE_DIR", dir.path().join("bucket"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let key: Key = "written".parse().unwrap();
        on_tokio(async {
            let before = bucket.head(&key).await.ok();
            while bucket.head(&key).await.ok() == before {
                std::thread::yield_now();
            }
        });
        writer.kill().unwrap();
        writer.wait().unwrap();
        on_tokio(async {
            let object = bucket.get(&key, None).await.unwrap();
            let body = object.bytes(1 << 20).await.unwrap();
            assert_eq!(body.len(), 100_000);
            assert!(body.iter().all(|byte| *byte == body[0]), "two writes are mixed");
            let put = bucket.put(&key, body, &Precondition::None).await;
            assert!(matches!(put, Outcome::Written(_)), "{put:?}");
        });
    }
}

/// Not a test by itself: the process that is killed.
#[test]
fn a_writing_process() {
    let Some(dir) = std::env::var_os("WASMKEEP_TEST_WRITE_DIR") else { return };
    let bucket = FileBucket::open(Path::new(&dir)).unwrap();
    on_tokio(async {
        let parent = std::os::unix::process::parent_id();
        let mut fill = 0;
        // Until it is killed, or the test that started it is gone.
        while std::os::unix::process::parent_id() == parent {
            let body = Bytes::from(vec![fill; 100_000]);
            let _ = bucket.put(&"written".parse().unwrap(), body, &Precondition::None).await;
            fill = fill.wrapping_add(1);
        }
    });
}
