//! Which node is meant, and how it is reached.

use std::net::SocketAddr;

use wasmkeep_protocol::{NodeId, trust::Fingerprint};

/// Another node, as the view shows it.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(super) url: String,
    /// Whose certificate it has to show; `None` for plain HTTP.
    pub(super) certificate: Option<(NodeId, Fingerprint)>,
}

/// A target found. Connections are kept by it: one to a process is not used for the next with the same address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) address: SocketAddr,
    pub(super) certificate: Option<(NodeId, Fingerprint)>,
}

impl Target {
    /// In plain HTTP at `url` (`http://HOST:PORT`).
    pub(crate) fn plain(url: &str) -> Self {
        Self { url: url.to_owned(), certificate: None }
    }

    /// With TLS at `url` (`https://HOST:PORT`), by the certificate with this fingerprint.
    pub(crate) fn encrypted(url: &str, node: &NodeId, fingerprint: &str) -> Self {
        let certificate = (node.clone(), Fingerprint::published(fingerprint));
        Self { url: url.to_owned(), certificate: Some(certificate) }
    }

    /// `HOST:PORT`
    pub(super) fn host(&self) -> Option<&str> {
        let scheme = if self.certificate.is_some() { "https://" } else { "http://" };
        self.url.strip_prefix(scheme)
    }
}

impl Place {
    pub(super) fn is_encrypted(&self) -> bool {
        self.certificate.is_some()
    }
}
