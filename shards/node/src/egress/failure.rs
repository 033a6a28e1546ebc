//! What went wrong, as the guest is told and as it is counted.

use std::{error::Error, io};

use wasmkeep_host::outbound::OutboundError;

use super::{connect::NoConnection, metrics::Outcome};

/// The guest's error for a request without a response.
pub(super) fn request_error(error: &reqwest::Error) -> OutboundError {
    classify(error).unwrap_or(OutboundError::ConnectionTerminated)
}

/// The guest's error for a response whose body broke off.
pub(super) fn body_error(error: &reqwest::Error) -> OutboundError {
    match classify(error) {
        Some(OutboundError::ConnectionTerminated) | None => OutboundError::HttpResponseIncomplete,
        Some(error) => error,
    }
}

/// The first of an error's sources that says more than that there was one.
fn classify(error: &reqwest::Error) -> Option<OutboundError> {
    let mut source: Option<&(dyn Error + 'static)> = error.source();
    while let Some(error) = source {
        if let Some(found) = classify_one(error) {
            return Some(found);
        }
        // An io::Error made of another error hides it from `source`.
        source = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

fn classify_one(error: &(dyn Error + 'static)) -> Option<OutboundError> {
    if let Some(reason) = error.downcast_ref::<NoConnection>() {
        return Some(match reason {
            NoConnection::Prohibited => OutboundError::DestinationIpProhibited,
            NoConnection::Lookup(_) => OutboundError::DnsError { rcode: None, info_code: None },
            NoConnection::TooLong => OutboundError::ConnectionTimeout,
        });
    }
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return Some(tls_error(error));
    }
    if let Some(error) = error.downcast_ref::<OutboundError>() {
        return Some(sending_error(error));
    }
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        return http_error(error);
    }
    error.downcast_ref::<io::Error>().and_then(io_error)
}

/// The guest's own request body failed.
fn sending_error(error: &OutboundError) -> OutboundError {
    match error {
        OutboundError::HttpRequestBodySize(size) => OutboundError::HttpRequestBodySize(*size),
        _ => OutboundError::ConnectionTerminated,
    }
}

fn tls_error(error: &rustls::Error) -> OutboundError {
    match error {
        rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => {
            OutboundError::TlsCertificateError
        }
        rustls::Error::AlertReceived(alert) => OutboundError::TlsAlertReceived {
            alert_id: Some(u8::from(*alert)),
            alert_message: Some(format!("{alert:?}")),
        },
        _ => OutboundError::TlsProtocolError,
    }
}

fn http_error(error: &hyper::Error) -> Option<OutboundError> {
    if error.is_parse_too_large() {
        Some(OutboundError::HttpResponseHeaderSectionSize(None))
    } else if error.is_parse() {
        Some(OutboundError::HttpProtocolError)
    } else if error.is_incomplete_message() {
        Some(OutboundError::ConnectionTerminated)
    } else {
        None
    }
}

fn io_error(error: &io::Error) -> Option<OutboundError> {
    use io::ErrorKind as Kind;
    Some(match error.kind() {
        Kind::ConnectionRefused => OutboundError::ConnectionRefused,
        Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe | Kind::UnexpectedEof => {
            OutboundError::ConnectionTerminated
        }
        Kind::NetworkUnreachable | Kind::HostUnreachable | Kind::AddrNotAvailable => {
            OutboundError::DestinationIpUnroutable
        }
        Kind::TimedOut => OutboundError::ConnectionTimeout,
        // Too few descriptors, for one.
        _ if error.raw_os_error().is_some() => OutboundError::DestinationUnavailable,
        _ => return None,
    })
}

/// Under which outcome an error is counted.
pub(super) fn outcome(error: &OutboundError) -> Outcome {
    match error {
        OutboundError::DestinationIpProhibited => Outcome::Prohibited,
        OutboundError::ConnectionLimitReached => Outcome::OverLimit,
        OutboundError::DnsError { .. } | OutboundError::DnsTimeout => Outcome::Lookup,
        OutboundError::ConnectionRefused
        | OutboundError::DestinationIpUnroutable
        | OutboundError::DestinationUnavailable => Outcome::Unreachable,
        OutboundError::ConnectionTimeout
        | OutboundError::ConnectionReadTimeout
        | OutboundError::HttpResponseTimeout => Outcome::Timeout,
        OutboundError::TlsAlertReceived { .. }
        | OutboundError::TlsCertificateError
        | OutboundError::TlsProtocolError => Outcome::Tls,
        OutboundError::HttpRequestMethodInvalid
        | OutboundError::HttpRequestUriInvalid
        | OutboundError::HttpRequestBodySize(_) => Outcome::Invalid,
        _ => Outcome::Broken,
    }
}
