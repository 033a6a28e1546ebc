//! Who gives out temporary credentials, and one request for them.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use object_store::aws::AwsCredential;
use reqwest::{Client, Method, RequestBuilder};
use serde::Deserialize;

use crate::transport::with_sources;

/// Opening a connection. These services are on this machine or near it.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// One request of a fetch, which makes up to three.
const REQUEST_MAX: Duration = Duration::from_secs(5);

/// Who gives out credentials.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// `AssumeRoleWithWebIdentity` of a security token service.
    WebIdentity {
        /// Read at every fetch: it is replaced while the process runs.
        token_file: PathBuf,
        role: String,
        session: String,
        endpoint: String,
    },
    /// The agent beside a container.
    Container { url: String, token: ContainerToken },
    /// The metadata service of an instance.
    Instance {
        endpoint: String,
        /// Whether one that has no session tokens is used without.
        falls_back: bool,
    },
}

/// How a container's agent knows the container.
#[derive(Clone)]
pub(crate) enum ContainerToken {
    None,
    Text(String),
    /// Read at every fetch.
    File(PathBuf),
}

impl std::fmt::Debug for ContainerToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ContainerToken")
    }
}

/// Credentials as they were given out.
#[derive(Debug, Clone)]
pub(crate) struct Fetched {
    pub(crate) credential: std::sync::Arc<AwsCredential>,
    /// By this machine's clock.
    pub(crate) expires: SystemTime,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Document {
    access_key_id: String,
    secret_access_key: String,
    #[serde(alias = "SessionToken")]
    token: String,
    expiration: DateTime<Utc>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AssumeRoleResponse {
    assume_role_with_web_identity_result: AssumeRoleResult,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AssumeRoleResult {
    credentials: Document,
}

impl From<Document> for Fetched {
    fn from(document: Document) -> Self {
        let Document { access_key_id: key_id, secret_access_key: secret_key, token, expiration } = document;
        let credential = AwsCredential { key_id, secret_key, token: Some(token) }.into();
        Self { credential, expires: expiration.into() }
    }
}

impl Source {
    /// The HTTP client for its requests. Its services are not behind a proxy, but a token service may be.
    pub(crate) fn client(&self) -> reqwest::Result<Client> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = || {
            let builder = Client::builder()
                .connect_timeout(CONNECT_MAX)
                .timeout(REQUEST_MAX)
                .redirect(reqwest::redirect::Policy::none())
                .user_agent(concat!("wasmkeep/", env!("CARGO_PKG_VERSION")));
            if matches!(self, Self::WebIdentity { .. }) { builder } else { builder.no_proxy() }
        };
        // A machine without certificates can still ask over plain HTTP.
        builder().build().or_else(|_| builder().tls_certs_only([]).build())
    }

    /// Asks once. The error is for people and names who was asked.
    pub(crate) async fn fetch(&self, client: &Client) -> Result<Fetched, String> {
        match self {
            Self::WebIdentity { token_file, role, session, endpoint } => {
                let token = read(token_file).await?;
                let body = form(&[
                    ("Action", "AssumeRoleWithWebIdentity"),
                    ("Version", "2011-06-15"),
                    ("DurationSeconds", "3600"),
                    ("RoleArn", role),
                    ("RoleSessionName", session),
                    ("WebIdentityToken", token.trim()),
                ]);
                let request = client.post(endpoint).body(body);
                let request = request.header("content-type", "application/x-www-form-urlencoded");
                let text = text(endpoint, request).await?;
                let response: Result<AssumeRoleResponse, _> = quick_xml::de::from_str(&text);
                let response = response.map_err(|error| format!("{endpoint}: {error}"))?;
                Ok(response.assume_role_with_web_identity_result.credentials.into())
            }
            Self::Container { url, token } => {
                let token = match token {
                    ContainerToken::None => None,
                    ContainerToken::Text(token) => Some(token.clone()),
                    ContainerToken::File(file) => Some(read(file).await?),
                };
                let request = client.get(url);
                let request = match &token {
                    Some(token) => request.header("authorization", token.trim()),
                    None => request,
                };
                document(url, &text(url, request).await?)
            }
            Self::Instance { endpoint, falls_back } => instance(client, endpoint, *falls_back).await,
        }
    }
}

async fn instance(client: &Client, endpoint: &str, falls_back: bool) -> Result<Fetched, String> {
    let token_url = format!("{endpoint}/latest/api/token");
    let token = client.request(Method::PUT, &token_url).header("x-aws-ec2-metadata-token-ttl-seconds", "600");
    let token = match text(&token_url, token).await {
        Ok(token) => Some(token),
        Err(_) if falls_back => None,
        Err(error) => return Err(error),
    };
    let get = |url: &str| match &token {
        Some(token) => client.get(url).header("x-aws-ec2-metadata-token", token.trim()),
        None => client.get(url),
    };
    let roles = format!("{endpoint}/latest/meta-data/iam/security-credentials/");
    let role = text(&roles, get(&roles)).await?;
    let role = role.lines().next().unwrap_or_default().trim();
    let url = format!("{roles}{role}");
    document(&url, &text(&url, get(&url)).await?)
}

fn document(url: &str, text: &str) -> Result<Fetched, String> {
    // Its text is a secret, so an error does not quote it.
    let document: Result<Document, _> = serde_json::from_str(text);
    document.map(Fetched::from).map_err(|error| format!("{url}: no credentials in its answer: {error}"))
}

async fn text(url: &str, request: RequestBuilder) -> Result<String, String> {
    let failed = |error: reqwest::Error| format!("{url}: {}", with_sources(&error.without_url()));
    let response = request.send().await.map_err(failed)?;
    let status = response.status();
    if !status.is_success() {
        return Err(format!("{url} answered {status}"));
    }
    response.text().await.map_err(failed)
}

fn form(fields: &[(&str, &str)]) -> String {
    // The query part of a URL is a form's encoding.
    let mut url = reqwest::Url::parse("form:").unwrap_or_else(|_| unreachable!("it is a URL"));
    url.query_pairs_mut().extend_pairs(fields);
    url.query().unwrap_or_default().to_owned()
}

async fn read(path: &Path) -> Result<String, String> {
    let owned = path.to_owned();
    let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(owned)).await;
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    read.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
}
