//! A bucket in an S3-compatible server.
//!
//! Owns turning requests into signed HTTP (through `object_store`) and replies into outcomes. Each request is
//! sent once: `object_store`'s retries are off, because they resend a conditional write whose connection broke
//! and then report our own first copy as somebody else's win. What a reply means is read from the reply itself
//! (`reply`), not from the client library's errors, which fold 409 into "exists" and a broken connection into
//! "other".

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use object_store::aws::{AmazonS3, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig,
    UpdateVersion,
};
use rand::RngExt;

use wasmkeep_bucket::{
    Body, Bucket, Failure, Key, ListQuery, Meta, Object, Outcome, Page, Precondition, ReadError, Version,
};

use crate::credentials::Renewing;
use crate::page;
use crate::reply::{self, Request, Verb, Verdict};
use crate::settings::Settings;
use crate::transport::{Progress, Trace, Transport};

/// Sends of one write that is answered with 409 each time. AWS answers so while another conditional write of
/// the same key is under way, which takes milliseconds.
const CONFLICT_SENDS: u32 = 5;

/// Pause after the first 409; doubled each time, so that five sends spread over a second and a half.
const CONFLICT_PAUSE: Duration = Duration::from_millis(100);

/// Largest body that is signed on the spot: at 300 MB a second, a processor without instructions for it, less than a
/// millisecond. Signing hashes the whole body, and whatever shares the thread waits for it, heartbeats among it.
const SIGNED_HERE_BYTES_MAX: usize = 256 << 10;

/// How long the client waits for a server.
#[derive(Clone, Copy, Debug)]
pub struct S3Limits {
    /// One request from its first byte to its answer, or to the head of its answer for a read; after it the
    /// outcome of a write is unknown. Also the longest silence within a body. Default 30 s (R-REPL-2).
    pub request: Duration,
    /// Opening a connection, TLS included. Default 5 s.
    pub connect: Duration,
}

impl Default for S3Limits {
    fn default() -> Self {
        Self { request: Duration::from_secs(30), connect: Duration::from_secs(5) }
    }
}

/// A bucket in an S3-compatible server. Needs a Tokio runtime with time and IO.
#[derive(Debug)]
pub struct S3Bucket {
    store: AmazonS3,
    /// Put before every key; empty, or ends in `/`.
    prefix: String,
    limits: S3Limits,
    /// Where they are not fixed.
    credentials: Option<Renewing>,
}

