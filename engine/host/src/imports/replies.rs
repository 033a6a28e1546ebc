//! `wasmkeep:actor/replies`.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, Full};
use wasmtime::component::Resource;
use wasmtime_wasi_http::{WasiHttpHooks, p2::types::HostResponseOutparam};

use crate::{
    bindings::replies::{Error, Host},
    state::{ActorState, FIELDS_BYTES_MAX},
};

/// What `wasi:http` counts for a header beside its name and value.
const HEADER_BYTES: usize = 40;

impl Host for ActorState {
    fn send(
        &mut self,
        out: Resource<HostResponseOutparam>,
        status: u16,
        headers: Vec<(String, Vec<u8>)>,
        body: Vec<u8>,
    ) -> wasmtime::Result<Result<(), Error>> {
        // Dropped unused when the answer is refused: the event ends without a response.
        let out = self.table.delete(out)?;
        let response = match head(status, headers, body.len(), |name| self.hooks.is_forbidden_header(name)) {
            Ok(response) => response,
            Err(reason) => return Ok(Err(Error::Refused(reason))),
        };
        let body = Full::new(Bytes::from(body)).map_err(|never| match never {});
        (out.send)(Ok(response.map(|()| body.boxed_unsync())));
        Ok(Ok(()))
    }
}

/// The head of an answer with a body of so many bytes.
fn head(
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    body_bytes: usize,
    mut is_forbidden: impl FnMut(&HeaderName) -> bool,
) -> Result<http::Response<()>, String> {
    // Whether it is one that ends an event is judged where answers of both kinds arrive.
    let code = StatusCode::from_u16(status).map_err(|_| format!("{status} is no status"))?;
    let mut map = HeaderMap::with_capacity(headers.len() + 1);
    let mut bytes = 0;
    for (name, value) in headers {
        bytes += name.len() + value.len() + HEADER_BYTES;
        if bytes > FIELDS_BYTES_MAX {
            return Err(format!("the headers are over {FIELDS_BYTES_MAX} bytes"));
        }
        let known = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("{name:?} is no name of a header"))?;
        if is_forbidden(&known) {
            return Err(format!("the header {known} is not an actor's to send"));
        }
        let value = HeaderValue::from_maybe_shared(Bytes::from(value))
            .map_err(|_| format!("the value of {known} has characters that HTTP does not allow"))?;
        map.try_append(known, value).map_err(|_| "the headers are too many".to_owned())?;
    }
    // RFC 9110 section 8.6: none in a 204; a 304 would have to announce another's.
    let has_body = !matches!(code, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if has_body && !map.contains_key(header::CONTENT_LENGTH) {
        map.insert(header::CONTENT_LENGTH, HeaderValue::from(body_bytes));
    }
    let mut response = http::Response::new(());
    *response.status_mut() = code;
    *response.headers_mut() = map;
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(status: u16, headers: &[(&str, &str)], body_bytes: usize) -> Result<http::Response<()>, String> {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()));
        head(status, headers.collect(), body_bytes, |name| name == header::HOST)
    }

    fn announced_length(status: u16, headers: &[(&str, &str)]) -> Vec<String> {
        let response = made(status, headers, 6).expect("a good head");
        let lengths = response.headers().get_all(header::CONTENT_LENGTH).iter();
        lengths.map(|value| value.to_str().expect("digits").to_owned()).collect()
    }

    #[test]
    fn the_length_of_a_body_is_announced_once_where_it_belongs() {
        assert_eq!(announced_length(200, &[]), ["6"]);
        assert_eq!(announced_length(200, &[("Content-Length", "9")]), ["9"]);
        assert!(announced_length(204, &[]).is_empty());
        assert!(announced_length(304, &[]).is_empty());
        assert_eq!(announced_length(304, &[("content-length", "9")]), ["9"]);
    }

    #[test]
    fn headers_keep_their_order_and_may_come_twice() {
        let response = made(201, &[("a", "1"), ("B", "2"), ("a", "3")], 0).expect("a good head");
        assert_eq!(response.status(), 201);
        assert_eq!(response.headers().get_all("a").iter().collect::<Vec<_>>(), ["1", "3"]);
        assert_eq!(response.headers()["b"], "2");
    }

    #[test]
    fn what_cannot_be_sent_is_refused_with_a_reason() {
        let long = "v".repeat(FIELDS_BYTES_MAX);
        for (status, name, value, reason) in [
            (99, "a", "1", "99 is no status"),
            (1000, "a", "1", "1000 is no status"),
            (0, "a", "1", "0 is no status"),
            (200, "a b", "1", "no name"),
            (200, "", "1", "no name"),
            (200, "a", "1\r\nb: 2", "does not allow"),
            (200, "Host", "x", "not an actor's"),
            (200, "a", long.as_str(), "over"),
        ] {
            let refused = made(status, &[(name, value)], 0).expect_err(reason);
            assert!(refused.contains(reason), "{refused}");
        }
    }
}
