//! Whether a request is a WebSocket's opening handshake, and whether it is a proper one (RFC 6455 section 4.2).
//! Pure.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header, request::Parts};
use tungstenite::handshake::derive_accept_key;

/// The only version of the protocol there is.
const PROTOCOL_VERSION: HeaderValue = HeaderValue::from_static("13");

/// What the key of a handshake holds, in bytes.
const KEY_BYTES: usize = 16;

/// A handshake in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Handshake {
    accept: HeaderValue,
}

/// Why a request for a WebSocket gets none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    pub(crate) reason: &'static str,
}

const fn bad(reason: &'static str) -> Refused {
    Refused { status: StatusCode::BAD_REQUEST, reason }
}

/// Whether the client wants this connection to become a WebSocket.
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    has_token(headers, header::UPGRADE, "websocket")
}

impl Handshake {
    /// Judges a request that [`is_wanted`] says is one; `has_body` when anything follows its head.
    pub(crate) fn of(parts: &Parts, has_body: bool) -> Result<Handshake, Refused> {
        if parts.method != Method::GET {
            return Err(bad("a WebSocket is asked for with GET"));
        }
        if parts.version != Version::HTTP_11 {
            return Err(bad("a WebSocket needs HTTP/1.1"));
        }
        if !has_token(&parts.headers, header::CONNECTION, "upgrade") {
            return Err(bad("a request for a WebSocket has Connection: upgrade"));
        }
        if has_body {
            return Err(bad("a request for a WebSocket has no body"));
        }
        let version = only(&parts.headers, header::SEC_WEBSOCKET_VERSION);
        if version.is_none_or(|version| version != PROTOCOL_VERSION) {
            let reason = "this node speaks version 13 of the WebSocket protocol";
            return Err(Refused { status: StatusCode::UPGRADE_REQUIRED, reason });
        }
        let key = only(&parts.headers, header::SEC_WEBSOCKET_KEY).ok_or(bad(BAD_KEY))?;
        let decoded = data_encoding::BASE64.decode(key.as_bytes());
        if decoded.is_ok_and(|decoded| decoded.len() == KEY_BYTES) {
            let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes()));
            return Ok(Handshake { accept: accept.map_err(|_| bad(BAD_KEY))? });
        }
        Err(bad(BAD_KEY))
    }

    /// The head that turns the connection into a WebSocket. No extension is agreed on.
    pub(crate) fn answer(self, protocol: Option<HeaderValue>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, self.accept);
        if let Some(protocol) = protocol {
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
        }
        headers
    }
}

impl Refused {
    /// What a client of another version needs to know.
    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if self.status == StatusCode::UPGRADE_REQUIRED {
            headers.insert(header::SEC_WEBSOCKET_VERSION, PROTOCOL_VERSION);
            headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        }
        headers
    }
}

const BAD_KEY: &str = "a request for a WebSocket has one Sec-WebSocket-Key of 16 bytes in base64";

/// The header's value when there is exactly one.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

fn has_token(headers: &HeaderMap, name: HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    /// The request of RFC 6455 section 1.2, with headers changed: no value removes one.
    fn judge(method: &str, version: Version, changes: &[(&str, Option<&str>)]) -> Result<Handshake, u16> {
        let mut request = Request::new(());
        *request.method_mut() = method.parse().unwrap();
        *request.version_mut() = version;
        let headers = request.headers_mut();
        for (name, value) in [
            ("upgrade", "websocket"),
            ("connection", "keep-alive, Upgrade"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        for (name, value) in changes {
            let name: HeaderName = name.parse().unwrap();
            headers.remove(&name);
            for value in value.iter().flat_map(|value| value.split('|')) {
                headers.append(&name, value.parse().unwrap());
            }
        }
        assert!(is_wanted(headers), "{changes:?}");
        let (parts, ()) = request.into_parts();
        Handshake::of(&parts, false).map_err(|refused| refused.status.as_u16())
    }

    #[test]
    fn the_handshake_of_the_standard_is_answered_as_it_says() {
        // R-WS-1
        let handshake = judge("GET", Version::HTTP_11, &[]).unwrap();
        let headers = handshake.answer(Some(HeaderValue::from_static("chat")));
        assert_eq!(headers[header::SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(headers[header::UPGRADE], "websocket");
        assert_eq!(headers[header::CONNECTION], "upgrade");
        assert_eq!(headers[header::SEC_WEBSOCKET_PROTOCOL], "chat");
        assert!(!headers.contains_key(header::SEC_WEBSOCKET_EXTENSIONS));
    }

    #[test]
    fn what_is_not_quite_a_handshake_is_refused() {
        // R-WS-1
        for (method, version, changes, status) in [
            ("POST", Version::HTTP_11, &[][..], 400),
            ("GET", Version::HTTP_10, &[], 400),
            ("GET", Version::HTTP_11, &[("connection", None)], 400),
            ("GET", Version::HTTP_11, &[("connection", Some("keep-alive"))], 400),
            ("GET", Version::HTTP_11, &[("sec-websocket-version", None)], 426),
            ("GET", Version::HTTP_11, &[("sec-websocket-version", Some("8"))], 426),
            ("GET", Version::HTTP_11, &[("sec-websocket-version", Some("13|8"))], 426),
            ("GET", Version::HTTP_11, &[("sec-websocket-key", None)], 400),
            ("GET", Version::HTTP_11, &[("sec-websocket-key", Some("dGhlIHNhbXBsZSBub25jZQ==|AAAA"))], 400),
            ("GET", Version::HTTP_11, &[("sec-websocket-key", Some("c2hvcnQ="))], 400),
            ("GET", Version::HTTP_11, &[("sec-websocket-key", Some("not base64 at all 24 chr"))], 400),
        ] {
            assert_eq!(judge(method, version, changes), Err(status), "{method} {version:?} {changes:?}");
        }
    }

    #[test]
    fn a_body_has_no_place_in_a_handshake_and_another_version_is_told_ours() {
        let mut request = Request::new(());
        request.headers_mut().insert("connection", HeaderValue::from_static("upgrade"));
        let (parts, ()) = request.into_parts();
        assert_eq!(Handshake::of(&parts, true), Err(bad("a request for a WebSocket has no body")));
        let refused = Handshake::of(&parts, false).unwrap_err();
        assert_eq!(refused.headers()[header::SEC_WEBSOCKET_VERSION], "13");
    }

    #[test]
    fn only_a_request_that_names_websocket_asks_for_one() {
        for (upgrade, wanted) in
            [("websocket", true), ("h2c, WebSocket", true), ("h2c", false), ("web", false)]
        {
            let headers = HeaderMap::from_iter([(header::UPGRADE, HeaderValue::from_static(upgrade))]);
            assert_eq!(is_wanted(&headers), wanted, "{upgrade}");
        }
        assert!(!is_wanted(&HeaderMap::new()));
    }
}
