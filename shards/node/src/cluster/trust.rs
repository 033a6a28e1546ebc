//! What a node says and asks of trust in its cluster; the rules are `protocol`'s.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering},
};

use wasmkeep_protocol::{
    clock::Moment,
    limits::UNUSED_WARNING_PERIOD,
    trust::{Plaintext, Policy, Reach, is_known, reach},
};

use super::{Cluster, moment, nanos};
use crate::egress::is_public;

impl Cluster {
    /// How this node talks to the others.
    pub(crate) fn policy(&self) -> Policy {
        Policy { encrypts: self.identity.is_some(), plaintext: self.config.plaintext }
    }

    /// Whether clients may be sent here as far as the cluster goes: the lease is valid, and the others have had the
    /// time to see this node's certificate (R-LEASE-2, R-TLS-2).
    pub(crate) fn is_ready(&self) -> bool {
        self.lease.epoch().is_some() && self.is_known()
    }

    /// Whether the others have had the time to see this node's certificate; without one there is nothing to see.
    pub(crate) fn is_known(&self) -> bool {
        let is_known = |landed| is_known(landed, moment(), &self.config.timing);
        self.identity.is_none() || self.lease.first_landed().is_some_and(is_known)
    }

    /// Says that a call was not believed, once a minute at most: whoever reaches a port can send one (R-CALL-2).
    pub(crate) fn warn_of_unbelieved(&self, why: &str) {
        if is_due(&self.unbelieved_said, moment()) {
            tracing::warn!(
                "a call was refused: bad, expired or misaddressed signature ({why}; a node of an older version?)"
            );
        }
    }

    /// A request was refused because its actor's node is not used. Says which nodes are not, once a minute at most
    /// (R-TLS-3).
    pub(crate) fn warn_of_unused(&self) {
        let now = moment();
        if !is_due(&self.unused_said, now) {
            return;
        }
        let (view, policy) = (self.view.load(), self.policy());
        let unused =
            view.live(now).filter(|(_, record)| matches!(reach(policy, &record.presence), Reach::Never(_)));
        let nodes: Vec<_> = unused.map(|(node, _)| node.as_str()).collect();
        tracing::warn!(
            nodes = nodes.join(", "),
            "nodes without a cluster listener are not used, since this one refuses plain HTTP: give every node one, or \
             add --cluster-plaintext accept"
        );
    }
}

/// Whether something that is said once a minute is to be said now.
fn is_due(said: &AtomicU64, now: Moment) -> bool {
    let (at, before) = (nanos(now.since_boot()), said.load(Ordering::Relaxed));
    let is_due = before == 0 || at.saturating_sub(before) >= nanos(UNUSED_WARNING_PERIOD);
    is_due && said.compare_exchange(before, at, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Warns of a node that would talk plain HTTP to others over the public internet.
pub(super) fn warn_of_public(plaintext: Plaintext, advertised: &str) {
    if plaintext == Plaintext::Accept && host(advertised).is_some_and(is_public) {
        tracing::warn!(
            advertise = advertised,
            "this is a public address, and with --cluster-plaintext accept nodes talk plain HTTP: anybody on the way \
             can read and change it; keep the nodes on a private network, or give each a cluster listener"
        );
    }
}

/// The host of a URL, if it is an address.
fn host(url: &str) -> Option<IpAddr> {
    let (_, rest) = url.split_once("://")?;
    let host = rest.rsplit_once(':').filter(|(_, port)| !port.contains(']')).map_or(rest, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // R-TLS-3
    #[test]
    fn a_public_address_is_told_from_others() {
        for (url, public) in [
            ("http://8.8.8.8:8080", true),
            ("http://8.8.8.8", true),
            ("http://[2606:4700::1111]:8080", true),
            ("http://[2606:4700::1111]", true),
            ("http://10.0.0.11:8080", false),
            ("http://[fd00::1]:8080", false),
            ("http://node-a:8080", false),
            ("", false),
        ] {
            assert_eq!(host(url).is_some_and(is_public), public, "{url}");
        }
    }
}
