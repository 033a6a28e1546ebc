//! The wait of a call or an upgrade that its node refused unread, or that is not sent because this node's certificate may
//! be new there, before it is sent once more (R-TLS-5). When that is, `protocol` says.

use std::{sync::atomic::Ordering, time::Duration};

use wasmkeep_protocol::{
    forwarding::Refusal,
    trust::{Resend, Step},
};

use super::{Shard, elsewhere::Abroad, keeping::moment};

/// How often it is looked whether a heartbeat has landed. A certificate is refused once in a long while.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Shard {
    /// Waits until something refused now, or not sent, may be sent; `false`: it may not, and its sender is told.
    pub(super) async fn may_send_again(&self, abroad: &Abroad, refusal: Refusal) -> bool {
        let lease = &abroad.cluster.lease;
        let mut resend = match lease.first_landed() {
            Some(first) if refusal == Refusal::CertificateNew => {
                Resend::unknown(abroad.cluster.config.timing, first)
            }
            _ => {
                tracing::warn!(
                    "another node refused this node's certificate: what it refused is sent once more"
                );
                Resend::new(abroad.cluster.config.timing, moment())
            }
        };
        while !self.node.stopping.load(Ordering::Relaxed) {
            match resend.step(moment(), lease.landed()) {
                Step::Send => return true,
                Step::GiveUp => return false,
                Step::Wait(_) => self.context.sleeper.sleep(LOOK_EVERY).await,
            }
        }
        false
    }
}
