//! An actor's alarm in the bucket's index, carried out: put before what needs it, cleared away behind it, and the
//! listing of what is overdue (R-ALM-1). Which entries those are is decided by [`Posts`] and `Sweep` of `protocol`.

use std::{
    cell::RefCell,
    future::poll_fn,
    task::{Poll, Waker},
};

use bytes::Bytes;
use wasmkeep_bucket::{Bucket, Failure, Key, ListError, Listing, ReadError};
use wasmkeep_protocol::{
    ActorId, Tenant,
    alarm::{Listed, Outlook, Post, Posts, Tidy, Whose, post_body},
    limits::{
        ALARM_SWEEP_EVERY, ALARM_SWEEP_KEYS_MAX, ALARM_SWEEP_PAGE_KEYS, ALARM_TIDY_PAUSE, BUCKET_REQUEST_MAX,
    },
    object_keys,
    replication::Upload,
};
use wasmkeep_runtime::{Runtime, within};

use crate::{
    hold::Hold,
    reaper::delete,
    send::{UploadError, upload},
};

/// The bytes of an entry that are read. Ours have the name of an actor.
const ENTRY_BYTES_MAX: u64 = 4 << 10;

/// Whose data it is.
#[derive(Debug, Clone)]
pub struct Subject {
    /// The tenant.
    pub tenant: Tenant,
    /// The actor.
    pub actor: ActorId,
}

/// The entries of one hold of one actor.
#[derive(Debug)]
pub(crate) struct Index {
    subject: Subject,
    whose: Whose,
    posts: RefCell<Posts>,
    keeper: RefCell<Option<Waker>>,
}

impl Index {
    pub(crate) fn new(subject: Subject, posts: Posts) -> Self {
        let whose = Whose::from(&subject.actor);
        Self { subject, whose, posts: RefCell::new(posts), keeper: RefCell::default() }
    }

    pub(crate) fn posts(&self) -> Posts {
        self.posts.borrow().clone()
    }

    /// Puts what a commit needs, before it is sent.
    pub(crate) async fn before<B: Bucket, S: Runtime>(
        &self,
        way: &B,
        runtime: &S,
        txid: u64,
        outlook: Outlook,
    ) -> Result<(), UploadError> {
        let needed = self.posts.borrow_mut().before(txid, outlook);
        match needed {
            Some(post) => self.put(way, runtime, post).await,
            None => Ok(()),
        }
    }

    pub(crate) fn landed(&self, txid: u64, outlook: Outlook) {
        self.change(|posts| posts.landed(txid, outlook));
    }

    pub(crate) fn settled(&self, txid: u64, at_ms: Option<u64>) {
        self.change(|posts| posts.settled(txid, at_ms));
    }

    pub(crate) fn noticed(&self, post: Post) {
        self.change(|posts| posts.noticed(post));
    }

    fn change(&self, change: impl FnOnce(&mut Posts)) {
        change(&mut self.posts.borrow_mut());
        if let Some(keeper) = self.keeper.borrow_mut().take() {
            keeper.wake();
        }
    }

    /// Keeps the index in step with what has landed, for as long as it is polled.
    pub(crate) async fn keep<B: Bucket, S: Runtime>(
        &self,
        way: &B,
        runtime: &S,
        hold: &impl Hold,
    ) -> std::convert::Infallible {
        loop {
            poll_fn(|context| {
                if self.posts.borrow().tidy().is_some() && hold.is_held() {
                    return Poll::Ready(());
                }
                *self.keeper.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            })
            .await;
            let pause = match self.tidy(way, runtime).await {
                Ok(()) => ALARM_TIDY_PAUSE,
                Err(why) => {
                    let Subject { tenant, actor } = &self.subject;
                    tracing::warn!(%tenant, class = %actor.class, name = %actor.name,
                        "the actor's alarms in the bucket could not be brought in step: {why}");
                    ALARM_SWEEP_EVERY
                }
            };
            runtime.sleep(pause).await;
        }
    }

    /// Brings the index in step with what has landed.
    pub(crate) async fn tidy<B: Bucket, S: Runtime>(&self, way: &B, runtime: &S) -> Result<(), String> {
        loop {
            let Some(next) = self.posts.borrow().tidy() else { return Ok(()) };
            match next {
                Tidy::Put(post) => {
                    self.put(way, runtime, post).await.map_err(|error| error.to_string())?;
                }
                Tidy::Find(due_ms) => {
                    let found = self.find(way, runtime, due_ms).await;
                    let found = found.map_err(|error| error.to_string())?;
                    self.posts.borrow_mut().found(found);
                }
                Tidy::Delete(post) => {
                    let key = self.key(&post).map_err(|error| error.to_string())?;
                    self.posts.borrow_mut().leaving(&post);
                    delete(way, runtime, &key).await.map_err(|failure| failure.to_string())?;
                    self.posts.borrow_mut().gone(&post);
                }
            }
        }
    }

