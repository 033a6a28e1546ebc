use std::fs;

use super::*;

const WAL: c_int = ffi::SQLITE_OPEN_WAL | ffi::SQLITE_OPEN_CREATE;
const HEADER: [u8; FRAME_HEADER_BYTES] = [7; FRAME_HEADER_BYTES];
const ONE_PAGE: [u8; PAGE] = [9; PAGE];
const FRAME: u64 = (HEADER.len() + PAGE) as u64;

/// A WAL with its own header, and where it is.
fn wal() -> (tempfile::TempDir, PathBuf, State) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db-wal");
    let mut state = State::open(&path, WAL).unwrap();
    state.write(&[1; 32], 0).unwrap();
    (folder, path, state)
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

#[test]
fn a_frame_at_the_end_of_a_wal_is_written_in_one_go() {
    let (_folder, path, mut state) = wal();
    for frame in 0..3 {
        let at = 32 + frame * FRAME;
        state.write(&HEADER, at).unwrap();
        assert_eq!(length(&path), at, "the header waits for its page");
        state.write(&ONE_PAGE, at + HEADER.len() as u64).unwrap();
        assert_eq!(length(&path), at + FRAME);
    }
    let content = fs::read(&path).unwrap();
    assert_eq!(content[32..56], HEADER);
    assert_eq!(content[56..56 + PAGE], ONE_PAGE);
    assert_eq!(content[content.len() - PAGE - 1], HEADER[0]);
}

#[test]
fn a_header_that_waits_is_there_for_whoever_looks() {
    type Look = fn(&mut State) -> u64;
    let looks: [(&str, Look); 3] = [
        ("its length", |state| state.len().unwrap()),
        ("what is in it", |state| 32 + state.read(&mut [0; 100], 32).unwrap() as u64),
        ("a sync", |state| {
            state.flush().unwrap();
            state.file.metadata().unwrap().len()
        }),
    ];
    for (what, look) in looks {
        let (_folder, path, mut state) = wal();
        state.write(&HEADER, 32).unwrap();
        assert_eq!(look(&mut state), 56, "{what}");
        // The page comes all the same, and the next frame is whole again.
        state.write(&ONE_PAGE, 56).unwrap();
        state.write(&HEADER, 32 + FRAME).unwrap();
        state.write(&ONE_PAGE, 56 + FRAME).unwrap();
        assert_eq!(length(&path), 32 + 2 * FRAME, "{what}");
    }
}

#[test]
fn a_header_written_again_goes_to_the_file_at_once() {
    let (_folder, path, mut state) = wal();
    state.write(&HEADER, 32).unwrap();
    state.write(&ONE_PAGE, 56).unwrap();
    state.write(&[8; FRAME_HEADER_BYTES], 32).unwrap();
    assert_eq!(fs::read(&path).unwrap()[32], 8);
    // After a round that was emptied the end is where the file ends.
    state.truncate(0).unwrap();
    state.write(&[1; 32], 0).unwrap();
    state.write(&HEADER, 32).unwrap();
    assert_eq!(length(&path), 32);
    drop(state);
    assert_eq!(State::open(&path, WAL).unwrap().bytes, 32);
}

#[test]
fn frames_of_a_new_round_go_over_the_old_ones_in_one_go() {
    let (_folder, path, mut state) = wal();
    for frame in 0..3 {
        state.write(&HEADER, 32 + frame * FRAME).unwrap();
        state.write(&ONE_PAGE, 56 + frame * FRAME).unwrap();
    }
    state.write(&[2; 32], 0).unwrap();
    let content = || fs::read(&path).unwrap();
    state.write(&[8; FRAME_HEADER_BYTES], 32).unwrap();
    assert_eq!(content()[32], HEADER[0], "the header waits for its page");
    state.write(&[3; PAGE], 56).unwrap();
    assert_eq!((content()[32], content()[56], content()[56 + PAGE - 1]), (8, 3, 3));
    assert_eq!((length(&path), state.len().unwrap()), (32 + 3 * FRAME, 32 + 3 * FRAME));
    // A header inside the new round, written again when a transaction was partly rolled back.
    state.write(&[4; FRAME_HEADER_BYTES], 32).unwrap();
    assert_eq!(content()[32], 4);
    state.write(&HEADER, 32 + FRAME).unwrap();
    drop(state);
    assert_eq!(content()[32 + FRAME as usize], HEADER[0], "as it was: the frame never came");
}

#[test]
fn another_process_is_kept_off_until_the_file_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    let ours = crate::Database::open(&path, &crate::Config::default()).unwrap();
    let look = || {
        let theirs = rusqlite::Connection::open(&path).unwrap();
        theirs.busy_timeout(std::time::Duration::ZERO).unwrap();
        theirs.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))
    };
    // SQLite's own methods take locks that a descriptor's lock stands against, within a process too.
    let refused = look().unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy), "{refused}");
    // A second connection of ours is refused as well, and takes nothing from the first.
    let second = crate::Database::open(&path, &crate::Config::default()).unwrap_err();
    assert!(matches!(second, crate::OpenError::Locked { .. }), "{second}");
    assert!(look().is_err());
    drop(ours);
    assert_eq!(look().unwrap(), 1, "the table of the platform's own rows");
}

#[test]
fn what_a_file_does_not_have_reads_as_zeros() {
    let (_folder, _, mut state) = wal();
    let mut room = [5; 64];
    assert_eq!(state.read(&mut room, 0).unwrap(), 32);
    assert_eq!(state.read(&mut room, 1000).unwrap(), 0);
}
