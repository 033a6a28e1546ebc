//! What makes a record ours. Owns the token's shape; where a record carries it is the record's codec.

use std::fmt;

/// Bytes of a nonce's text.
const NONCE_TEXT_BYTES: usize = 32;

/// 128 random bits, written as 32 hexadecimal digits into a record before it is put.
///
/// Two writes never carry the same nonce, so equal records never have equal bodies (and so never equal ETags,
/// which are often a hash of the body), and a writer that lost the reply finds out whether its write landed.
/// **A record never quotes the nonce of another record**: finding it anywhere in a body proves the body ours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Nonce(String);

impl Nonce {
    /// A fresh one from `random`, an argument so that a simulated run can be repeated.
    pub fn new(random: &mut impl rand::Rng) -> Self {
        Self(format!("{:016x}{:016x}", random.next_u64(), random.next_u64()))
    }

    /// A fresh one from the thread's own generator.
    pub fn random() -> Self {
        Self::new(&mut rand::rng())
    }

    /// Reads a nonce back from a record; `None` unless it is 32 lower-case hexadecimal digits.
    pub fn from_text(text: &str) -> Option<Self> {
        let digits = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (text.len() == NONCE_TEXT_BYTES && digits).then(|| Self(text.to_owned()))
    }

    /// The 32 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `body` carries this nonce.
    pub fn is_in(&self, body: &[u8]) -> bool {
        body.windows(NONCE_TEXT_BYTES).any(|window| window == self.0.as_bytes())
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn a_nonce_is_found_in_its_own_record_only() {
        let (ours, theirs) = (Nonce::random(), Nonce::random());
        assert_ne!(ours, theirs);
        let record = format!("{{\"nonce\":\"{ours}\"}}");
        assert!(ours.is_in(record.as_bytes()));
        assert!(!theirs.is_in(record.as_bytes()));
        assert!(!ours.is_in(b""));
    }

    #[test]
    fn the_same_seed_gives_the_same_nonce() {
        let nonce = || Nonce::new(&mut rand::rngs::StdRng::seed_from_u64(7));
        assert_eq!(nonce(), nonce());
        assert_eq!(Nonce::from_text(nonce().as_str()), Some(nonce()));
    }

    #[test]
    fn only_the_exact_text_is_a_nonce() {
        for bad in ["", "0", &"0".repeat(31), &"0".repeat(33), &"G".repeat(32), &"A".repeat(32)] {
            assert_eq!(Nonce::from_text(bad), None, "{bad:?}");
        }
    }
}
