//! Guests written in WebAssembly text, and the means to run them on one thread without any executor.

use std::{
    future::Future,
    path::Path,
    pin::pin,
    rc::Rc,
    sync::{Arc, LazyLock},
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use bytes::Bytes;
use http_body_util::BodyExt;
use wasmkeep_actor::{Guest as _, TurnEnd};
use wasmkeep_storage::Inline;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::{
    Cut, HttpEvent, Identity, Instance, RequestBody, Runtime, RuntimeConfig, Setting, Timers, Unanswered,
    Version,
};

/// Imports and small functions that every guest here has. Results of host calls land at address 16; the heap
/// of `cabi_realloc` begins at 64 KiB and starts over with each request.
const PRELUDE: &str = r#"
  (import "wasi:http/types@0.2.12" "[constructor]fields" (func $fields (result i32)))
  (import "wasi:http/types@0.2.12" "[method]fields.append" (func $append (param i32 i32 i32 i32 i32 i32)))
  (import "wasi:http/types@0.2.12" "[method]incoming-request.headers" (func $request-headers (param i32) (result i32)))
  (import "wasi:http/types@0.2.12" "[method]fields.entries" (func $entries (param i32 i32)))
  (import "wasi:http/types@0.2.12" "[method]incoming-request.consume" (func $consume (param i32 i32)))
  (import "wasi:http/types@0.2.12" "[method]incoming-body.stream" (func $incoming-stream (param i32 i32)))
  (import "wasi:http/types@0.2.12" "[constructor]outgoing-response" (func $response (param i32) (result i32)))
  (import "wasi:http/types@0.2.12" "[method]outgoing-response.set-status-code" (func $set-status (param i32 i32) (result i32)))
  (import "wasi:http/types@0.2.12" "[method]outgoing-response.body" (func $response-body (param i32 i32)))
  (import "wasi:http/types@0.2.12" "[method]outgoing-body.write" (func $body-write (param i32 i32)))
  (import "wasi:http/types@0.2.12" "[static]outgoing-body.finish" (func $body-finish (param i32 i32 i32 i32)))
  (import "wasi:http/types@0.2.12" "[resource-drop]outgoing-body" (func $drop-body (param i32)))
  (import "wasi:http/types@0.2.12" "[static]response-outparam.set" (func $outparam-set (param i32 i32 i32 i32 i64 i32 i32 i32 i32)))
  (import "wasi:io/streams@0.2.12" "[method]output-stream.blocking-write-and-flush" (func $blocking-write (param i32 i32 i32 i32)))
  (import "wasi:io/streams@0.2.12" "[resource-drop]output-stream" (func $drop-stream (param i32)))
  (import "wasi:io/streams@0.2.12" "[method]input-stream.blocking-read" (func $blocking-read (param i32 i64 i32)))
"#;

const FUNCTIONS: &str = r#"
  (memory (export "memory") 4)
  (global $heap (mut i32) (i32.const 65536))
  (global $outparam (mut i32) (i32.const 0))
  (global $headers (mut i32) (i32.const 0))
  (func (export "cabi_realloc") (param $old i32) (param $old-size i32) (param $align i32) (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 15)) (i32.const -16)))
    (global.set $heap (i32.add (local.get $at) (local.get $size)))
    (if (i32.gt_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536)))
      (then (if (i32.eq (memory.grow (i32.add (i32.const 1) (i32.div_u (local.get $size) (i32.const 65536)))) (i32.const -1))
        (then unreachable))))
    (local.get $at))
  ;; Adds a header to the next response.
  (func $header (param $name i32) (param $name-len i32) (param $value i32) (param $value-len i32)
    (call $append (global.get $headers) (local.get $name) (local.get $name-len) (local.get $value) (local.get $value-len) (i32.const 16))
    (if (i32.load8_u (i32.const 16)) (then unreachable)))
  ;; Makes a response of the headers added so far.
  (func $make (param $status i32) (result i32)
    (local $made i32)
    (local.set $made (call $response (global.get $headers)))
    (if (call $set-status (local.get $made) (local.get $status)) (then unreachable))
    (local.get $made))
  ;; Answers with it.
  (func $set (param $response i32)
    (call $outparam-set (global.get $outparam) (i32.const 0) (local.get $response) (i32.const 0) (i64.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)))
  (func $body (param $response i32) (result i32)
    (call $response-body (local.get $response) (i32.const 16))
    (if (i32.load8_u (i32.const 16)) (then unreachable))
    (i32.load (i32.const 20)))
  (func $stream (param $body i32) (result i32)
    (call $body-write (local.get $body) (i32.const 16))
    (if (i32.load8_u (i32.const 16)) (then unreachable))
    (i32.load (i32.const 20)))
  ;; Writes at most 4096 bytes; 0 when that went well.
  (func $write (param $stream i32) (param $at i32) (param $len i32) (result i32)
    (call $blocking-write (local.get $stream) (local.get $at) (local.get $len) (i32.const 16))
    (i32.load8_u (i32.const 16)))
  ;; Ends a body; 0 when that went well.
  (func $finish (param $body i32) (result i32)
    (call $body-finish (local.get $body) (i32.const 0) (i32.const 0) (i32.const 16))
    (i32.load8_u (i32.const 16)))
  ;; A whole response.
  (func $say (param $status i32) (param $at i32) (param $len i32)
    (local $r i32) (local $b i32) (local $s i32)
    (local.set $r (call $make (local.get $status)))
    (local.set $b (call $body (local.get $r)))
    (call $set (local.get $r))
    (local.set $s (call $stream (local.get $b)))
    (drop (call $write (local.get $s) (local.get $at) (local.get $len)))
    (call $drop-stream (local.get $s))
    (drop (call $finish (local.get $b))))
  (func (export "wasi:http/incoming-handler@0.2.12#handle") (param $request i32) (param $out i32)
    (global.set $heap (i32.const 65536))
    (global.set $outparam (local.get $out))
    (global.set $headers (call $fields))
    (call $handle (local.get $request)))
