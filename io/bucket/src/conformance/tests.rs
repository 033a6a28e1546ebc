//! The suite against the memory backend, and against listings that are wrong.

use std::ops::Range;

use crate::block_on;

use super::*;
use crate::{Failure, ListQuery, MemoryBucket, Meta, Object, Page};

#[test]
fn the_memory_backend_keeps_every_promise() {
    let breaches = block_on(check(&MemoryBucket::new(), Scope::Everything));
    assert_eq!(breaches, []);
}

/// Turns a right page into a wrong one.
type Wrong = fn(&ListQuery, Page) -> Page;

/// A bucket whose listings are wrong in one way.
struct WrongListing {
    inner: MemoryBucket,
    wrong: Wrong,
}

impl Bucket for WrongListing {
    async fn get(&self, key: &Key, range: Option<Range<u64>>) -> Result<Object, ReadError> {
        self.inner.get(key, range).await
    }

    async fn head(&self, key: &Key) -> Result<Meta, ReadError> {
        self.inner.head(key).await
    }

    async fn put(&self, key: &Key, body: Bytes, condition: &Precondition) -> Outcome {
        self.inner.put(key, body, condition).await
    }

    async fn delete(&self, key: &Key) -> Result<(), Failure> {
        self.inner.delete(key).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, ReadError> {
        self.inner.list(query).await.map(|page| (self.wrong)(query, page))
    }
}

// case S4
#[test]
fn the_suite_catches_each_wrong_listing() {
    let wrongs: [(&str, Wrong); 5] = [
        ("no token", |_, page| Page { token: None, ..page }),
        ("cut short and called complete", |_, page| Page { token: None, truncated: false, ..page }),
        ("a directory's order", |_, mut page| {
            page.objects.sort_by_key(|object| object.name.split('/').map(str::to_owned).collect::<Vec<_>>());
            page
        }),
        ("a key left out", |_, mut page| {
            page.objects.retain(|object| !object.name.ends_with("0003"));
            page
        }),
        ("start_after not applied", |query, page| match &query.start_after {
            Some(_) => Page::default(),
            None => page,
        }),
    ];
    for (name, wrong) in wrongs {
        let bucket = WrongListing { inner: MemoryBucket::new(), wrong };
        assert!(!block_on(check(&bucket, Scope::Everything)).is_empty(), "{name}");
    }
}
