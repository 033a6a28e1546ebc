//! Which certificates a node trusts, how it reaches the others, and what becomes of something a peer refused unread
//! (R-TLS).
//!
//! A node proves who it is with a key it made at its start. The fingerprint of its certificate is in its heartbeat, so
//! whoever may write the bucket decides who is a node. Owns those decisions and the times they rest on; it knows no
//! TLS, no connection and no bucket.

mod resend;

use std::fmt;

use sha2::{Digest, Sha256};

pub use self::resend::{Resend, Step};
use crate::{clock::Moment, lease::Timing, records::Presence};

/// SHA-256 of a certificate, in lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// Of a certificate in DER.
    #[must_use]
    pub fn of(certificate: &[u8]) -> Self {
        Self(data_encoding::HEXLOWER.encode(&Sha256::digest(certificate)))
    }

    /// One as a heartbeat says it. Any text is taken: one that is no fingerprint is no certificate's.
    #[must_use]
    pub fn published(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether plain HTTP is used between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plaintext {
    /// Never.
    Refuse,
    /// With nodes that have no cluster listener.
    Accept,
}

/// How a node talks to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// It has a cluster listener, and so a certificate to show.
    pub encrypts: bool,
    /// What it makes of plain HTTP.
    pub plaintext: Plaintext,
}

/// The port by which a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// The one for clients.
    Clients,
    /// The cluster listener: whoever comes by it has shown a trusted certificate.
    Nodes,
}

impl Policy {
    /// Whether a request that says it comes from a node may be one: a call still has to be signed. What is not
    /// believed is a client's (R-TLS-3).
    #[must_use]
    pub fn believes(self, door: Door) -> bool {
        door == Door::Nodes || self.plaintext == Plaintext::Accept
    }
}

/// How another node is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach<'a> {
    /// At its cluster listener, with mutual TLS, and only by a process that shows this certificate.
    Encrypted {
        /// `https://HOST:PORT`
        url: &'a str,
        /// Of that certificate.
        fingerprint: &'a str,
    },
    /// In plain HTTP.
    Plain {
        /// `http://HOST:PORT`
        url: &'a str,
    },
    /// Not at all.
    Never(Unused),
}

/// Why another node is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unused {
    /// It has no cluster listener, and this node refuses plain HTTP.
    Plain,
    /// It has one and publishes no fingerprint: nobody could say who answers there, and it is not spoken to in plain.
    Unnamed,
}

/// How a node that says this of itself is reached. One with a cluster listener is never spoken to in plain by a node
/// that has one too, whatever fails (R-TLS-3).
#[must_use]
pub fn reach(policy: Policy, presence: &Presence) -> Reach<'_> {
    let plain = match policy.plaintext {
        Plaintext::Accept => Reach::Plain { url: &presence.advertise },
        Plaintext::Refuse => Reach::Never(Unused::Plain),
    };
    match (&presence.cluster_advertise, &presence.fingerprint) {
        (Some(url), Some(fingerprint)) if policy.encrypts => Reach::Encrypted { url, fingerprint },
        (Some(_), None) if policy.encrypts => Reach::Never(Unused::Unnamed),
        // Without a certificate of its own a node cannot show one.
        _ => plain,
    }
}

/// Whether a fingerprint that has been in the bucket since `landed` is known to every peer that can list it: a node
/// counts as ready from then on (R-TLS-2).
#[must_use]
pub fn is_known(landed: Moment, now: Moment, timing: &Timing) -> bool {
    now.since(landed) >= timing.known()
}

#[cfg(test)]
mod tests;
