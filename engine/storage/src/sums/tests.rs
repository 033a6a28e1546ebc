use std::collections::BTreeMap;

use proptest::prelude::*;
use wasmkeep_ltx::PageChecksums;

use super::*;

const LOG: &[u8] = b"the last commit";

fn size() -> PageSize {
    PageSize::new(512).unwrap()
}

/// A folder with a database file in it, whatever its content.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    fs::write(&path, [7; 4096]).unwrap();
    (folder, path)
}

/// Sums of so many pages, each of its own content.
fn sums(path: &Path, pages: u32) -> Sums {
    let mut sums = Sums::new(size(), path);
    sums.resize(pages);
    for pgno in 1..=pages {
        sums.set(pgno, &pgno.to_le_bytes().repeat(128));
    }
    sums
}

fn kept(path: &Path, log: &[u8]) -> Option<(u32, Checksum)> {
    Sums::kept(size(), path, log).map(|sums| (sums.page_count(), sums.database()))
}

/// What may have become of the files meanwhile, by name.
type Change<'a> = (&'a str, &'a dyn Fn(&Path));

#[test]
fn what_was_kept_is_believed_once() {
    let (_folder, path) = folder();
    let sums = sums(&path, 2_000);
    let expected = Some((2_000, sums.database()));
    sums.keep(LOG).unwrap();
    assert_eq!(kept(&path, LOG), expected);
    // Whoever had them was killed.
    assert_eq!(kept(&path, LOG), None);
}

#[test]
fn a_database_of_one_chunk_has_no_file() {
    let (_folder, path) = folder();
    sums(&path, CHUNK_SUMS).keep(LOG).unwrap();
    assert!(!beside(&path, SUMS).exists());
    sums(&path, CHUNK_SUMS + 1).keep(LOG).unwrap();
    assert!(beside(&path, SUMS).exists());
}

#[test]
fn sums_that_may_be_of_something_else_are_not_believed() {
    let in_file = |at: u64| {
        move |path: &Path| {
            let file = OpenOptions::new().read(true).write(true).open(beside(path, SUMS)).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        }
    };
    let changes: &[Change] = &[
        ("no file", &|path| fs::remove_file(beside(path, SUMS)).unwrap()),
        ("a file that was cut", &|path| {
            OpenOptions::new()
                .write(true)
                .open(beside(path, SUMS))
                .unwrap()
                .set_len(HEADER_BYTES as u64 - 1)
                .unwrap();
        }),
        ("another magic", &in_file(0)),
        ("other pages", &in_file(8)),
        ("another checksum", &in_file(16)),
        // As after a power loss: it names another boot.
        ("another proof", &in_file(24)),
        ("a sum that was not written", &in_file(CHUNKS_AT)),
        ("the last sum", &in_file(CHUNKS_AT + 599 * SUM_BYTES)),
        ("no sum but the first", &|path| {
            let file = OpenOptions::new().write(true).open(beside(path, SUMS)).unwrap();
            file.set_len(CHUNKS_AT + SUM_BYTES).unwrap();
        }),
        ("a database that is longer", &|path| {
            let file = OpenOptions::new().append(true).open(path).unwrap();
            io::Write::write_all(&mut &file, &[7]).unwrap();
        }),
        ("a database written to in place", &|path| {
            // Times go on in steps of some milliseconds.
            std::thread::sleep(std::time::Duration::from_millis(20));
            OpenOptions::new().write(true).open(path).unwrap().write_all_at(&[8], 0).unwrap();
        }),
        ("another database with the same content", &|path| {
            let other = path.with_extension("other");
            fs::copy(path, &other).unwrap();
            fs::rename(other, path).unwrap();
        }),
        ("no database", &|path| fs::remove_file(path).unwrap()),
    ];
    for (what, change) in changes {
        let (_folder, path) = folder();
        sums(&path, 600).keep(LOG).unwrap();
        change(&path);
        assert_eq!(kept(&path, LOG), None, "{what}");
    }
    let (_folder, path) = folder();
    sums(&path, 600).keep(LOG).unwrap();
    assert_eq!(kept(&path, b"a later commit"), None);
}

#[test]
fn only_what_is_touched_is_in_memory() {
    let (_folder, path) = folder();
    sums(&path, 40 * CHUNK_SUMS).keep(LOG).unwrap();
    let mut again = Sums::kept(size(), &path, LOG).unwrap();
    assert_eq!(again.chunks.len(), 0);
    again.prepare(40 * CHUNK_SUMS, [1, 2, 3, 7 * CHUNK_SUMS].into_iter()).unwrap();
    assert_eq!(again.chunks.keys().copied().collect::<Vec<_>>(), [0, 6]);
}

#[test]
fn sums_whose_file_is_gone_say_so_before_anything_changes() {
    let (_folder, path) = folder();
    sums(&path, 600).keep(LOG).unwrap();
    let mut again = Sums::kept(size(), &path, LOG).unwrap();
    let before = again.database();
    fs::remove_file(beside(&path, SUMS)).unwrap();
    again.prepare(700, [1].into_iter()).unwrap_err();
    assert_eq!((again.page_count(), again.database()), (600, before));
    assert!(again.keep(LOG).is_err());
}

/// One commit, and whether the database is closed and opened after it.
type Commit = (u32, Vec<u32>, bool);

fn commit() -> impl Strategy<Value = Commit> {
    // Around the ends of chunks more often than elsewhere.
    let pages =
        prop_oneof![1u32..2_500, (1u32..5, 0u32..3).prop_map(|(chunk, off)| chunk * CHUNK_SUMS + off - 1)];
    (pages, prop::collection::vec(any::<u32>(), 0..6), any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn they_are_what_keeping_all_of_them_in_memory_gives(commits in prop::collection::vec(commit(), 1..12)) {
        let (_folder, path) = folder();
        let (mut sums, mut model) = (Sums::new(size(), &path), PageChecksums::new(size()));
        for (number, (pages, touched, closes)) in (0u8..).zip(commits) {
            let content = [number; 512];
            let written: BTreeMap<u32, &[u8]> =
                touched.into_iter().map(|page| (page % pages + 1, &content[..])).collect();
            sums.prepare(pages, written.keys().copied()).unwrap();
            sums.resize(pages);
            model.resize(pages);
            for (pgno, page) in &written {
                sums.set(*pgno, page);
                model.set(*pgno, page);
            }
            prop_assert_eq!((sums.page_count(), sums.database()), (model.page_count(), model.database()));
            if closes {
                let has_file = sums.has_file || pages > CHUNK_SUMS;
                sums.keep(LOG).unwrap();
                let Some(again) = Sums::kept(size(), &path, LOG) else {
                    prop_assert!(!has_file);
                    return Ok(());
                };
                sums = again;
            }
        }
    }
}
