//! Requests that are answered past the SDK, which would not do this.

use wasmkeep_sdk::{
    bindings::http::{
        export_request_handler,
        exports::wasi::http::incoming_handler::Guest,
        wasi::http::types::{Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam},
    },
    serve,
};

use crate::{Sql, limits};

impl Guest for Sql {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let target = request.path_with_query().unwrap_or_default();
        match target.split('?').next().unwrap_or_default() {
            // Returns, and has answered nothing.
            "/no-response" => drop((request, out)),
            // Writes something and never says that it was all.
            "/unfinished" => drop(begin(out, b"something")),
            "/trailers" => trailers(out),
            // The head is out, and then it traps.
            "/trap-after-head" => {
                let _body = begin(out, b"something");
                limits::trap();
            }
            "/answer-first" => answer_first(&request, out),
            _ => serve::<Sql>(request, out),
        }
    }
}

/// Sends a head without a length and some of the body.
fn begin(out: ResponseOutparam, bytes: &[u8]) -> OutgoingBody {
    let response = OutgoingResponse::new(Fields::new());
    let body = response.body().expect("it was not taken");
    ResponseOutparam::set(out, Ok(response));
    let stream = body.write().expect("it was not taken");
    stream.blocking_write_and_flush(bytes).expect("somebody reads");
    body
}

fn trailers(out: ResponseOutparam) {
    let body = begin(out, b"with a trailer\n");
    let trailers = Fields::from_list(&[("x-trailer".to_owned(), b"1".to_vec())]).expect("HTTP allows it");
    OutgoingBody::finish(body, Some(trailers)).expect("it had no length");
}

/// The whole response is out before the request's body is read to its end.
fn answer_first(request: &IncomingRequest, out: ResponseOutparam) {
    OutgoingBody::finish(begin(out, b"before the body\n"), None).expect("it had no length");
    let body = request.consume().expect("it was not taken");
    let stream = body.stream().expect("it was not taken");
    let mut bytes = 0;
    while let Ok(chunk) = stream.blocking_read(64 << 10) {
        bytes += chunk.len();
    }
    println!("read {bytes} bytes after the answer");
}

export_request_handler!(Sql);
