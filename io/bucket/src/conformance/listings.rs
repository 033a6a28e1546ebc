//! Promises about listings.

use super::{Breach, Run, promise};
use crate::outcome::Precondition;
use crate::{Bucket, Key, Listing};

/// Keys of the paging check: several pages of every size tried but the largest.
const KEYS: usize = 25;

pub(super) async fn pages<B: Bucket>(run: &Run<'_, B>) -> Result<(), Breach> {
    let kept = async {
        let mut keys = Vec::new();
        for n in 0..KEYS {
            let key = run.key(&format!("pages/{n:04}"))?;
            run.written(&key, &"x".repeat(n), &Precondition::None).await?;
            keys.push(key);
        }
        let prefix = format!("{}/pages/", run.root);
        for page_max in [1, 2, 7, KEYS - 1, KEYS, KEYS + 1, 1000] {
            let listing = Listing::new(run.bucket, &prefix).page_max(page_max);
            let listed = listing.all(KEYS).await.map_err(|error| error.to_string())?;
            same(listed.iter().map(|entry| &entry.key), &keys, page_max)?;
            if let Some(entry) = listed.iter().enumerate().find(|(n, entry)| entry.size != *n as u64) {
                return Err(format!("a wrong size: {entry:?}"));
            }
            let listing = Listing::new(run.bucket, &prefix).start_after(keys[9].clone()).page_max(page_max);
            let listed = listing.all(KEYS).await.map_err(|error| error.to_string())?;
            same(listed.iter().map(|entry| &entry.key), &keys[10..], page_max)?;
        }
        versions(run, &prefix).await
    };
    promise("a listing gives every key once, whatever the size of its pages", kept.await)
}

async fn versions<B: Bucket>(run: &Run<'_, B>, prefix: &str) -> Result<(), String> {
    let listed = Listing::new(run.bucket, prefix).all(KEYS).await.map_err(|error| error.to_string())?;
    for entry in listed.iter().take(3) {
        let head = run.bucket.head(&entry.key).await.map_err(|error| error.to_string())?;
        if entry.version.as_ref().is_some_and(|version| *version != head.version) {
            return Err(format!("{entry:?} is listed in another version than {head:?}"));
        }
    }
    Ok(())
}

pub(super) async fn prefixes<B: Bucket>(run: &Run<'_, B>) -> Result<(), Breach> {
    let kept = async {
        let mut keys = Vec::new();
        for name in ["prefix/a/1", "prefix/a/2", "prefix/ab/1", "prefix/b"] {
            let key = run.key(name)?;
            run.written(&key, "x", &Precondition::None).await?;
            keys.push(key);
        }
        for (prefix, expected) in [
            ("prefix/", &keys[..]),
            ("prefix/a", &keys[..3]),
            ("prefix/a/", &keys[..2]),
            ("prefix/ab", &keys[2..3]),
            ("prefix/b", &keys[3..]),
            ("prefix/b/", &[]),
            ("prefix/nothing", &[]),
        ] {
            let listing = Listing::new(run.bucket, &format!("{}/{prefix}", run.root));
            let listed = listing.all(9).await.map_err(|error| format!("{prefix}: {error}"))?;
            same(listed.iter().map(|entry| &entry.key), expected, 1000)
                .map_err(|found| format!("{prefix}: {found}"))?;
        }
        Ok(())
    };
    promise("a prefix is text: it may end inside a segment, and what lacks it is not listed", kept.await)
}

pub(super) async fn byte_order<B: Bucket>(run: &Run<'_, B>) -> Result<(), Breach> {
    let kept = async {
        let long = "k".repeat(205);
        let mut keys = Vec::new();
        // `+`, `,`, `-` and `.` come before `/`, digits and letters after it.
        for name in ["o", "o+", "o,", "o-b", "o.b", "o/b", "o/b/c", "o0", "oB", "o_", "ob", "o~"] {
            keys.push(run.key(&format!("order/{name}"))?);
        }
        for name in [&long[..200], &long, &format!("{}/b", &long[..200]), &format!("{}-b", &long[..200])] {
            keys.push(run.key(&format!("order/{name}"))?);
        }
        for key in &keys {
            run.written(key, "x", &Precondition::None).await?;
        }
        keys.sort();
        let prefix = format!("{}/order/", run.root);
        for page_max in [1, 3, 1000] {
            let listing = Listing::new(run.bucket, &prefix).page_max(page_max);
            let listed = listing.all(keys.len()).await.map_err(|error| error.to_string())?;
            same(listed.iter().map(|entry| &entry.key), &keys, page_max)?;
        }
        for (n, key) in keys.iter().enumerate() {
            let listing = Listing::new(run.bucket, &prefix).start_after(key.clone());
            let listed = listing.all(keys.len()).await.map_err(|error| error.to_string())?;
            same(listed.iter().map(|entry| &entry.key), &keys[n + 1..], 1000)?;
        }
        Ok(())
    };
    promise("a listing is in the byte order of whole keys, and so is what follows a key", kept.await)
}

fn same<'k>(listed: impl Iterator<Item = &'k Key>, expected: &[Key], page_max: usize) -> Result<(), String> {
    let listed: Vec<&Key> = listed.collect();
    match listed.iter().copied().eq(expected) {
        true => Ok(()),
        false => Err(format!("pages of {page_max} gave {listed:?} instead of {expected:?}")),
    }
}
