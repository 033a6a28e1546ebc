//! Who waits for whom while actors call each other (R-CALL-2): the chain that travels with a call, what it
//! refuses, and how much time a callee has.

use std::time::Duration;

use crate::{
    ActorId,
    limits::{CALL_DEPTH_MAX, CALL_TIME_KEPT},
};

/// The actors that wait for a call's answer, the first caller first and the calling one last. Empty for an
/// event that is no call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallChain(Vec<ActorId>);

/// Why a call cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// The callee is the caller, or waits for it: it could never answer.
    #[error("the callee waits for this actor")]
    Reentrant,
    /// A call within a call within a call, too often.
    #[error("calls may be {CALL_DEPTH_MAX} deep at most")]
    TooDeep,
}

impl CallChain {
    /// A chain that another node has vouched for.
    #[must_use]
    pub fn new(waiting: Vec<ActorId>) -> Self {
        Self(waiting)
    }

    /// The actor that calls.
    #[must_use]
    pub fn caller(&self) -> Option<&ActorId> {
        self.0.last()
    }

    /// All that wait, the first caller first.
    #[must_use]
    pub fn waiting(&self) -> &[ActorId] {
        &self.0
    }

    /// The chain of a call from `caller`, whose own event came with this one, to `callee`.
    ///
    /// # Errors
    /// [`ChainError`].
    pub fn extend(&self, caller: ActorId, callee: &ActorId) -> Result<Self, ChainError> {
        if caller == *callee || self.0.contains(callee) {
            return Err(ChainError::Reentrant);
        }
        if self.0.len() >= CALL_DEPTH_MAX {
            return Err(ChainError::TooDeep);
        }
        Ok(Self(self.0.iter().cloned().chain([caller]).collect()))
    }
}

/// The time a callee has when the caller's event has `left`. Each actor of a chain keeps a little for itself, so
/// that the innermost runs out first and every other can still say so.
#[must_use]
pub fn time_for_callee(left: Duration) -> Duration {
    left - CALL_TIME_KEPT.min(left / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> ActorId {
        ActorId { class: "c".parse().unwrap(), name: name.parse().unwrap() }
    }

    #[test]
    fn whoever_waits_cannot_be_called() {
        // R-CALL-2
        let chain =
            CallChain::default().extend(id("a"), &id("b")).unwrap().extend(id("b"), &id("c")).unwrap();
        assert_eq!(chain.waiting(), [id("a"), id("b")]);
        assert_eq!(chain.caller(), Some(&id("b")));
        for (callee, outcome) in [
            ("a", Err(ChainError::Reentrant)),
            ("b", Err(ChainError::Reentrant)),
            ("c", Err(ChainError::Reentrant)),
            ("d", Ok(3)),
        ] {
            let extended = chain.extend(id("c"), &id(callee));
            assert_eq!(extended.map(|chain| chain.waiting().len()), outcome, "{callee}");
        }
        let elsewhere = ActorId { class: "d".parse().unwrap(), name: "a".parse().unwrap() };
        assert!(chain.extend(id("c"), &elsewhere).is_ok(), "the class is part of who it is");
    }

    #[test]
    fn a_chain_has_an_end() {
        let mut chain = CallChain::default();
        for depth in 0..CALL_DEPTH_MAX {
            chain = chain.extend(id(&depth.to_string()), &id("next")).unwrap();
        }
        assert_eq!(chain.extend(id("one more"), &id("next")), Err(ChainError::TooDeep));
    }

    #[test]
    fn each_callee_has_less_time_than_its_caller() {
        for (left_ms, callee_ms) in [(30_000, 29_750), (1_000, 750), (400, 300), (0, 0)] {
            let callee = time_for_callee(Duration::from_millis(left_ms));
            assert_eq!(callee, Duration::from_millis(callee_ms), "{left_ms}");
        }
    }
}