"#;

/// A guest under construction.
pub(crate) struct GuestText {
    data: String,
    next: usize,
    world: String,
    imports: String,
    code: String,
}

impl GuestText {
    pub(crate) fn new() -> Self {
        Self {
            data: String::new(),
            next: 1024,
            world: "include wasmkeep:actor/imports@0.2.0; include wasmkeep:actor/request-handler@0.2.0;"
                .into(),
            imports: String::new(),
            code: String::new(),
        }
    }

    /// Keeps a text in the guest's memory; gives its address and length as two operands.
    pub(crate) fn text(&mut self, text: &str) -> String {
        let (at, len) = (self.next, text.len());
        let escaped: String = text.bytes().map(|byte| format!("\\{byte:02x}")).collect();
        self.data.push_str(&format!("(data (i32.const {at}) \"{escaped}\")\n"));
        self.next = (at + len).next_multiple_of(16);
        format!("(i32.const {at}) (i32.const {len})")
    }

    /// Adds to the world, in WIT.
    pub(crate) fn world(mut self, items: &str) -> Self {
        self.world.push_str(items);
        self
    }

    /// Takes another world instead.
    pub(crate) fn in_world(mut self, items: &str) -> Self {
        self.world = items.to_owned();
        self
    }

    pub(crate) fn import(mut self, text: &str) -> Self {
        self.imports.push_str(text);
        self
    }

    /// Adds functions.
    pub(crate) fn code(mut self, text: &str) -> Self {
        self.code.push_str(text);
        self
    }

    /// The body of the handler: `$request` is its parameter, `$a` to `$d` are locals.
    pub(crate) fn handle(self, body: &str) -> Vec<u8> {
        let handler = format!(
            "(func $handle (param $request i32) (local $a i32) (local $b i32) (local $c i32) (local $d i32)\n{body})"
        );
        self.code(&handler).build()
    }

    fn build(self) -> Vec<u8> {
        let Self { data, world, imports, code, .. } = self;
        component(&world, &format!("(module {PRELUDE} {imports} {FUNCTIONS} {data} {code})"))
    }
}

