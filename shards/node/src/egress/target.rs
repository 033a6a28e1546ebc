//! From what a guest asked for to a request that may be sent: its URL is checked here, and an address written
//! in it, since nobody looks up an address.

use std::net::IpAddr;

use http::{Method, Request, header};
use http_body::Body as _;
use url::{Host, Url};
use wasmkeep_host::outbound::{OutboundBody, OutboundError};

use super::{
    addresses::{OutboundRange, may_connect},
    body,
};

/// The request to send.
///
/// Octal, hexadecimal and short forms of IPv4 become addresses when the URL is read, as they do in the client
/// that connects: it is given this URL, not the guest's text.
pub(super) fn request(
    request: Request<OutboundBody>,
    allowed: &[OutboundRange],
) -> Result<reqwest::Request, OutboundError> {
    let (mut parts, body) = request.into_parts();
    // A tunnel would lead past every check.
    if parts.method == Method::CONNECT {
        return Err(OutboundError::HttpRequestMethodInvalid);
    }
    let url = checked_url(&parts.uri.to_string(), allowed)?;
    // Written by the client from the URL.
    parts.headers.remove(header::HOST);
    let mut sent = reqwest::Request::new(parts.method, url);
    *sent.headers_mut() = parts.headers;
    if body.size_hint().exact() != Some(0) {
        *sent.body_mut() = Some(body::sent(body));
    }
    Ok(sent)
}

fn checked_url(text: &str, allowed: &[OutboundRange]) -> Result<Url, OutboundError> {
    let url = Url::parse(text).map_err(|_| OutboundError::HttpRequestUriInvalid)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(OutboundError::HttpProtocolError);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(OutboundError::HttpRequestUriInvalid);
    }
    let address = match url.host() {
        None => return Err(OutboundError::HttpRequestUriInvalid),
        // Looked up, and checked then.
        Some(Host::Domain(_)) => return Ok(url),
        Some(Host::Ipv4(address)) => IpAddr::V4(address),
        Some(Host::Ipv6(address)) => IpAddr::V6(address),
    };
    if may_connect(address, allowed) { Ok(url) } else { Err(OutboundError::DestinationIpProhibited) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of a URL: where it goes, or the error.
    fn checked(text: &str, allowed: &[OutboundRange]) -> String {
        match checked_url(text, allowed) {
            Ok(url) => url.host_str().unwrap_or_default().to_owned(),
            Err(error) => format!("{error:?}"),
        }
    }

    // case H9
    #[test]
    fn every_way_to_write_an_address_is_judged_as_the_address() {
        for host in [
            "127.0.0.1",
            "127.1",
            "127.0.1",
            "2130706433",
            "0177.0.0.1",
            "017700000001",
            "0x7f.0.0.1",
            "0x7f000001",
            "0x7F.1",
            "%31%32%37.0.0.1",
            "127.0.0.1.",
            "0",
            "0.0.0.0",
            "0x0",
            "169.254.169.254",
            "0xa9fea9fe",
            "2852039166",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[::127.0.0.1]",
            "[64:ff9b::a9fe:a9fe]",
            "[2002:7f00:1::]",
            "\u{ff11}27.0.0.1",
            "127\u{3002}0\u{3002}0\u{3002}1",
        ] {
            for (scheme, port) in [("http", ""), ("https", ":8443")] {
                let text = format!("{scheme}://{host}{port}/");
                assert_eq!(checked(&text, &[]), "DestinationIpProhibited", "{text}");
            }
        }
        assert_eq!(checked("http://8.8.8.8/", &[]), "8.8.8.8");
        assert_eq!(checked("http://0177.0.0.1:81/", &["127.0.0.0/8".parse().unwrap()]), "127.0.0.1");
    }

    #[test]
    fn a_url_that_cannot_be_sent_is_refused() {
        for (text, error) in [
            ("http://256.1.1.1/", "HttpRequestUriInvalid"),
            ("http://1.2.3.4.5/", "HttpRequestUriInvalid"),
            ("http://[::1/", "HttpRequestUriInvalid"),
            ("http://[fe80::1%25lo]/", "HttpRequestUriInvalid"),
            ("http:///", "HttpRequestUriInvalid"),
            ("http://user:word@example.test/", "HttpRequestUriInvalid"),
            ("http://127.0.0.1@example.test/", "HttpRequestUriInvalid"),
            ("ftp://example.test/", "HttpProtocolError"),
            ("http://example.test/", "example.test"),
            ("http://localhost./", "localhost."),
        ] {
            assert_eq!(checked(text, &[]), error, "{text}");
        }
    }

    #[test]
    fn a_tunnel_is_refused() {
        use http_body_util::{BodyExt, Empty};
        let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
        let connect = Request::builder().method(Method::CONNECT).uri("http://8.8.8.8/").body(body).unwrap();
        assert!(matches!(request(connect, &[]), Err(OutboundError::HttpRequestMethodInvalid)));
    }
}
