//! The signature of an `actors.call` between two nodes (R-CALL-1): HMAC-SHA256 over everything that decides what
//! the call does and whom it claims to come from. Pure: the time and the nonce are arguments.
//!
//! The signed text is `wasmkeep-call-v1` and then each field as its length (32 bits, big-endian) and its bytes, so
//! no two calls share a text: target node, method, path with query, SHA-256 of the body, calling actor (class,
//! name), number of waiting actors and each of them (class, name), timestamp in ms (decimal), nonce.

use std::{collections::HashSet, collections::VecDeque, fmt};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::{ActorId, NodeId};

/// How long a signature is good for, and how long its nonce is remembered, in milliseconds (R-CALL-1).
pub const VALID_MS: u64 = 60_000;

/// Nonces remembered at most: a minute of 10,000 calls a second. Over it calls are refused rather than a nonce
/// forgotten early.
pub const NONCES_MAX: usize = 600_000;

const CONTEXT: &[u8] = b"wasmkeep-call-v1";

/// Unique to each send.
pub type Nonce = [u8; 16];

/// The signature itself.
pub type Signature = [u8; 32];

/// The cluster's secret, as kept at `cluster/secret`.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A secret that is not 64 hexadecimal digits; calls stop rather than go on with less (R-CALL-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cluster secret is malformed: it must be 64 hexadecimal digits")]
pub struct MalformedSecret;

/// What is signed.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The node the call is for: another node must not accept it.
    pub node: &'a NodeId,
    /// HTTP method.
    pub method: &'a str,
    /// Path with query, as sent.
    pub path: &'a str,
    /// The body.
    pub body: &'a [u8],
    /// The actor that calls.
    pub caller: &'a ActorId,
    /// Actors waiting for this call, outermost first.
    pub chain: &'a [ActorId],
    /// When it was signed, in ms since the Unix epoch.
    pub timestamp_ms: u64,
    /// Unique to this send.
    pub nonce: Nonce,
}

/// Why a call is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallRefused {
    /// Another secret, another node, or something was changed on the way.
    #[error("bad or misaddressed signature")]
    Signature,
    /// Outside the minute around now.
    #[error(
        "the signature has expired or lies in the future; most likely the clocks of the two nodes differ"
    )]
    Expired,
    /// Seen before.
    #[error("this call was accepted once already")]
    Replayed,
    /// Too many calls a minute to remember them all.
    #[error("too many calls to remember; retry")]
    Overloaded,
}

impl Secret {
    /// Parses the object's text, surrounding white space allowed.
    ///
    /// # Errors
    /// [`MalformedSecret`].
    pub fn parse(text: &str) -> Result<Self, MalformedSecret> {
        let digits = text.trim().as_bytes();
        if digits.len() != 64 {
            return Err(MalformedSecret);
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(MalformedSecret);
        let mut secret = [0; 32];
        for (byte, pair) in secret.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Ok(Self(secret))
    }

    /// Signs a call.
    #[must_use]
    pub fn sign(&self, call: &Call<'_>) -> Signature {
        self.mac(call).finalize().into_bytes().into()
    }

    /// Believes a call once: checks the signature first, then the time, then that the nonce is new, and remembers
    /// it. `here` is the node that received the call.
    ///
    /// # Errors
    /// [`CallRefused`]; a refused call leaves no trace in `seen`.
    pub fn accept(
        &self,
        here: &NodeId,
        call: &Call<'_>,
        signature: &Signature,
        now_ms: u64,
        seen: &mut SeenNonces,
    ) -> Result<(), CallRefused> {
        let addressed = call.node == here;
        // Compares in constant time.
        let genuine = self.mac(call).verify_slice(signature).is_ok();
        if !(addressed && genuine) {
            return Err(CallRefused::Signature);
        }
        if call.timestamp_ms.abs_diff(now_ms) > VALID_MS {
            return Err(CallRefused::Expired);
        }
        seen.remember(call.nonce, call.timestamp_ms, now_ms)
    }

    fn mac(&self, call: &Call<'_>) -> Hmac<Sha256> {
        // HMAC takes a key of any length, and this one is 32 bytes.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(CONTEXT);
        let mut field = |bytes: &[u8]| {
            mac.update(&(bytes.len() as u32).to_be_bytes());
            mac.update(bytes);
        };
        field(call.node.as_str().as_bytes());
        field(call.method.as_bytes());
        field(call.path.as_bytes());
        field(&Sha256::digest(call.body));
        field(call.caller.class.as_str().as_bytes());
        field(call.caller.name.as_str().as_bytes());
        field(&(call.chain.len() as u32).to_be_bytes());
        for waiting in call.chain {
            field(waiting.class.as_str().as_bytes());
            field(waiting.name.as_str().as_bytes());
        }
        field(call.timestamp_ms.to_string().as_bytes());
        field(&call.nonce);
        mac
    }
}

/// Nonces accepted lately. Bounded.
#[derive(Debug)]
pub struct SeenNonces {
    known: HashSet<Nonce>,
    /// By acceptance, with the moment each may be forgotten.
    order: VecDeque<(u64, Nonce)>,
    max: usize,
}

impl Default for SeenNonces {
    fn default() -> Self {
        Self::new(NONCES_MAX)
    }
}

impl SeenNonces {
    /// Remembers at most `max` nonces.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { known: HashSet::new(), order: VecDeque::new(), max }
    }

    /// How many are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    fn remember(&mut self, nonce: Nonce, timestamp_ms: u64, now_ms: u64) -> Result<(), CallRefused> {
        while let Some(&(until, oldest)) = self.order.front()
            && until < now_ms
        {
            self.order.pop_front();
            self.known.remove(&oldest);
        }
        if self.known.contains(&nonce) {
            return Err(CallRefused::Replayed);
        }
        if self.known.len() >= self.max {
            return Err(CallRefused::Overloaded);
        }
        // A timestamp ahead of this clock stays acceptable for longer than a minute from now; so does its nonce.
        let until = timestamp_ms.max(now_ms).saturating_add(VALID_MS);
        self.known.insert(nonce);
        self.order.push_back((until, nonce));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
