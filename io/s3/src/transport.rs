//! The HTTP client under `object_store`, and a record of how far each request came.
//!
//! Owns connections and the facts outcomes are made of: was the request sent, was it answered, with what. It
//! judges nothing.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::BodyExt;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use object_store::{ClientOptions, Extensions};
use reqwest::header::ETAG;

use crate::{OpenS3Error, S3Limits};

/// Largest reply body that is kept, in bytes: a listing page of 1,000 keys takes about 1.4 MiB at its longest.
const KEPT_BYTES_MAX: usize = 8 << 20;

/// How far a request came.
#[derive(Clone, Debug, Default)]
pub(crate) enum Progress {
    /// It did not leave: no credentials, no connection, or not yet.
    #[default]
    NotSent,
    /// It left, wholly or partly, and there is no answer.
    Sent,
    /// It was answered.
    Answered(Reply),
}

/// The part of an answer that outcomes are read from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// The ETag header, byte for byte.
    pub(crate) etag: Option<String>,
    /// The body, kept for errors and listings; empty when it was longer than [`KEPT_BYTES_MAX`] or broke off.
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// The record of one request. Clones share it: one travels with the request, one stays with who asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace(Arc<Mutex<Progress>>);

tokio::task_local! {
    /// The trace of a removal, for which `object_store` has no place to carry it.
    static DELETING: Trace;
}

impl Trace {
    /// Carries this trace with a request.
    pub(crate) fn extensions(&self) -> Extensions {
        let mut extensions = Extensions::new();
        extensions.insert(self.clone());
        extensions
    }

    /// Runs `removal`, whose DELETE request is recorded here.
    pub(crate) async fn deleting<F: Future>(self, removal: F) -> F::Output {
        DELETING.scope(self, removal).await
    }

    pub(crate) fn progress(&self) -> Progress {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, progress: Progress) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }

    /// The trace of `request`. Requests for credentials have none: their answers say nothing about an object.
    fn of(request: &HttpRequest) -> Option<Self> {
        let carried = request.extensions().get::<Self>().cloned();
        carried.or_else(|| {
            let removal = request.method() == reqwest::Method::DELETE;
            removal.then(|| DELETING.try_with(Self::clone).ok()).flatten()
        })
    }
}

/// Makes the HTTP clients of a bucket.
#[derive(Debug)]
pub(crate) struct Transport {
    limits: S3Limits,
    allows_http: bool,
}

impl Transport {
    pub(crate) fn new(limits: S3Limits, allows_http: bool) -> Self {
        Self { limits, allows_http }
    }

    fn client(&self) -> Result<reqwest::Client, OpenS3Error> {
        // Whoever installed a provider first is right; without one reqwest cannot speak TLS.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = || {
            reqwest::Client::builder()
                .connect_timeout(self.limits.connect)
                .redirect(reqwest::redirect::Policy::none())
                .retry(reqwest::retry::never())
                .http1_only()
                .tcp_nodelay(true)
                .user_agent(concat!("wasmkeep/", env!("CARGO_PKG_VERSION")))
                .https_only(!self.allows_http)
        };
        let failed = |error: reqwest::Error| OpenS3Error::Settings(with_sources(&error));
        match builder().build() {
            // A machine without certificates can still use a plain-HTTP endpoint on its own network.
            Err(_) if self.allows_http => builder().tls_certs_only([]).build().map_err(failed),
            built => built.map_err(failed),
        }
    }
}

impl HttpConnector for Transport {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = self
            .client()
            .map_err(|error| object_store::Error::Generic { store: "S3", source: Box::new(error) })?;
        Ok(HttpClient::new(Service { client }))
    }
}

#[derive(Debug)]
struct Service {
    client: reqwest::Client,
}

#[async_trait::async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let trace = Trace::of(&request);
        let listing = request.method() == reqwest::Method::GET
            && request.uri().query().is_some_and(|query| query.contains("list-type=2"));
        let request = into_reqwest(request).await?;
        record(trace.as_ref(), Progress::Sent);
        let response = match self.client.execute(request).await {
            Ok(response) => response,
            Err(error) => {
                if error.is_connect() {
                    record(trace.as_ref(), Progress::NotSent);
                }
                return Err(failed(error));
            }
        };
        let response: http::Response<reqwest::Body> = response.into();
        let (parts, body) = response.into_parts();
        let mut reply = Reply {
            status: parts.status.as_u16(),
            etag: parts.headers.get(ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned),
            body: Bytes::new(),
        };
        if parts.status.is_success() && !listing {
            record(trace.as_ref(), Progress::Answered(reply));
            let body = HttpResponseBody::new(body.map_err(failed));
            return Ok(HttpResponse::from_parts(parts, body));
        }
        // The status alone is an answer, even if the text that explains it breaks off.
        record(trace.as_ref(), Progress::Answered(reply.clone()));
        reply.body = kept(body).await;
        record(trace.as_ref(), Progress::Answered(reply.clone()));
        Ok(HttpResponse::from_parts(parts, reply.body.into()))
    }
}

fn record(trace: Option<&Trace>, progress: Progress) {
    if let Some(trace) = trace {
        trace.set(progress);
    }
}

async fn into_reqwest(request: HttpRequest) -> Result<reqwest::Request, HttpError> {
    let (parts, body) = request.into_parts();
    let url = parts.uri.to_string().parse::<reqwest::Url>();
    let url = url.map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
    let mut request = reqwest::Request::new(parts.method, url);
    *request.headers_mut() = parts.headers;
    // One piece of known length, so that the body goes out plainly and never in chunks.
    let body = body.collect().await?.to_bytes();
    if !body.is_empty() {
        *request.body_mut() = Some(body.into());
    }
    Ok(request)
}

async fn kept(body: reqwest::Body) -> Bytes {
    let limited = http_body_util::Limited::new(body, KEPT_BYTES_MAX);
    limited.collect().await.map_or_else(|_| Bytes::new(), |body| body.to_bytes())
}

fn failed(error: reqwest::Error) -> HttpError {
    let error = error.without_url();
    HttpError::new(HttpErrorKind::Unknown, std::io::Error::other(with_sources(&error)))
}

/// An error with what caused it: reqwest's own text stops at "error sending request".
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
