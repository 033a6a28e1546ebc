//! A bucket in memory, for tests and the simulator. Owns real conditional semantics, no durability.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::listing::{ListQuery, Page, PageObject};
use crate::outcome::{Failure, Outcome, Precondition, ReadError, Version};
use crate::{Body, Bucket, Key, Meta, Object};

/// A bucket that lives as long as its last handle. Clones share the objects.
#[derive(Clone)]
pub struct MemoryBucket {
    objects: Rc<RefCell<BTreeMap<Key, Stored>>>,
    writes: Rc<Cell<u64>>,
    now_ms: Rc<dyn Fn() -> u64>,
}

#[derive(Clone)]
struct Stored {
    body: Bytes,
    meta: Meta,
}

impl MemoryBucket {
    /// An empty bucket that dates its objects by the system's clock.
    pub fn new() -> Self {
        Self::with_clock(|| {
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
        })
    }

    /// An empty bucket that dates its objects by `now_ms`, milliseconds since 1970. Same calls, same versions.
    pub fn with_clock(now_ms: impl Fn() -> u64 + 'static) -> Self {
        Self { objects: Rc::default(), writes: Rc::default(), now_ms: Rc::new(now_ms) }
    }
}

impl Default for MemoryBucket {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for MemoryBucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryBucket").field("objects", &self.objects.borrow().len()).finish()
    }
}

impl Bucket for MemoryBucket {
    async fn get(&self, key: &Key, range: Option<Range<u64>>) -> Result<Object, ReadError> {
        let stored = self.objects.borrow().get(key).cloned().ok_or(ReadError::NotFound)?;
        let range = clip(range, stored.meta.size)?;
        let body = Body::from_bytes(stored.body.slice(range.start as usize..range.end as usize));
        Ok(Object { meta: stored.meta, range, body })
    }

    async fn head(&self, key: &Key) -> Result<Meta, ReadError> {
        self.objects.borrow().get(key).map(|stored| stored.meta.clone()).ok_or(ReadError::NotFound)
    }

    async fn put(&self, key: &Key, body: Bytes, condition: &Precondition) -> Outcome {
        let mut objects = self.objects.borrow_mut();
        if !holds(condition, objects.get(key).map(|stored| &stored.meta.version)) {
            return Outcome::ConditionFailed;
        }
        self.writes.set(self.writes.get() + 1);
        let version = match Version::new(format!("\"memory-{}\"", self.writes.get())) {
            Ok(version) => version,
            Err(error) => return Outcome::Failed(Failure::Refused(error.to_string())),
        };
        let meta = Meta { version: version.clone(), size: body.len() as u64, modified_ms: (self.now_ms)() };
        objects.insert(key.clone(), Stored { body, meta });
        Outcome::Written(version)
    }

    async fn delete(&self, key: &Key) -> Result<(), Failure> {
        self.objects.borrow_mut().remove(key);
        Ok(())
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, ReadError> {
        let objects = self.objects.borrow();
        let after = query.token.as_deref().or(query.start_after.as_ref().map(Key::as_str));
        let after = after.map(str::parse::<Key>).transpose();
        let after = after.map_err(|error| Failure::Refused(error.to_string()))?;
        let lower = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut matching = objects
            .range::<Key, _>((lower, Bound::Unbounded))
            .skip_while(|(key, _)| key.as_str() < query.prefix.as_str())
            .take_while(|(key, _)| key.as_str().starts_with(&query.prefix));
        let page = matching.by_ref().take(query.page_max).map(|(key, stored)| PageObject {
            name: key.to_string(),
            size: stored.meta.size,
            modified_ms: stored.meta.modified_ms,
            version: Some(stored.meta.version.clone()),
        });
        let page: Vec<PageObject> = page.collect();
        let truncated = matching.next().is_some();
        let token = if truncated { page.last().map(|object| object.name.clone()) } else { None };
        Ok(Page { objects: page, truncated, token })
    }
}

/// Whether `condition` holds for an object in the version `current`, `None` when there is no object.
pub(crate) fn holds(condition: &Precondition, current: Option<&Version>) -> bool {
    match condition {
        Precondition::None => true,
        Precondition::Absent => current.is_none(),
        Precondition::Version(wanted) => current == Some(wanted),
    }
}

/// The part of `0..size` that `range` asks for, as a server with HTTP ranges gives it.
pub(crate) fn clip(range: Option<Range<u64>>, size: u64) -> Result<Range<u64>, ReadError> {
    match range {
        None => Ok(0..size),
        Some(range) if range.start < range.end && range.start < size => Ok(range.start..range.end.min(size)),
        Some(range) => {
            Err(Failure::Refused(format!("bytes {range:?} lie outside an object of {size} bytes")).into())
        }
    }
}
