//! TLS between nodes: this process's key, who is trusted, and the streams that carry it on a shard (R-TLS-1).
//!
//! Mutual, TLS 1.3 alone, without resumption: every connection shows its certificate anew. Who is trusted is
//! `protocol`'s to say, by the view; this asks it at the handshake and, through [`Watch`], for as long as the
//! connection lives. It knows no HTTP.

mod accept;
mod identity;
mod session;
mod verify;
mod watch;

pub(crate) use self::{
    accept::accept,
    identity::{Identity, IdentityError},
    session::{Refused, Session, TlsStream, connect},
    watch::Watch,
};