/// Why the settings of a bucket cannot work.
#[derive(Debug, thiserror::Error)]
pub enum OpenS3Error {
    /// A plain-HTTP endpoint that nobody allowed.
    #[error(
        "{name} is {value}, which is not encrypted: use an https:// endpoint, or set AWS_ALLOW_HTTP=true"
    )]
    PlainHttp {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// An endpoint that is none.
    #[error("{name} is {value:?}: write it as https://HOST[:PORT][/PATH]")]
    Endpoint {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// A switch that is neither on nor off.
    #[error("{name} is {value:?}: write true or false")]
    Flag {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// Anything else the client library refuses.
    #[error("the bucket's AWS_* settings cannot be used: {0}")]
    Settings(String),
}

impl S3Bucket {
    /// Opens `bucket`, all keys below `prefix`, with the `AWS_*` variables among `environment`: access key,
    /// secret, session token, region, endpoint, web identity, container credentials and the other standard
    /// ones. Connects to nothing yet.
    pub fn open(
        bucket: &str,
        prefix: Option<Key>,
        environment: impl IntoIterator<Item = (String, String)>,
        limits: S3Limits,
    ) -> Result<Self, OpenS3Error> {
        let settings = Settings::new(environment);
        let refused = |error: &dyn std::fmt::Display| OpenS3Error::Settings(error.to_string());
        let credentials =
            settings.source()?.map(Renewing::of).transpose().map_err(|error| refused(&error))?;
        let mut builder = settings.builder()?;
        if let Some(credentials) = &credentials {
            builder = builder.with_credentials(Arc::new(credentials.clone()));
        }
        let store = builder
            .with_bucket_name(bucket)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
            // One object a request: the form every server has, and one whose reply says all.
            .with_config(AmazonS3ConfigKey::DisableBulkDelete, "true")
            .with_http_connector(Transport::new(limits, settings.allows_http()?))
            .build()
            .map_err(|error| refused(&error))?;
        let prefix = prefix.map_or_else(String::new, |prefix| format!("{prefix}/"));
        Ok(Self { store, prefix, limits, credentials })
    }

    fn path(&self, key: &Key) -> Result<Path, Failure> {
        Path::parse(format!("{}{key}", self.prefix)).map_err(|error| Failure::Refused(error.to_string()))
    }

    /// Waits for a reply within the limit. `Err` carries what the client library said, or the time spent.
    async fn within_limit<T, E: std::fmt::Display>(
        &self,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T, String> {
        match tokio::time::timeout(self.limits.request, request).await {
            Ok(answered) => answered.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {:?}", self.limits.request)),
        }
    }

    fn request<'a>(&self, verb: Verb, name: &'a str) -> Request<'a> {
        Request { verb, name, renews: self.credentials.is_some() }
    }

    /// How far a request came. Credentials that were called expired are renewed.
    fn heard(&self, trace: &Trace) -> Progress {
        let progress = trace.progress();
        if let (Progress::Answered(reply), Some(credentials)) = (&progress, &self.credentials)
            && reply::is_expired(reply)
        {
            credentials.refused();
        }
        progress
    }

    async fn put_once(&self, path: &Path, body: Bytes, condition: &Precondition) -> Verdict {
        let trace = Trace::default();
        let mode = match condition {
            Precondition::None => PutMode::Overwrite,
            Precondition::Absent => PutMode::Create,
            Precondition::Version(version) => {
                PutMode::Update(UpdateVersion { e_tag: Some(version.as_str().to_owned()), version: None })
            }
        };
        let options = PutOptions { mode, extensions: trace.extensions(), ..PutOptions::default() };
        let is_large = body.len() > SIGNED_HERE_BYTES_MAX;
        let (store, to) = (self.store.clone(), path.clone());
        let sending =
            async move { store.put_opts(&to, body.into(), options).await.map_err(|e| e.to_string()) };
        let answered = match is_large {
            true => self.within_limit(begun_elsewhere(sending)).await,
            false => self.within_limit(sending).await,
        };
        let said = answered.err().unwrap_or_default();
        reply::of_put(self.heard(&trace), &said, condition, &self.request(Verb::Put, path.as_ref()))
    }

    /// The answer to a write that met 409 each time: is its condition still true?
    async fn after_conflicts(&self, key: &Key, condition: &Precondition) -> Outcome {
        let busy =
            Outcome::Failed(Failure::Throttled("conflicting writes of one object kept it busy".into()));
        match (condition, self.head(key).await) {
            (Precondition::None, _) => busy,
            (Precondition::Absent, Ok(_)) => Outcome::ConditionFailed,
            (Precondition::Version(_), Err(ReadError::NotFound)) => Outcome::ConditionFailed,
            (Precondition::Version(wanted), Ok(meta)) if meta.version != *wanted => Outcome::ConditionFailed,
            _ => busy,
        }
    }

    async fn fetch(&self, key: &Key, range: Option<Range<u64>>, head: bool) -> Result<Object, ReadError> {
        if range.as_ref().is_some_and(|range| range.start >= range.end) {
            return Err(Failure::Refused("a range of no bytes".to_owned()).into());
        }
        let path = self.path(key)?;
        let trace = Trace::default();
        let options = GetOptions {
            range: range.map(GetRange::Bounded),
            head,
            extensions: trace.extensions(),
            ..GetOptions::default()
        };
        let answered = self.within_limit(self.store.get_opts(&path, options)).await;
        let request = self.request(Verb::Get, path.as_ref());
        let result = answered.map_err(|said| reply::of_read(self.heard(&trace), &said, &request))?;
        let (meta, range) = (meta_of(&result.meta)?, result.range.clone());
        let chunks = result.into_stream();
        let silence = self.limits.request;
        let chunks =
            chunks.map(|chunk| chunk.map_err(|error| Failure::Unavailable(error.to_string()).into()));
        let body = match head {
            true => Body::from_bytes(Bytes::new()),
            false => Body::counted(range.end - range.start, bounded_silence(chunks, silence)),
        };
        Ok(Object { meta, range, body })
    }
}

impl Bucket for S3Bucket {
    async fn get(&self, key: &Key, range: Option<Range<u64>>) -> Result<Object, ReadError> {
        self.fetch(key, range, false).await
    }

    async fn head(&self, key: &Key) -> Result<Meta, ReadError> {
        self.fetch(key, None, true).await.map(|object| object.meta)
    }

    async fn put(&self, key: &Key, body: Bytes, condition: &Precondition) -> Outcome {
        let path = match self.path(key) {
            Ok(path) => path,
            Err(failure) => return Outcome::Failed(failure),
        };
        for conflicts in 0..CONFLICT_SENDS {
            match self.put_once(&path, body.clone(), condition).await {
                Verdict::Final(outcome) => return outcome,
                Verdict::Conflict => {
                    let pause = CONFLICT_PAUSE * 2_u32.pow(conflicts);
                    // Half of it by chance, so that the writers who met do not meet again.
                    tokio::time::sleep(pause.mul_f64(rand::rng().random_range(0.5..1.0))).await;
                }
            }
        }
        self.after_conflicts(key, condition).await
    }

    async fn delete(&self, key: &Key) -> Result<(), Failure> {
        let path = self.path(key)?;
        let trace = Trace::default();
        let deleting = trace.clone().deleting(self.store.delete(&path));
        let answered = self.within_limit(deleting).await;
        let request = self.request(Verb::Delete, path.as_ref());
        reply::of_delete(self.heard(&trace), &answered.err().unwrap_or_default(), &request)
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, ReadError> {
        let trace = Trace::default();
        let offset = match (&query.token, &query.start_after) {
            (None, Some(after)) => Some(format!("{}{after}", self.prefix)),
            _ => None,
        };
        let options = PaginatedListOptions {
            offset,
            max_keys: Some(query.page_max),
            page_token: query.token.clone(),
            extensions: trace.extensions(),
            ..PaginatedListOptions::default()
        };
        let prefix = format!("{}{}", self.prefix, query.prefix);
        let asked = (!prefix.is_empty()).then_some(prefix.as_str());
        let answered = self.within_limit(self.store.list_paginated(asked, options)).await;
        // The client library drops whether a page was cut short and stumbles over names that are not ours, so
        // the page is read from the reply, and what the library made of it is not used.
        match self.heard(&trace) {
            Progress::Answered(reply) if reply.is_success() && !reply.body.is_empty() => {
                page::parse(&reply.body, &self.prefix)
            }
            progress => {
                let request = self.request(Verb::List, &prefix);
                Err(reply::of_read(progress, &answered.err().unwrap_or_default(), &request))
            }
        }
    }
}

/// Polls `work` a first time on a thread for work that blocks, and then here: what it does before it first waits, it
/// does there.
async fn begun_elsewhere<T: Send + 'static>(
    work: impl Future<Output = Result<T, String>> + Send + 'static,
) -> Result<T, String> {
    let begun = tokio::task::spawn_blocking(move || {
        let mut work = Box::pin(work);
        // Whoever waits for it is told by the next poll, here.
        let first = work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        (work, first)
    });
    let (work, first) = begun.await.map_err(|error| error.to_string())?;
    match first {
        Poll::Ready(done) => done,
        Poll::Pending => work.await,
    }
}

fn meta_of(meta: &ObjectMeta) -> Result<Meta, ReadError> {
    let version = meta.e_tag.clone().unwrap_or_default();
    let version = Version::new(version).map_err(|error| ReadError::Malformed(error.to_string()))?;
    let modified_ms = meta.last_modified.timestamp_millis().max(0) as u64;
    Ok(Meta { version, size: meta.size, modified_ms })
}

/// Ends a body with an error when nothing of it arrives for `silence`.
fn bounded_silence<S>(chunks: S, silence: Duration) -> impl futures::Stream<Item = Result<Bytes, ReadError>>
where
    S: futures::Stream<Item = Result<Bytes, ReadError>> + Unpin,
{
    futures::stream::unfold(Some(chunks), move |chunks| async move {
        let mut chunks = chunks?;
        match tokio::time::timeout(silence, chunks.next()).await {
            Ok(chunk) => chunk.map(|chunk| (chunk, Some(chunks))),
            Err(_) => {
                let failure = Failure::Unavailable(format!("the body was silent for {silence:?}"));
                Some((Err(failure.into()), None))
            }
        }
    })
}
