use std::{collections::BTreeMap, fs, path::Path};

use proptest::prelude::*;
use wasmkeep_actor::alarm::Book;
use wasmkeep_protocol::{ActorId, alarm::Wake};

use super::open::{Opened, open_in};

fn id(name: &str) -> ActorId {
    ActorId { class: "c".parse().unwrap(), name: name.parse().unwrap() }
}

fn at(at_ms: u64) -> Wake {
    Wake { at_ms, is_retry: false }
}

fn open(folder: &Path, shards: usize) -> Opened {
    open_in(folder, shards, Some("this boot".to_owned())).unwrap()
}

/// A first start in an empty folder, looked through.
fn begun(folder: &Path, shards: usize) -> Vec<Book> {
    let opened = open(folder, shards);
    assert!(!opened.is_complete, "there was no index");
    opened.mark.complete().unwrap();
    opened.shards.into_iter().map(|(index, known)| Book::new(index.impatient(8), known)).collect()
}

/// What a start finds, over all shards.
fn known(opened: &Opened) -> BTreeMap<ActorId, Wake> {
    opened.shards.iter().flat_map(|(_, known)| known.iter().cloned()).collect()
}

fn logs(folder: &Path) -> Vec<std::path::PathBuf> {
    let epochs =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    epochs.flat_map(|epoch| fs::read_dir(epoch).unwrap().map(|entry| entry.unwrap().path())).collect()
}

#[test]
fn a_start_finds_what_was_left_whatever_its_number_of_shards() {
    // R-ALM-1, case A3
    let folder = tempfile::tempdir().unwrap();
    let books = begun(folder.path(), 2);
    let name = |n: u64| id(&n.to_string());
    for n in 0..100 {
        // An actor is of one shard; here every other one, as good a rule as any.
        let book = &books[(n % 2) as usize];
        book.announce(&name(n), at(n)).unwrap();
        book.settled(&name(n), (n % 10 != 3).then_some(Wake { at_ms: n + 1_000, is_retry: n % 7 == 0 }))
            .unwrap();
    }
    drop(books);
    let expected: BTreeMap<_, _> = (0..100)
        .filter(|n| n % 10 != 3)
        .map(|n| (name(n), Wake { at_ms: n + 1_000, is_retry: n % 7 == 0 }))
        .collect();
    for shards in [2, 3, 1, 5] {
        let opened = open(folder.path(), shards);
        assert!(opened.is_complete, "{shards}");
        assert_eq!(known(&opened), expected, "{shards}");
        assert_eq!(logs(folder.path()).len(), shards, "the logs of the last start are gone");
    }
}

#[test]
fn in_another_boot_or_when_damaged_or_lost_the_index_is_not_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let book = &begun(folder.path(), 1)[0];
    for name in ["a", "b", "c"] {
        book.announce(&id(name), at(5)).unwrap();
    }
    let other = open_in(folder.path(), 1, Some("another boot".to_owned())).unwrap();
    assert!(!other.is_complete && known(&other).len() == 3, "what it says may still be true");
    drop(other);
    let again = open_in(folder.path(), 1, Some("another boot".to_owned())).unwrap();
    assert!(!again.is_complete, "until all databases have been looked at");
    again.mark.complete().unwrap();
    assert!(open_in(folder.path(), 1, Some("another boot".to_owned())).unwrap().is_complete);
    assert!(!open_in(folder.path(), 1, None).unwrap().is_complete, "a boot without a name is never the same");
    open(folder.path(), 1).mark.complete().unwrap();

    let [log] = &logs(folder.path())[..] else { panic!("one log") };
    let whole = fs::read(log).unwrap();
    fs::write(log, &whole[..whole.len() - 1]).unwrap();
    let torn = open(folder.path(), 1);
    assert!(!torn.is_complete && known(&torn).len() == 2);
    torn.mark.complete().unwrap();
    drop(torn);
    fs::write(folder.path().join("current"), "nonsense").unwrap();
    assert!(!open(folder.path(), 1).is_complete);
    open(folder.path(), 1).mark.complete().unwrap();
    fs::remove_file(folder.path().join("current")).unwrap();
    assert!(!open(folder.path(), 1).is_complete);
}

#[test]
fn a_log_does_not_grow_with_the_changes_that_went_into_it() {
    let folder = tempfile::tempdir().unwrap();
    let book = &begun(folder.path(), 1)[0];
    for round in 0..1_000 {
        for name in ["a", "b", "c", "d", "e", "f"] {
            book.settled(&id(name), Some(at(round))).unwrap();
        }
    }
    let bytes: u64 = logs(folder.path()).iter().map(|log| fs::metadata(log).unwrap().len()).sum();
    assert!(bytes < 4_000, "{bytes} bytes for six alarms");
    assert_eq!(known(&open(folder.path(), 1)).len(), 6);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever was written, and wherever the process ended: the next start finds exactly the last word on each.
    #[test]
    fn the_last_word_on_each_actor_counts(changes in proptest::collection::vec((0..12_u8, proptest::option::of(0..50_u64)), 0..200)) {
        let folder = tempfile::tempdir().unwrap();
        let book = &begun(folder.path(), 1)[0];
        let mut expected = BTreeMap::new();
        for (actor, at_ms) in changes {
            let (id, wake) = (id(&actor.to_string()), at_ms.map(at));
            book.settled(&id, wake).unwrap();
            match wake {
                Some(wake) => drop(expected.insert(id, wake)),
                None => drop(expected.remove(&id)),
            }
        }
        let opened = open(folder.path(), 1);
        prop_assert!(opened.is_complete);
        prop_assert_eq!(known(&opened), expected);
    }
}
