//! Which headers pass between a client and a guest.

use http::{HeaderMap, HeaderName, header};
use wasmkeep_protocol::headers::{is_hop_by_hop, is_platform};

/// Removes what may not pass in either direction: fields of one connection, those `Connection` names
/// (RFC 9110 section 7.6.1), and the platform's own. `content-length` and `host` stay even if named.
pub fn strip(headers: &mut HeaderMap) {
    if !headers.keys().any(|name| is_removed(name.as_str())) {
        return;
    }
    let mut removed: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse::<HeaderName>().ok())
        .filter(|name| name != header::CONTENT_LENGTH && name != header::HOST)
        .collect();
    removed.extend(headers.keys().filter(|name| is_removed(name.as_str())).cloned());
    for name in removed {
        headers.remove(name);
    }
}

/// The headers of a request as a hook sees them.
#[must_use]
pub fn for_hook(mut headers: HeaderMap) -> Vec<(String, Vec<u8>)> {
    strip(&mut headers);
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect()
}

fn is_removed(name: &str) -> bool {
    is_hop_by_hop(name) || is_platform(name)
}

/// The single `content-length` of a message; `Err` when it is not one plain number.
pub(crate) fn content_length(headers: &HeaderMap) -> Result<Option<u64>, ()> {
    let mut values = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(());
    }
    let digits = value.as_bytes();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(());
    }
    value.to_str().map_err(drop)?.parse().map(Some).map_err(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().expect("a header value"));
        }
        map
    }

    // case H7
    #[test]
    fn fields_of_the_connection_and_of_the_platform_do_not_pass() {
        let mut map = headers(&[
            ("connection", "keep-alive, X-Private, content-length"),
            ("x-private", "1"),
            ("keep-alive", "timeout=5"),
            // RFC 9113 section 3.1: a client may have named it, or not.
            ("http2-settings", "AAMAAABkAAQAAP__"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("te", "trailers"),
            ("trailer", "x"),
            ("x-wasmkeep-node", "forged"),
            ("x-wasmkeep-anything", "forged"),
            ("content-length", "3"),
            ("set-cookie", "a"),
            ("set-cookie", "b"),
        ]);
        strip(&mut map);
        assert_eq!(map, headers(&[("content-length", "3"), ("set-cookie", "a"), ("set-cookie", "b")]));
    }

    #[test]
    fn only_one_plain_number_is_a_content_length() {
        assert_eq!(content_length(&headers(&[])), Ok(None));
        assert_eq!(content_length(&headers(&[("content-length", "12")])), Ok(Some(12)));
        for bad in ["", "+1", "1, 1", "-1", "0x1", "99999999999999999999999"] {
            assert_eq!(content_length(&headers(&[("content-length", bad)])), Err(()), "{bad}");
        }
        assert_eq!(content_length(&headers(&[("content-length", "1"), ("content-length", "1")])), Err(()));
    }
}
