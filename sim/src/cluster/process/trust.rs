//! Whom a process lets in and whom it sends requests: certificates, by its view of the heartbeats. Every request stands
//! for a connection of its own.

use std::sync::Arc;

use wasmkeep_protocol::{
    NodeId,
    clock::Now,
    trust::{Fingerprint, Plaintext, Policy, Reach, reach},
};

use super::Process;
use crate::cluster::{
    flaw::Flaw,
    parameters::NODES_MAX,
    record::{Pid, Record},
    stage,
};

/// Every node has a listener, and refuses plain HTTP.
const POLICY: Policy = Policy { encrypts: true, plaintext: Plaintext::Refuse };

impl Process {
    /// The certificate by which a node is reached; `None`: it is not.
    pub(super) fn target(&mut self, now: Now, node: &NodeId) -> Option<Fingerprint> {
        let view = Arc::clone(&self.view);
        let record = view.peer(node)?.record.as_ref().ok()?;
        let Reach::Encrypted { fingerprint, .. } = reach(POLICY, &record.presence) else { return None };
        let trusted = view.trusts(node, fingerprint, now.moment) || self.flaw == Some(Flaw::TrustsFenced);
        trusted.then(|| {
            if let Some(peer) = stage::pid(record.process) {
                self.record(Record::Trusted { pid: self.pid, peer });
            }
            Fingerprint::published(fingerprint)
        })
    }

    /// Whether a process is let in that shows its certificate.
    pub(super) fn lets_in(&mut self, now: Now, peer: Pid) -> bool {
        let (view, fingerprint) = (Arc::clone(&self.view), stage::fingerprint(peer));
        let stands = |node: &NodeId| {
            let record = view.peer(node).and_then(|peer| peer.record.as_ref().ok());
            record.is_some_and(|record| record.presence.fingerprint.as_deref() == Some(fingerprint.as_str()))
        };
        let trusted = match self.flaw {
            Some(Flaw::TrustsFenced) => (0..NODES_MAX).map(stage::node).any(|node| stands(&node)),
            _ => view.trusted(fingerprint.as_str(), now.moment).is_some(),
        };
        if trusted {
            self.record(Record::Trusted { pid: self.pid, peer });
        }
        trusted
    }
}
