//! The sample components, the runtime they are loaded into, and one request to an instance.

use std::{
    env, fs,
    future::Future,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use http_body_util::BodyExt;
use wasmkeep_actor::{Guest as _, TurnEnd};
use wasmkeep_host::{AnswerReceiver, HttpEvent, Identity, Instance, RequestBody, Runtime, RuntimeConfig};
use wasmkeep_protocol::limits::ACTOR_MEMORY_BYTES;

/// A sample component, by name, as `scripts/build-guests` built it: from the folder `WASMKEEP_GUESTS`, or from
/// where that script puts them.
///
/// # Panics
/// When there is none; says how to get it.
#[must_use]
pub fn sample(name: &str) -> Vec<u8> {
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/guests");
    let folder = env::var_os("WASMKEEP_GUESTS").map_or_else(usual, PathBuf::from);
    let path = folder.join(format!("{name}.wasm"));
    fs::read(&path).unwrap_or_else(|error| {
        panic!("{path:?}: {error}; build the samples with scripts/build-guests, or name their folder in WASMKEEP_GUESTS")
    })
}

/// A runtime for `resident_max` instances that keeps compiled code in `folder`.
///
/// # Panics
/// When it cannot be set up.
#[must_use]
pub fn runtime(folder: &Path, resident_max: usize) -> Runtime {
    let config = RuntimeConfig {
        cache_dir: folder.join("compiled"),
        resident_max,
        memory_bytes_max: ACTOR_MEMORY_BYTES,
        line_numbers: false,
    };
    Runtime::new(&config).expect("a runtime")
}

/// An actor's identity.
#[must_use]
pub fn identity(name: &str) -> Arc<Identity> {
    Arc::new(Identity {
        tenant: "bench".to_owned(),
        class: "counter".to_owned(),
        name: name.to_owned(),
        node: "bench".to_owned(),
        generation: 0,
        version: "1".to_owned(),
    })
}

/// Polls a future until it is done, without ever sleeping: for code that waits for nobody but itself.
pub fn wait<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

/// An event with an empty body, and where its answer comes.
pub(crate) fn event(method: &str, path: &str) -> (HttpEvent, AnswerReceiver) {
    let request = http::Request::builder().method(method).uri(path).header("host", "bench");
    HttpEvent::new(request.body(RequestBody::empty()).expect("a request"))
}

/// Reads an answer to its end: how many bytes its body has.
///
/// # Panics
/// When it is not a whole 200.
pub(crate) async fn received(answer: AnswerReceiver) -> usize {
    let response = answer.await.expect("an answer");
    assert_eq!(response.status(), 200);
    response.into_body().collect().await.expect("a whole body").to_bytes().len()
}

/// One request to an instance, and its answer read to the end: how many bytes its body has.
///
/// # Panics
/// When it is not a whole 200, or the instance cannot be used again.
pub async fn exchange(instance: &mut Instance, method: &str, path: &str) -> usize {
    let (event, answer) = event(method, path);
    let (end, bytes) = futures::join!(instance.deliver(event.into()), received(answer));
    assert_eq!(end, TurnEnd::Ready);
    bytes
}
