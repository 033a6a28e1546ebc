//! What the broken variants do to the requests of a process: wrong conditions, wrong answers, answers that never came.

use std::{collections::BTreeMap, ops::Range, pin::pin, time::Duration};

use bytes::Bytes;
use futures::future::{Either, select};
use wasmkeep_bucket::{Key, ListQuery, Meta, Outcome, Page, PageObject, Precondition, ReadError, Version};
use wasmkeep_protocol::{
    limits,
    object_keys::{self, NODES},
    records::{Hold, NodeRecord, NodeState, Nonce, OwnerRecord},
};

use super::bucket::NetworkBucket;
use crate::cluster::{flaw::Flaw, stage};

/// When a variant takes silence for an answer: before whoever asked stops waiting.
const SILENCE: Duration = Duration::from_millis(2_500);

/// Between two listings of a process that was cut off.
const CUT_OFF: Duration = Duration::from_secs(8);

/// What the variants remember.
#[derive(Debug, Default)]
pub(super) struct Breaks {
    /// Heartbeats of others as they were read last.
    heartbeats: BTreeMap<String, (Meta, NodeRecord)>,
    /// The versions of the heartbeats in the last listing, and since when each stands.
    listed: BTreeMap<String, (Version, Duration)>,
    /// When that was.
    listed_at: Option<Duration>,
}

type Got = Result<(Meta, Range<u64>, Bytes), ReadError>;

fn with_body(got: (Meta, Range<u64>, Bytes), body: Vec<u8>) -> (Meta, Range<u64>, Bytes) {
    let size = body.len() as u64;
    (Meta { size, ..got.0 }, 0..size, body.into())
}

fn guess() -> Outcome {
    Version::new("guess").map_or_else(|_| Outcome::ConditionFailed, Outcome::Written)
}

impl NetworkBucket {
    pub(super) async fn broken_get(&self, key: &Key, range: Option<Range<u64>>) -> Got {
        let got = self.really_get(key, range).await;
        if !key.as_str().starts_with(NODES) {
            return got;
        }
        let is_own = key.as_str() == self.node.own_heartbeat();
        if let (Ok((meta, _, body)), false) = (&got, is_own)
            && let Ok(record) = NodeRecord::decode(body)
        {
            self.breaks.borrow_mut().heartbeats.insert(key.to_string(), (meta.clone(), record));
        }
        match (self.node.flaw, got) {
            (Some(Flaw::NoStartCheck), Ok(got)) if is_own => Ok(self.released_long_ago(got)),
            (Some(Flaw::FenceFreesAtOnce), Ok(got)) => Ok(self.watched_for_long(got)),
            (Some(Flaw::DeletedFrees), Err(ReadError::NotFound)) if !is_own => {
                let breaks = self.breaks.borrow();
                let (meta, record) = breaks.heartbeats.get(key.as_str()).ok_or(ReadError::NotFound)?;
                let released = NodeRecord { state: NodeState::Released, ..record.clone() };
                let meta = Meta { version: deleted(), ..meta.clone() };
                Ok(with_body((meta, 0..0, Bytes::new()), released.encode()))
            }
            (_, got) => got,
        }
    }

    /// The start check of the variant that skips it sees the previous process released long ago.
    fn released_long_ago(&self, got: (Meta, Range<u64>, Bytes)) -> (Meta, Range<u64>, Bytes) {
        match NodeRecord::decode(&got.2) {
            Ok(record) if stage::pid(record.process) != Some(self.node.pid) => {
                let released =
                    NodeRecord { state: NodeState::Released, written_at_ms: 0, sequence: 0, ..record };
                with_body(got, released.encode())
            }
            _ => got,
        }
    }

    fn watched_for_long(&self, got: (Meta, Range<u64>, Bytes)) -> (Meta, Range<u64>, Bytes) {
        let Ok(mut record) = NodeRecord::decode(&got.2) else { return got };
        let NodeState::Fenced { watched, .. } = &mut record.state else { return got };
        *watched = limits::LEASE_TTL + limits::LEASE_GRACE;
        with_body(got, record.encode())
    }

