//! Why a request to another server came to nothing.

use std::{error, fmt, io};

use crate::bindings::http::wasi::http::types::ErrorCode;

/// Why there is no answer, or no use for it.
#[derive(Debug)]
pub struct Error(Kind);

#[derive(Debug)]
enum Kind {
    /// The host's reason.
    Code(ErrorCode),
    /// Ours, before or after the host had to do with it.
    Unusable(String),
    /// A body broke off.
    Body(io::Error),
}

impl Error {
    pub(super) fn unusable(reason: impl Into<String>) -> Error {
        Error(Kind::Unusable(reason.into()))
    }

    /// The host's reason, when it is the host's.
    #[must_use]
    pub fn code(&self) -> Option<&ErrorCode> {
        match &self.0 {
            Kind::Code(code) => Some(code),
            Kind::Unusable(_) | Kind::Body(_) => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the outbound request failed: ")?;
        match &self.0 {
            Kind::Code(ErrorCode::DestinationIpProhibited) => {
                f.write_str("the address is not public, and the node does not allow it (--allow-outbound)")
            }
            Kind::Code(ErrorCode::DnsError(_)) => f.write_str("the name was not found"),
            Kind::Code(ErrorCode::ConnectionRefused) => f.write_str("the connection was refused"),
            Kind::Code(ErrorCode::ConnectionTimeout) => f.write_str("connecting took too long"),
            Kind::Code(ErrorCode::ConnectionLimitReached) => f.write_str("too many are open"),
            Kind::Code(code) => code.fmt(f),
            Kind::Unusable(reason) => f.write_str(reason),
            Kind::Body(error) => write!(f, "a body broke off: {error}"),
        }
    }
}

impl error::Error for Error {}

impl From<ErrorCode> for Error {
    fn from(code: ErrorCode) -> Error {
        Error(Kind::Code(code))
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error(Kind::Body(error))
    }
}
