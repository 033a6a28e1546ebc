//! Where an object lies: key to path and back. Owns the marks that keep files and directories of one name apart.
//!
//! A key's bytes are all fit for a file name, so a path can be read by a person. An object's file ends in `#`
//! and a directory does not, so that the keys `a` and `a/b` fit beside each other. A segment longer than a file
//! name may be is cut into pieces; each piece but the last is a directory that ends in `^`. Neither mark can
//! occur in a key.

use std::path::{Path, PathBuf};

use crate::Key;

/// Bytes of one piece of a segment. File systems allow 255 in a name; this leaves room for the mark.
const PIECE_BYTES: usize = 200;

const OBJECT_MARK: char = '#';
const PIECE_MARK: char = '^';

/// The file of `key` below `objects`.
pub(super) fn object_path(objects: &Path, key: &Key) -> PathBuf {
    let mut path = objects.to_path_buf();
    let mut segments = key.as_str().split('/').peekable();
    while let Some(segment) = segments.next() {
        let last = push_pieces(&mut path, segment);
        match segments.peek() {
            Some(_) => path.push(last),
            None => path.push(format!("{last}{OBJECT_MARK}")),
        }
    }
    path
}

/// Appends all pieces but the last and gives that one.
fn push_pieces<'a>(path: &mut PathBuf, mut segment: &'a str) -> &'a str {
    while segment.len() > PIECE_BYTES {
        let (piece, rest) = segment.split_at(PIECE_BYTES);
        path.push(format!("{piece}{PIECE_MARK}"));
        segment = rest;
    }
    segment
}

/// What a name in a directory stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Named<'a> {
    /// The end of a key.
    Object(&'a str),
    /// A whole segment, or the last piece of one, with keys below it.
    Segment(&'a str),
    /// The beginning of a longer segment.
    Piece(&'a str),
}

/// Reads a name back; `None` for what this module never writes.
pub(super) fn named(name: &str) -> Option<Named<'_>> {
    let (stem, named) = if let Some(stem) = name.strip_suffix(OBJECT_MARK) {
        (stem, Named::Object(stem))
    } else if let Some(stem) = name.strip_suffix(PIECE_MARK) {
        (stem, Named::Piece(stem))
    } else {
        (name, Named::Segment(name))
    };
    let ours = !stem.is_empty() && stem.bytes().all(crate::key::is_key_byte);
    ours.then_some(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(key: &str) -> String {
        object_path(Path::new(""), &key.parse().unwrap()).to_str().unwrap().to_owned()
    }

    #[test]
    fn a_key_and_the_keys_below_it_have_separate_places() {
        assert_eq!(path("nodes/a"), "nodes/a#");
        assert_eq!(path("nodes/a/b"), "nodes/a/b#");
        assert_eq!(path("a"), "a#");
    }

    #[test]
    fn a_long_segment_is_cut_so_that_no_file_name_is_too_long() {
        for length in [199, 200, 201, 400, 401, 768] {
            let key = "k".repeat(length);
            let path = path(&key);
            assert!(path.split('/').all(|name| name.len() <= 255), "{length}");
            let whole: String = path.split('/').map(|name| name.trim_end_matches(['#', '^'])).collect();
            assert_eq!(whole, key);
        }
        assert_eq!(path(&format!("{}/x", "k".repeat(201))), format!("{}^/k/x#", "k".repeat(200)));
    }

    #[test]
    fn names_read_back_as_what_they_were_written_for() {
        assert_eq!(named("a#"), Some(Named::Object("a")));
        assert_eq!(named("a"), Some(Named::Segment("a")));
        assert_eq!(named("a^"), Some(Named::Piece("a")));
        for foreign in ["", "#", "^", "a b", "a##", "lost+found!"] {
            assert_eq!(named(foreign), None, "{foreign:?}");
        }
    }
}
