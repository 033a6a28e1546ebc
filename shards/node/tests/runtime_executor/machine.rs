//! Machines on which a node cannot run, each played in a child process: this test binary, run again.

use crate::{join, placement, run};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::{Command, Output};
use wasmkeep_node::runtime::{Hooks, PreflightError, preflight};

/// How a child tells which error it met; the command line has statuses of its own.
const IO_URING: i32 = 81;
const MEMLOCK: i32 = 82;
const OTHER: i32 = 83;

const CHILD: &str = "WASMKEEP_TEST_CHILD";

/// Runs the test `name` of this binary alone in a child that is told to play `part`.
fn child(name: &str, part: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, part)
        .output()
        .unwrap()
}

fn part() -> Option<String> {
    std::env::var(CHILD).ok()
}

/// In a child: what a node does first. Ends the process with the error's status and sentence.
fn preflight_and_exit() -> ! {
    match preflight(&placement(1)) {
        Ok(()) => {
            let shards = run(1, Hooks::default(), |_| async { 1 });
            assert_eq!(join("a shard", shards), [1]);
            std::process::exit(0)
        }
        Err(error) => {
            eprintln!("REFUSED: {error}");
            std::process::exit(match error {
                PreflightError::IoUring(_) => IO_URING,
                PreflightError::Memlock { .. } => MEMLOCK,
                _ => OTHER,
            })
        }
    }
}

fn sentence(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!text.contains("panicked"), "{text}");
    text.lines().find_map(|line| line.strip_prefix("REFUSED: ")).unwrap_or_default().to_owned()
}

fn limit_memlock(bytes: u64) {
    setrlimit(Resource::Memlock, Rlimit { current: Some(bytes), maximum: Some(bytes) }).unwrap();
}

// case G4
#[test]
fn too_little_lockable_memory_is_one_sentence() {
    if let Some(bytes) = part() {
        limit_memlock(bytes.parse().unwrap());
        preflight_and_exit();
    }
    let name = "machine::too_little_lockable_memory_is_one_sentence";
    let refused = child(name, "65536");
    let says = sentence(&refused);
    assert_eq!(refused.status.code(), Some(MEMLOCK), "{says}");
    assert!(says.contains("65536") && says.contains("ulimit -l") && says.contains("LimitMEMLOCK"), "{says}");
    // The floor itself is enough.
    let started = child(name, "524288");
    assert_eq!(started.status.code(), Some(0), "{}", String::from_utf8_lossy(&started.stderr));
}

/// Makes io_uring_setup fail with `errno`, as a container's seccomp profile does.
fn forbid_io_uring(errno: i32) {
    const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        step(LOAD_NUMBER, 0, 0, 0),
        step(JUMP_IF_EQUAL, 0, 1, libc::SYS_io_uring_setup as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: plain numbers; it only forbids this process to gain privileges.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: `filter` points to a whole program that outlives the call; the kernel copies it.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter, 0, 0) };
    assert_eq!(set, 0);
}

// case G5
#[test]
fn a_forbidden_io_uring_is_one_sentence() {
    if let Some(errno) = part() {
        forbid_io_uring(errno.parse().unwrap());
        preflight_and_exit();
    }
    let name = "machine::a_forbidden_io_uring_is_one_sentence";
    for (errno, says) in [
        (libc::EPERM, ["seccomp", "kernel.io_uring_disabled"]),
        (libc::ENOSYS, ["kernel", "CONFIG_IO_URING"]),
        (libc::ENOMEM, ["free memory", "start again"]),
    ] {
        let refused = child(name, &errno.to_string());
        let sentence = sentence(&refused);
        assert_eq!(refused.status.code(), Some(IO_URING), "{sentence}");
        assert!(says.iter().all(|part| sentence.contains(part)), "{sentence}");
    }
}

#[test]
fn a_cpu_that_is_not_there_is_refused_before_anything_starts() {
    let placement =
        wasmkeep_node::runtime::Placement { cpuset: Some("1000".parse().unwrap()), ..placement(1) };
    let error = preflight(&placement).unwrap_err();
    assert!(matches!(error, PreflightError::Placement(_)));
    assert!(error.to_string().contains("CPU 1000"), "{error}");
}

#[test]
fn the_soft_limit_of_open_files_is_raised_to_the_hard_one() {
    if part().is_some() {
        let hard = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum: hard }).unwrap();
        preflight(&placement(1)).unwrap();
        let now = getrlimit(Resource::Nofile);
        std::process::exit(if now.current == now.maximum { 0 } else { 1 });
    }
    let name = "machine::the_soft_limit_of_open_files_is_raised_to_the_hard_one";
    assert_eq!(child(name, "play").status.code(), Some(0));
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

// case G3: the executor leaks one descriptor per life, so a node starts each once; nothing else may leak.
#[test]
fn starting_executors_leaks_no_more_than_the_one_descriptor_each() {
    if part().is_some() {
        let cycle = || {
            let shards = run(2, Hooks::default(), |context| async move {
                context.sleeper.sleep(std::time::Duration::from_millis(1)).await;
            });
            join("a short life", shards);
        };
        cycle();
        let before = open_descriptors();
        for _ in 0..5 {
            cycle();
        }
        let leaked = open_descriptors().saturating_sub(before);
        eprintln!("{leaked} descriptors for 10 executor lives");
        std::process::exit(if leaked <= 10 { 0 } else { 1 });
    }
    let name = "machine::starting_executors_leaks_no_more_than_the_one_descriptor_each";
    let counted = child(name, "play");
    assert_eq!(counted.status.code(), Some(0), "{}", String::from_utf8_lossy(&counted.stderr));
}

// case G6
#[test]
fn every_executor_proves_its_timers_before_its_body_runs() {
    let shards = run(3, Hooks::default(), |context| async move { (context.index, context.count) });
    assert_eq!(join("three shards", shards), [(0, 3), (1, 3), (2, 3)]);
}

#[test]
fn pinned_shards_run_where_they_were_told() {
    let allowed = wasmkeep_node::runtime::CpuSet::allowed().unwrap();
    let last = allowed.get(allowed.len() - 1).unwrap();
    for pin in [true, false] {
        let placement = wasmkeep_node::runtime::Placement {
            cpuset: Some(last.to_string().parse().unwrap()),
            pin,
            ..placement(1)
        };
        let shards = wasmkeep_node::runtime::start(&placement, Hooks::default(), |_| async {
            wasmkeep_node::runtime::CpuSet::allowed().unwrap().to_string()
        })
        .unwrap();
        assert_eq!(join("a placed shard", shards), [last.to_string()]);
    }
}