/// A component of a core module in text form, for a world of the contract's package.
pub(crate) fn component(world: &str, module: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit");
    resolve.push_dir(&wit).expect("the contract parses");
    let package = resolve
        .push_str("test.wit", &format!("package test:guest;\nworld guest {{ {world} }}"))
        .expect("the test's world parses");
    let world = resolve.select_world(&[package], Some("guest")).expect("one world");
    let mut module = wat::parse_str(module).expect("the guest's text parses");
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).expect("embeds");
    ComponentEncoder::default().module(&module).expect("encodes").validate(true).encode().expect("encodes")
}

pub(crate) const MEMORY_BYTES_MAX: usize = 8 << 20;

/// A runtime of a few slots with a code cache of its own.
pub(crate) fn runtime(folder: &Path) -> Runtime {
    let config = RuntimeConfig {
        cache_dir: folder.join("code"),
        resident_max: 8,
        memory_bytes_max: MEMORY_BYTES_MAX,
        line_numbers: false,
    };
    Runtime::new(&config).expect("a runtime")
}

fn shared_runtime() -> Runtime {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = RuntimeConfig {
        cache_dir: folder.path().join("code"),
        resident_max: 200,
        memory_bytes_max: MEMORY_BYTES_MAX,
        line_numbers: false,
    };
    // The folder goes now, and with it the cache: these tests do not look at it.
    Runtime::new(&config).expect("a runtime")
}

/// One runtime for the tests that do not look at it. Its epoch never advances: time slices have no end.
pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(shared_runtime);

/// As [`RUNTIME`], for tests that advance the epoch.
pub(crate) static TICKED: LazyLock<Runtime> = LazyLock::new(shared_runtime);

static TIMERS: LazyLock<Timers> = LazyLock::new(|| Timers::start().expect("a timer thread"));

pub(crate) fn identity() -> Identity {
    Identity {
        tenant: "acme".into(),
        class: "counter".into(),
        name: "a/b".into(),
        node: "n1".into(),
        generation: 7,
        version: "v1".into(),
    }
}

pub(crate) fn setting() -> Setting {
    Setting {
        identity: Arc::new(identity()),
        database: None,
        sockets: None,
        offload: Rc::new(Inline),
        env: Arc::default(),
        alarms: None,
        calls: None,
        timers: TIMERS.handle(),
        outbound: None,
    }
}

pub(crate) fn version(wasm: &[u8]) -> Version {
    RUNTIME.load_actor(wasm).expect("loads")
}

pub(crate) fn instance(wasm: &[u8]) -> Instance {
    block_on(version(wasm).instantiate(setting())).expect("instantiates")
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls on this thread, which has no Tokio runtime, as a shard has none.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        thread::park();
    }
}

/// A response read to its end.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) parts: http::response::Parts,
    pub(crate) body: Vec<u8>,
    /// How the body ended.
    pub(crate) end: Result<(), Cut>,
    /// Whether it came in one piece with the head.
    pub(crate) whole: bool,
}

impl Received {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}

/// Delivers one event and reads the answer as a client would.
pub(crate) async fn exchange(
    instance: &mut Instance,
    request: http::Request<RequestBody>,
) -> (TurnEnd, Result<Received, Unanswered>) {
    let (event, answer) = HttpEvent::new(request);
    let receive = async {
        let (parts, mut body) = answer.await?.into_parts();
        let whole = body.as_whole().is_some();
        let mut received = Received { parts, body: Vec::new(), end: Ok(()), whole };
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => received.body.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Err(cut) => {
                    received.end = Err(cut);
                    break;
                }
            }
        }
        Ok(received)
    };
    futures::join!(instance.deliver(event.into()), receive)
}

pub(crate) fn get(path: &str) -> http::Request<RequestBody> {
    http::Request::get(path).header("host", "actor.test").body(RequestBody::empty()).expect("a request")
}

pub(crate) fn post(path: &str, body: impl Into<Bytes>) -> http::Request<RequestBody> {
    http::Request::post(path).header("host", "actor.test").body(RequestBody::full(body)).expect("a request")
}

/// Loads, instantiates and asks once.
pub(crate) fn ask(wasm: &[u8]) -> (TurnEnd, Result<Received, Unanswered>) {
    let mut instance = instance(wasm);
    block_on(exchange(&mut instance, get("/")))
}
