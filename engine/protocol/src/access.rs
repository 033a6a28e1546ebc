//! Who may reach a class from outside (R-ACC-1): a rule, and what it decides for one request.

use std::str::FromStr;

use crate::{ActorName, NameError};

/// The rule of a class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Rule {
    /// Anyone may reach and create its actors.
    #[default]
    Open,
    /// Only actors that exist answer; `also`, when given, may be created from outside too.
    Existing {
        /// The one name that need not exist yet.
        also: Option<ActorName>,
    },
    /// Reachable only by `actors.call`.
    Internal,
}

/// Why a rule was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// Not one of the rules.
    #[error("'{0}' is not a rule: use open, existing, existing:NAME or internal")]
    Unknown(String),
    /// `existing:NAME` with a name that is none.
    #[error("the name after 'existing:' cannot be used: {0}")]
    Name(#[from] NameError),
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        match text {
            "open" => Ok(Self::Open),
            "existing" => Ok(Self::Existing { also: None }),
            "internal" => Ok(Self::Internal),
            other => match other.strip_prefix("existing:") {
                Some(name) => Ok(Self::Existing { also: Some(name.parse()?) }),
                None => Err(RuleError::Unknown(other.into())),
            },
        }
    }
}

/// What becomes of a request from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It goes to the actor.
    Allow,
    /// 404: the class answers only for actors that exist.
    NotFound,
    /// 403: the class is not reachable from outside.
    Forbidden,
}

impl Rule {
    /// Decides a request from outside; `exists` is asked only when the answer depends on it.
    pub fn decide(&self, name: &ActorName, exists: impl FnOnce() -> bool) -> Decision {
        match self {
            Self::Open => Decision::Allow,
            Self::Internal => Decision::Forbidden,
            Self::Existing { also } if also.as_ref() == Some(name) || exists() => Decision::Allow,
            Self::Existing { .. } => Decision::NotFound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_decides_as_documented() {
        // R-ACC-1
        let name = |text: &str| text.parse::<ActorName>().unwrap();
        for (rule, actor, exists, decision) in [
            ("open", "a", false, Decision::Allow),
            ("existing", "a", false, Decision::NotFound),
            ("existing", "a", true, Decision::Allow),
            ("existing:main", "main", false, Decision::Allow),
            ("existing:main", "other", false, Decision::NotFound),
            ("internal", "a", true, Decision::Forbidden),
        ] {
            assert_eq!(
                rule.parse::<Rule>().unwrap().decide(&name(actor), || exists),
                decision,
                "{rule} {actor}"
            );
        }
    }

    #[test]
    fn unknown_rules_are_refused() {
        assert_eq!("closed".parse::<Rule>(), Err(RuleError::Unknown("closed".into())));
        assert_eq!("existing:".parse::<Rule>(), Err(RuleError::Name(NameError::Empty)));
    }
}