    async fn put<B: Bucket, S: Runtime>(&self, way: &B, runtime: &S, post: Post) -> Result<(), UploadError> {
        let body = Bytes::from(post_body(&self.subject.actor));
        upload(way, runtime, &self.key(&post)?, &body, Upload::Write).await?;
        self.posts.borrow_mut().posted(post);
        Ok(())
    }

    async fn find<B: Bucket, S: Runtime>(
        &self,
        way: &B,
        runtime: &S,
        due_ms: u64,
    ) -> Result<Vec<Post>, ListError> {
        let tenant = &self.subject.tenant;
        let listing = Listing::new(way, &object_keys::alarms_due(tenant, &self.whose, due_ms));
        let listed = listing.all(ALARM_SWEEP_KEYS_MAX);
        let entries = within(runtime, BUCKET_REQUEST_MAX, listed).await.ok_or_else(silent)??;
        let folder = object_keys::alarms_folder(tenant);
        let parsed = entries.iter().filter_map(|entry| object_keys::parse_alarm(&folder, entry.key.as_str()));
        Ok(parsed.map(|(_, post)| post).collect())
    }

    fn key(&self, post: &Post) -> Result<Key, UploadError> {
        let text = object_keys::alarm(&self.subject.tenant, &self.whose, post);
        text.parse().map_err(|error| UploadError::Impossible(format!("{text}: {error}")))
    }
}

/// What a sweep reads: entries in the order in which they are due.
#[derive(Debug)]
pub struct Overdue {
    /// Those due by then.
    pub entries: Vec<Listed>,
    /// Where the next sweep goes on; from the beginning, when absent.
    pub rest: Option<Key>,
}

/// Lists the alarms of a tenant that are due at `until_ms`, those after `from`: one request while there are few.
///
/// # Errors
/// The listing could not be read; the next sweep lists again.
pub async fn overdue<B: Bucket, S: Runtime>(
    bucket: &B,
    runtime: &S,
    tenant: &Tenant,
    from: Option<Key>,
    until_ms: u64,
) -> Result<Overdue, ListError> {
    let folder = object_keys::alarms_folder(tenant);
    let mut listing = Listing::new(bucket, &folder).page_max(ALARM_SWEEP_PAGE_KEYS);
    if let Some(from) = from {
        listing = listing.start_after(from);
    }
    let (mut entries, mut keys, mut last) = (Vec::new(), 0, None);
    while keys < ALARM_SWEEP_KEYS_MAX {
        let page = within(runtime, BUCKET_REQUEST_MAX, listing.next_page()).await;
        let Some(page) = page.ok_or_else(silent)?? else { return Ok(Overdue { entries, rest: None }) };
        keys += page.len();
        for entry in page {
            // What is not ours says nothing; it may stand anywhere.
            if let Some((whose, post)) = object_keys::parse_alarm(&folder, entry.key.as_str()) {
                if post.due_ms > until_ms {
                    return Ok(Overdue { entries, rest: None });
                }
                entries.push(Listed { whose, post });
            }
            last = Some(entry.key);
        }
    }
    Ok(Overdue { entries, rest: last })
}

/// The actor of an entry. One with a long name is read for it; `None`: it is gone, or not ours.
///
/// # Errors
/// The bucket did not say.
pub async fn whose<B: Bucket, S: Runtime>(
    bucket: &B,
    runtime: &S,
    tenant: &Tenant,
    listed: &Listed,
) -> Result<Option<ActorId>, ReadError> {
    if let Some(actor) = listed.whose.actor() {
        return Ok(Some(actor));
    }
    let Ok(key) = object_keys::alarm(tenant, &listed.whose, &listed.post).parse::<Key>() else {
        return Ok(None);
    };
    let read = async { bucket.get(&key, None).await?.bytes(ENTRY_BYTES_MAX).await };
    match within(runtime, BUCKET_REQUEST_MAX, read).await {
        Some(Ok(body)) => Ok(listed.whose.named(&body)),
        Some(Err(ReadError::NotFound | ReadError::TooLarge { .. })) => Ok(None),
        Some(Err(error)) => Err(error),
        None => Err(silent()),
    }
}

/// Deletes an entry that no state needs.
///
/// # Errors
/// It may still be there.
pub(crate) async fn forget<B: Bucket, S: Runtime>(
    bucket: &B,
    runtime: &S,
    tenant: &Tenant,
    listed: &Listed,
) -> Result<(), Failure> {
    match object_keys::alarm(tenant, &listed.whose, &listed.post).parse() {
        Ok(key) => delete(bucket, runtime, &key).await,
        // What no key can name was never put.
        Err(_) => Ok(()),
    }
}

fn silent() -> ReadError {
    ReadError::Failed(Failure::Unavailable(format!("no answer within {BUCKET_REQUEST_MAX:?}")))
}
