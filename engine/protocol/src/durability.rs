//! When what an actor says may leave: the durability of a class.

use std::str::FromStr;

/// What is in the bucket before an answer of a class leaves its node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// What was written durably. The rest follows at the end of the event.
    #[default]
    Event,
    /// Every write the answer could have seen.
    Gate,
}

/// The text is no durability.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a durability: use event or gate")]
pub struct DurabilityError(String);

impl FromStr for Durability {
    type Err = DurabilityError;

    fn from_str(text: &str) -> Result<Self, DurabilityError> {
        match text {
            "event" => Ok(Self::Event),
            "gate" => Ok(Self::Gate),
            other => Err(DurabilityError(other.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_durability_is_one_of_two_words() {
        assert_eq!(Durability::default(), Durability::Event);
        for (text, durability) in [("event", Some(Durability::Event)), ("gate", Some(Durability::Gate))] {
            assert_eq!(text.parse().ok(), durability, "{text}");
        }
        for text in ["", "Gate", "gated", "gate "] {
            assert!(text.parse::<Durability>().is_err(), "{text:?}");
        }
    }
}