    pub(super) async fn broken_put(&self, key: &Key, body: Bytes, condition: &Precondition) -> Outcome {
        let Some(flaw) = self.node.flaw else { return self.really_put(key, body, condition).await };
        let text = key.as_str();
        let (is_heartbeat, is_own) = (text.starts_with(NODES), text == self.node.own_heartbeat());
        let is_owner = stage::actor_of_key(text).is_some();
        match flaw {
            Flaw::OwnersUnconditional if is_owner => self.really_put(key, body, &Precondition::None).await,
            Flaw::HeartbeatsUnconditional if is_heartbeat => {
                self.really_put(key, body, &Precondition::None).await
            }
            Flaw::FencesBlindly if is_heartbeat && !is_own => {
                self.really_put(key, body, &Precondition::None).await
            }
            // Nothing is sent, and nothing comes.
            Flaw::NeverFences if is_heartbeat && !is_own => std::future::pending().await,
            Flaw::FenceKeepsLength if is_heartbeat && !is_own => {
                let body = self.as_long_as_before(text, body);
                self.really_put(key, body, condition).await
            }
            Flaw::BelievesSilence if is_own => {
                let (put, silence) = (pin!(self.really_put(key, body, condition)), self.node.sleep(SILENCE));
                match select(put, pin!(silence)).await {
                    Either::Left((outcome @ (Outcome::Written(_) | Outcome::ConditionFailed), _)) => outcome,
                    _ => guess(),
                }
            }
            Flaw::BelievesRefusal if is_owner => match self.really_put(key, body, condition).await {
                Outcome::ConditionFailed => guess(),
                outcome => outcome,
            },
            Flaw::ReusesGeneration if is_owner => {
                let body = lower_generation(body);
                self.really_put(key, body, condition).await
            }
            _ => self.really_put(key, body, condition).await,
        }
    }

    /// A fence in the length of the heartbeat that it replaces.
    fn as_long_as_before(&self, key: &str, body: Bytes) -> Bytes {
        let breaks = self.breaks.borrow();
        match (NodeRecord::decode(&body), breaks.heartbeats.get(key)) {
            (Ok(record), Some((_, replaced))) => {
                NodeRecord { shape: replaced.shape, ..record }.encode().into()
            }
            _ => body,
        }
    }

    pub(super) async fn broken_list(&self, query: &ListQuery) -> Result<Page, ReadError> {
        if self.node.flawed(Flaw::NeverSweeps) && query.prefix == object_keys::alarms_folder(&stage::tenant())
        {
            return Ok(Page { objects: Vec::new(), truncated: false, token: None });
        }
        let listed = self.really_list(query).await;
        if query.prefix != NODES {
            return listed;
        }
        match self.node.flaw {
            Some(Flaw::DeletedFrees) => listed.map(|page| self.with_the_deleted(page)),
            Some(Flaw::FencesAfterOutage) => {
                self.fence_whoever_was_silent(&listed).await;
                listed
            }
            _ => listed,
        }
    }

    fn with_the_deleted(&self, mut page: Page) -> Page {
        for (name, (meta, _)) in &self.breaks.borrow().heartbeats {
            if !page.objects.iter().any(|object| object.name == *name) {
                let modified_ms = meta.modified_ms;
                page.objects.push(PageObject { name: name.clone(), size: 0, modified_ms, version: None });
            }
        }
        page.objects.sort_by(|one, other| one.name.cmp(&other.name));
        page
    }

    /// The first listing after others that failed counts as if all of them had come.
    async fn fence_whoever_was_silent(&self, listed: &Result<Page, ReadError>) {
        let now = self.node.moment();
        let Ok(page) = listed else { return };
        let mut silent = Vec::new();
        {
            let mut breaks = self.breaks.borrow_mut();
            let cut_off = breaks.listed_at.replace(now).is_some_and(|at| now.saturating_sub(at) > CUT_OFF);
            let before = std::mem::take(&mut breaks.listed);
            for object in &page.objects {
                let Some(version) = object.version.clone() else { continue };
                let since = match before.get(&object.name) {
                    Some((known, since)) if *known == version => *since,
                    _ => now,
                };
                let lapse = limits::LEASE_TTL + limits::LEASE_GRACE;
                if cut_off && now.saturating_sub(since) > lapse && object.name != self.node.own_heartbeat() {
                    silent.push((object.name.clone(), version.clone(), now.saturating_sub(since)));
                }
                breaks.listed.insert(object.name.clone(), (version, since));
            }
        }
        for (name, version, watched) in silent {
            let Ok(key) = name.parse::<Key>() else { continue };
            let Ok((_, _, body)) = self.really_get(&key, None).await else { continue };
            let Ok(record) = NodeRecord::decode(&body) else { continue };
            if record.is_live() {
                let nonce = Nonce::from_bits(self.node.random());
                let fence = record.fence(watched, Some(self.node.id.clone()), nonce);
                let _ = self.really_put(&key, fence.encode().into(), &Precondition::Version(version)).await;
            }
        }
    }
}

fn deleted() -> Version {
    Version::new("deleted").unwrap_or_else(|_| unreachable!("it is a version"))
}

fn lower_generation(body: Bytes) -> Bytes {
    match OwnerRecord::decode(&body) {
        Ok(record) if record.hold == Hold::Held => {
            let generation = record.generation.saturating_sub(1).max(1);
            OwnerRecord { generation, ..record }.encode().into()
        }
        _ => body,
    }
}
