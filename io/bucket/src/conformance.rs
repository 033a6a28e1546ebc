//! What every backend promises, as a suite that runs against any [`Bucket`].
//!
//! Owns the promises and how each is checked. [`check`] works below a prefix of its own and removes what it
//! wrote. Promises about several processes are [`races`] and the tests that start processes.

mod conditions;
mod listings;
mod objects;

use std::fmt;

use bytes::Bytes;

use crate::outcome::{Outcome, Precondition, ReadError, Version};
use crate::{Bucket, Key, Listing, Nonce};

pub use conditions::{RaceReport, races};

/// Most keys one run of the suite leaves for its own cleaning to find.
const CLEANUP_KEYS_MAX: usize = 10_000;

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The promise, as one sentence.
    pub promise: &'static str,
    /// What happened instead.
    pub found: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken promise: {}; found: {}", self.promise, self.found)
    }
}

/// Which promises are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of them.
    Everything,
    /// All but two, for a server that keeps objects as files in directories of those names: a segment of a key
    /// may have more than 255 bytes, and a listing is in byte order also where `/` and the bytes before it
    /// meet. Such a server refuses the one and [`Listing`] refuses its pages for the other, so nothing is lost
    /// without an error; it is of use as far as keys keep away from both.
    ByDirectory,
}

/// Runs the suite. Every breach found is returned; an empty list is success.
pub async fn check<B: Bucket>(bucket: &B, scope: Scope) -> Vec<Breach> {
    let run = Run { bucket, root: format!("conformance/{}", Nonce::random()) };
    let mut breaches = Vec::new();
    for result in [
        objects::round_trip(&run).await,
        objects::ranges(&run).await,
        objects::replacing(&run).await,
        objects::removing(&run).await,
        objects::odd_keys(&run).await,
        conditions::create(&run).await,
        conditions::replace(&run).await,
        conditions::replace_missing(&run).await,
        conditions::equal_bodies(&run).await,
        listings::pages(&run).await,
        listings::prefixes(&run).await,
    ] {
        breaches.extend(result.err());
    }
    if scope == Scope::Everything {
        breaches.extend(objects::long_segments(&run).await.err());
        breaches.extend(listings::byte_order(&run).await.err());
    }
    if let Err(found) = run.clean().await {
        breaches.push(Breach { promise: "what was written can be listed and removed", found });
    }
    breaches
}

/// One run of the suite, below its own prefix.
struct Run<'a, B> {
    bucket: &'a B,
    root: String,
}

impl<B: Bucket> Run<'_, B> {
    fn key(&self, rest: &str) -> Result<Key, String> {
        format!("{}/{rest}", self.root).parse().map_err(|error: crate::KeyError| error.to_string())
    }

    async fn put(&self, key: &Key, body: &str, condition: &Precondition) -> Outcome {
        self.bucket.put(key, Bytes::from(body.to_owned()), condition).await
    }

    /// A write that has to be applied.
    async fn written(&self, key: &Key, body: &str, condition: &Precondition) -> Result<Version, String> {
        match self.put(key, body, condition).await {
            Outcome::Written(version) => Ok(version),
            other => Err(format!("{other:?} for a write of {key} under {condition:?}")),
        }
    }

    /// A write that must not be applied, and `stands` is there after it.
    async fn refused(&self, key: &Key, condition: &Precondition, stands: Option<&str>) -> Result<(), String> {
        match self.put(key, "must not be stored", condition).await {
            Outcome::ConditionFailed => self.stands(key, stands).await,
            other => Err(format!("{other:?} for a write of {key} under {condition:?}")),
        }
    }

    async fn stands(&self, key: &Key, expected: Option<&str>) -> Result<(), String> {
        let found = match self.bucket.get(key, None).await {
            Ok(object) => Some(object.bytes(1 << 20).await.map_err(|error| error.to_string())?),
            Err(ReadError::NotFound) => None,
            Err(error) => return Err(error.to_string()),
        };
        match found.as_deref() == expected.map(str::as_bytes) {
            true => Ok(()),
            false => Err(format!("{key} holds {found:?} instead of {expected:?}")),
        }
    }

    async fn clean(&self) -> Result<(), String> {
        let prefix = format!("{}/", self.root);
        let listed = Listing::new(self.bucket, &prefix).all(CLEANUP_KEYS_MAX).await;
        let listed = listed.map_err(|error| error.to_string())?;
        for entry in &listed {
            self.bucket.delete(&entry.key).await.map_err(|error| error.to_string())?;
        }
        let left = Listing::new(self.bucket, &prefix).all(CLEANUP_KEYS_MAX).await;
        match left.map_err(|error| error.to_string())?.front() {
            None => Ok(()),
            Some(entry) => Err(format!("{} is still listed after its removal", entry.key)),
        }
    }
}

/// Names the promise a check is about.
fn promise(promise: &'static str, kept: Result<(), String>) -> Result<(), Breach> {
    kept.map_err(|found| Breach { promise, found })
}

#[cfg(test)]
mod tests;
