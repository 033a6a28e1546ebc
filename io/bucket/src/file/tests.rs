//! The file backend: the whole suite, and what only a directory can get wrong.

use std::fs;

use super::*;
use crate::conformance::{Scope, check, races};
use crate::{Listing, block_on, probe};

fn key(text: &str) -> Key {
    text.parse().unwrap()
}

async fn put(bucket: &FileBucket, name: &str, body: &str) -> crate::Version {
    match bucket.put(&key(name), Bytes::from(body.to_owned()), &Precondition::None).await {
        Outcome::Written(version) => version,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_directory_keeps_every_promise() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = FileBucket::open(&dir.path().join("new/bucket")).unwrap();
    assert_eq!(block_on(check(&bucket, Scope::Everything)), []);
    assert!(block_on(probe(&bucket)).is_ok());
}

#[test]
fn one_writer_wins_each_race_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    let writers: Vec<_> = (0..4).map(|_| FileBucket::open(dir.path()).unwrap()).collect();
    let report = block_on(races(&writers, 25));
    assert_eq!((report.races, report.one_winner), (50, 50), "{report:?}");
}

#[test]
fn objects_outlive_their_process_and_nothing_else_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let version = block_on(put(&FileBucket::open(dir.path()).unwrap(), "nodes/a", "body"));
    let again = FileBucket::open(dir.path()).unwrap();
    let head = block_on(again.head(&key("nodes/a"))).unwrap();
    assert_eq!((head.version, head.size), (version, 4));
    for part in ["locks", "tmp"] {
        assert_eq!(fs::read_dir(dir.path().join(part)).unwrap().count(), 0, "{part}");
    }
}

#[test]
fn the_same_body_written_twice_has_two_versions() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = FileBucket::open(dir.path()).unwrap();
    let (first, second) = block_on(async { (put(&bucket, "a", "x").await, put(&bucket, "a", "x").await) });
    assert_ne!(first, second);
}

#[test]
fn a_body_that_is_being_read_survives_its_replacement_and_its_removal() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = FileBucket::open(dir.path()).unwrap();
    block_on(async {
        put(&bucket, "a", "before").await;
        let object = bucket.get(&key("a"), None).await.unwrap();
        put(&bucket, "a", "afterwards").await;
        bucket.delete(&key("a")).await.unwrap();
        assert_eq!(object.bytes(99).await.unwrap(), "before");
    });
}

#[test]
fn a_directory_that_holds_something_else_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.txt"), "x").unwrap();
    let error = FileBucket::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("thesis.txt"), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);

    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("FORMAT"), "wasmkeep file bucket 9\n").unwrap();
    assert!(matches!(FileBucket::open(dir.path()), Err(OpenFileError::Format { .. })));

    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(matches!(FileBucket::open(file.path()), Err(OpenFileError::Io { .. })));
}

// case S9
#[test]
fn a_damaged_file_is_an_error_for_its_readers_and_not_an_absent_object() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = FileBucket::open(dir.path()).unwrap();
    block_on(async {
        put(&bucket, "a", "0123456789").await;
        let path = dir.path().join("objects/a#");
        let whole = fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        flipped[9] = b'Z';
        for damage in [&whole[..whole.len() - 1], &whole[..20], b"", &flipped] {
            fs::write(&path, damage).unwrap();
            assert!(matches!(bucket.get(&key("a"), None).await, Err(ReadError::Damaged(_))));
            let create = bucket.put(&key("a"), Bytes::new(), &Precondition::Absent).await;
            assert!(matches!(create, Outcome::Failed(Failure::Refused(_))), "{create:?}");
            assert_eq!(Listing::new(&bucket, "").all(9).await.unwrap().len(), 1, "it is there");
        }
        put(&bucket, "a", "repaired").await;
        assert_eq!(bucket.get(&key("a"), None).await.unwrap().bytes(9).await.unwrap(), "repaired");
    });
}

#[test]
fn what_a_dead_process_left_is_cleared_and_what_a_living_one_needs_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = FileBucket::open(dir.path()).unwrap();
    let (old, young) = (dir.path().join("tmp/old"), dir.path().join("tmp/young"));
    for path in [&old, &young] {
        fs::write(path, "half a body").unwrap();
    }
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
    fs::File::options().write(true).open(&old).unwrap().set_modified(long_ago).unwrap();
    FileBucket::open(dir.path()).unwrap();
    assert!(!old.exists() && young.exists());
    assert!(block_on(Listing::new(&bucket, "").all(9)).unwrap().is_empty());
}

#[test]
fn a_disk_that_refuses_leaves_the_old_object_and_no_half_one() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = FileBucket::open(dir.path()).unwrap();
    block_on(async {
        put(&bucket, "a", "before").await;
        // A plain file where the body would be prepared: every write fails, whoever runs this.
        fs::remove_dir(dir.path().join("tmp")).unwrap();
        fs::write(dir.path().join("tmp"), "").unwrap();
        let failed = bucket.put(&key("a"), Bytes::from_static(b"after"), &Precondition::None).await;
        assert!(matches!(failed, Outcome::Failed(Failure::Unavailable(_))), "{failed:?}");
        assert_eq!(bucket.get(&key("a"), None).await.unwrap().bytes(9).await.unwrap(), "before");
    });
}

#[test]
fn no_other_user_reads_what_is_in_a_directory_also_one_of_an_earlier_version() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("bucket");
    drop(FileBucket::open(&root).unwrap());
    let objects = root.join("objects");
    fs::set_permissions(&objects, fs::Permissions::from_mode(0o755)).unwrap();
    let bucket = FileBucket::open(&root).unwrap();
    block_on(put(&bucket, "cluster/secret", "body"));
    let mut open = vec![root];
    while let Some(path) = open.pop() {
        let attributes = fs::metadata(&path).unwrap();
        let (mode, is_dir) = (attributes.permissions().mode() & 0o7777, attributes.is_dir());
        let wanted = match is_dir {
            true if path == objects => 0o750,
            true => 0o700,
            false => 0o600,
        };
        assert_eq!(mode, wanted, "{path:?}: {mode:o}");
        if is_dir {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
}

#[test]
fn a_damaged_object_is_told_as_such_and_hides_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = FileBucket::open(dir.path()).unwrap();
    for name in ["h/a", "h/b", "h/c"] {
        block_on(put(&bucket, name, "0123456789"));
    }
    let file = dir.path().join("objects/h/b#");
    let whole = fs::read(&file).unwrap();
    for length in [0, 20, 48, whole.len() - 1] {
        fs::write(&file, &whole[..length]).unwrap();
        let read = block_on(bucket.get(&key("h/b"), None)).unwrap_err();
        assert!(matches!(read, ReadError::Damaged(_)) && !read.passes(), "{length}: {read}");
        let listed = block_on(crate::Listing::new(&bucket, "h/").all(9)).unwrap();
        let versions: Vec<_> = listed.iter().map(|entry| entry.version.is_some()).collect();
        assert_eq!(versions, [true, false, true], "{length}");
    }
}
