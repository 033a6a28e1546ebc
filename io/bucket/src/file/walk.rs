//! Listing: a walk of the directory in the byte order of the keys.

use std::fs::{self, DirEntry, File};
use std::io;
use std::path::{Path, PathBuf};

use super::layout::{Named, named};
use super::place::{Place, is_absence};
use super::stored;
use crate::listing::{ListQuery, Page, PageObject};
use crate::outcome::{Failure, ReadError};
use crate::{Key, Meta};

/// One page of the keys that exist while it is walked.
pub(super) fn page(place: &Place, query: &ListQuery) -> Result<Page, ReadError> {
    let after = query.token.as_deref().or(query.start_after.as_ref().map(Key::as_str));
    let mut walk = Walk { query, after: after.unwrap_or(""), objects: Vec::new(), full: false };
    walk.directory(&place.objects, "")?;
    let token = if walk.full { walk.objects.last().map(|object| object.name.clone()) } else { None };
    Ok(Page { objects: walk.objects, truncated: walk.full, token })
}

struct Walk<'a> {
    query: &'a ListQuery,
    after: &'a str,
    objects: Vec<PageObject>,
    full: bool,
}

/// A name in a directory: the text its key or all its keys begin with, and where it lies.
struct Found {
    /// Ends in `/` for a directory. Sorted by this, a walk meets keys in byte order: `a`, `a-b`, `a/b`.
    text: String,
    path: PathBuf,
}

impl Walk<'_> {
    fn directory(&mut self, dir: &Path, text: &str) -> Result<(), ReadError> {
        let mut found = Vec::new();
        read_names(dir, text, &mut found).map_err(|error| Failure::Unavailable(error.to_string()))?;
        found.sort_unstable_by(|a, b| a.text.cmp(&b.text));
        for Found { text, path } in found {
            if self.full {
                break;
            }
            match text.ends_with('/') {
                true if self.may_hold(&text) => self.directory(&path, &text)?,
                false if text.as_str() > self.after && text.starts_with(&self.query.prefix) => {
                    self.object(text, &path)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether keys that begin with `text` can be asked for.
    fn may_hold(&self, text: &str) -> bool {
        let related = text.starts_with(&self.query.prefix) || self.query.prefix.starts_with(text);
        related && (text > self.after || self.after.starts_with(text))
    }

    fn object(&mut self, name: String, path: &Path) -> Result<(), ReadError> {
        let file = match File::open(path) {
            Ok(file) => file,
            // Deleted since the directory was read.
            Err(error) if is_absence(&error) => return Ok(()),
            Err(error) => return Err(Failure::Unavailable(error.to_string()).into()),
        };
        if self.objects.len() == self.query.page_max {
            self.full = true;
            return Ok(());
        }
        let object = match stored::meta(&file) {
            Ok(Meta { version, size, modified_ms }) => {
                PageObject { name, size, modified_ms, version: Some(version) }
            }
            // It is there, and must not hide the others: who reads it is told.
            Err(ReadError::Damaged(_)) => {
                let outside = stored::outside(&file);
                let (size, modified_ms) = outside.map_err(|error| Failure::Unavailable(error.to_string()))?;
                PageObject { name, size, modified_ms, version: None }
            }
            Err(error) => return Err(error),
        };
        self.objects.push(object);
        Ok(())
    }
}

/// Reads a directory's names, those of cut segments joined again, because they sort among their siblings.
fn read_names(dir: &Path, text: &str, found: &mut Vec<Found>) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries.collect::<io::Result<Vec<DirEntry>>>()?,
        Err(error) if is_absence(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let (name, path) = (entry.file_name(), entry.path());
        match name.to_str().and_then(named) {
            Some(Named::Object(stem)) => found.push(Found { text: format!("{text}{stem}"), path }),
            Some(Named::Segment(stem)) => found.push(Found { text: format!("{text}{stem}/"), path }),
            Some(Named::Piece(stem)) => read_names(&path, &format!("{text}{stem}"), found)?,
            None => {}
        }
    }
    Ok(())
}
