//! A disk that is full: a small one of its own, in a mount namespace of the test's thread.

use std::{ffi::CString, fs, io, os::unix::ffi::OsStrExt, path::Path, ptr, thread};

use wasmkeep_storage::{Config, Database, Error, Inline, OpenError};

use crate::rig::{Rig, wait};

/// Bytes of the small disk. Well over the free bytes below which a refusal is put down to the disk.
const DISK_BYTES: u64 = 6 << 20;

/// Bytes that a file holds back, to be given to the database later.
const BALLAST_BYTES: usize = 2 << 20;

/// Mounts a small file system in memory at `folder`, for this thread alone.
fn mount(folder: &Path) -> io::Result<()> {
    let folder = CString::new(folder.as_os_str().as_bytes())?;
    let size = CString::new(format!("size={DISK_BYTES}"))?;
    let check = |code| if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: plain system calls; the strings live through them.
    unsafe {
        check(libc::unshare(libc::CLONE_NEWNS))?;
        let private = libc::MS_REC | libc::MS_PRIVATE;
        check(libc::mount(ptr::null(), c"/".as_ptr(), ptr::null(), private, ptr::null()))?;
        check(libc::mount(c"tmpfs".as_ptr(), folder.as_ptr(), c"tmpfs".as_ptr(), 0, size.as_ptr().cast()))
    }
}

/// Runs `test` with a small disk at the folder it is given, and with a file on it that holds room back. Where such a
/// disk may not be made the test is skipped, and says so.
fn on_a_small_disk(test: impl FnOnce(&Path, &Path) + Send) {
    let folder = tempfile::tempdir().unwrap();
    thread::scope(|scope| {
        let run = scope.spawn(|| {
            if let Err(error) = mount(folder.path()) {
                eprintln!("skipped: a disk of its own cannot be mounted here ({error})");
                return;
            }
            let ballast = folder.path().join("ballast");
            fs::write(&ballast, vec![1; BALLAST_BYTES]).unwrap();
            test(folder.path(), &ballast);
        });
        run.join().unwrap();
    });
}

fn rig(root: &Path) -> Rig {
    let folder = tempfile::tempdir_in(root).unwrap();
    let config = Config { root: root.to_owned(), ..Config::default() };
    let db = Database::open(&folder.path().join("shop/cart.db"), &config).unwrap();
    let rig = Rig { folder, config, db: db.into() };
    rig.exec("CREATE TABLE t(x)").unwrap();
    rig
}

const INSERT: &str = "INSERT INTO t VALUES(zeroblob(3500))";

/// Writes rows until there is no room; how many were taken.
fn fill(rig: &Rig) -> i64 {
    for rows in 0.. {
        match rig.exec(INSERT) {
            Ok(_) => {}
            Err(error) => {
                assert!(error.to_string().contains("the node's disk is full"), "{error:?}");
                assert!(!matches!(error, Error::Full), "the actor's own quota is not what was met");
                return rows;
            }
        }
    }
    unreachable!("the disk is small")
}

#[test]
fn a_full_disk_is_one_clear_error_loses_nothing_and_is_over_once_there_is_room() {
    on_a_small_disk(|root, ballast| {
        let rig = rig(root);
        let rows = fill(&rig);
        assert!(rows > 100, "{rows}");
        // Reads go on, nothing of the refused write is there, and it is refused again.
        assert_eq!(rig.number("SELECT count(*) FROM t"), rows);
        assert!(rig.exec(INSERT).is_err());
        assert!(rig.is_sound());
        // The WAL cannot be moved into the file either, and stays.
        let error = wait(rig.db.checkpoint(&Inline)).unwrap_err();
        assert!(error.to_string().contains("the node's disk is full"), "{error:?}");
        assert!(!rig.db.is_poisoned(), "no sync failed");
        assert_eq!(rig.number("SELECT count(*) FROM t"), rows);
        fs::remove_file(ballast).unwrap();
        assert_eq!(rig.exec(INSERT).unwrap().rows, 1);
        rig.durable(INSERT).unwrap();
        wait(rig.db.checkpoint(&Inline)).unwrap();
        assert_eq!(rig.number("SELECT count(*) FROM t"), rows + 2);
        let rig = rig.reopen();
        assert_eq!(rig.number("SELECT count(*) FROM t"), rows + 2);
        assert!(rig.is_sound());
    });
}

#[test]
fn a_transaction_that_meets_a_full_disk_is_undone_as_a_whole() {
    on_a_small_disk(|root, ballast| {
        let rig = rig(root);
        rig.exec(INSERT).unwrap();
        rig.exec("BEGIN").unwrap();
        // More than the page cache holds: pages go to the disk before the commit.
        let many =
            "INSERT INTO t WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3000)
            SELECT zeroblob(3500) FROM r";
        let refused = rig.exec(many).and_then(|_| rig.exec("COMMIT"));
        assert!(refused.unwrap_err().to_string().contains("the node's disk is full"));
        wait(rig.db.end_event());
        assert_eq!(rig.number("SELECT count(*) FROM t"), 1);
        fs::remove_file(ballast).unwrap();
        rig.durable(INSERT).unwrap();
        assert_eq!(rig.after_a_kill().number("SELECT count(*) FROM t"), 2);
        assert!(rig.reopen().is_sound());
    });
}

#[test]
fn an_actor_goes_and_comes_back_while_the_disk_is_full() {
    on_a_small_disk(|root, ballast| {
        let rig = rig(root);
        let rows = fill(&rig);
        wait(rig.db.doze(&Inline));
        wait(rig.db.wake(&Inline)).unwrap();
        assert_eq!(rig.number("SELECT count(*) FROM t"), rows);
        let rig = rig.reopen();
        assert_eq!(rig.number("SELECT count(*) FROM t"), rows);
        // A new actor finds no place, and one once there is room.
        fs::write(root.join("rest"), vec![1; DISK_BYTES as usize]).unwrap_err();
        let path = root.join("new/actor.db");
        let error = Database::open(&path, &rig.config).unwrap_err();
        assert!(matches!(error, OpenError::Io { .. }), "{error}");
        fs::remove_file(ballast).unwrap();
        let db = Database::open(&path, &rig.config).unwrap();
        wait(db.exec("CREATE TABLE t(x)", vec![])).unwrap();
    });
}
