//! Calls to other actors, up to whoever carries them.

use std::{cell::RefCell, future::Future, pin::Pin, rc::Rc, time::Duration};

use bytes::Bytes;
use serde_json::{Value, json};
use wasmkeep_actor::{Guest as _, TurnEnd};
use wasmkeep_protocol::{ActorId, call_chain::CallChain, limits::CALL_DEPTH_MAX};

use super::{
    kit::{self, RUNTIME, block_on, get},
    samples::sample,
};
use crate::{ActorEvent, Call, CallError, CallOutcome, Calls, HttpEvent, Instance, Setting, Unanswered};

const ENDS_AT: Duration = Duration::from_secs(40);

/// Keeps each call and answers as told.
#[derive(Default)]
struct Recorder {
    calls: RefCell<Vec<Call>>,
    outcomes: RefCell<Vec<CallOutcome>>,
}

impl Calls for Recorder {
    fn call(&self, call: Call) -> Pin<Box<dyn Future<Output = CallOutcome>>> {
        self.calls.borrow_mut().push(call);
        let outcome = self.outcomes.borrow_mut().pop();
        Box::pin(async move { outcome.unwrap_or_else(|| Ok(http::Response::new(Bytes::new()))) })
    }
}

fn id(class: &str, name: &str) -> ActorId {
    ActorId { class: class.parse().unwrap(), name: name.parse().unwrap() }
}

/// The sql sample as the actor `counter/a/b`, with its calls recorded.
fn caller() -> (Instance, Rc<Recorder>) {
    let recorder = Rc::new(Recorder::default());
    let setting = Setting { calls: Some(Rc::clone(&recorder) as Rc<dyn Calls>), ..kit::setting() };
    let version = RUNTIME.load_actor(&sample("sql")).unwrap();
    (block_on(version.instantiate(setting)).unwrap(), recorder)
}

/// Has it make one call, its own event having come with `chain`; what the guest was told.
fn make(instance: &mut Instance, chain: CallChain, query: &str) -> Value {
    let (event, answer) = HttpEvent::new(get(&format!("/call?{query}")));
    instance.ends_at(ENDS_AT);
    let event = ActorEvent::from(event.called(chain, ENDS_AT));
    let (end, answer) = block_on(async { futures::join!(instance.deliver(event), answer) });
    assert_eq!(end, TurnEnd::Ready);
    serde_json::from_slice(answer.unwrap().body().as_whole().unwrap()).unwrap()
}

#[test]
fn a_call_goes_out_with_its_request_its_chain_and_its_time() {
    // R-CALL-2
    let (mut instance, recorder) = caller();
    let mut answered = http::Response::new(Bytes::from_static(b"no"));
    *answered.status_mut() = http::StatusCode::CONFLICT;
    recorder.outcomes.borrow_mut().push(Ok(answered));
    let chain = CallChain::new(vec![id("room", "lobby")]);
    let outcome = make(
        &mut instance,
        chain,
        "class=sql&name=x%2Fy&path=%2Fa%3Fb&method=PUT&bytes=3&header=x-wasmkeep-caller:forged",
    );
    assert_eq!(outcome, json!({ "ok": { "status": 409, "bytes": 2, "text": "no" } }));
    let call = recorder.calls.borrow_mut().pop().unwrap();
    assert_eq!(call.callee, id("sql", "x/y"));
    assert_eq!(call.chain.waiting(), [id("room", "lobby"), id("counter", "a/b")]);
    assert_eq!(call.caller_ends_at, ENDS_AT);
    assert_eq!((call.request.method().as_str(), call.request.uri().to_string()), ("PUT", "/a?b".to_owned()));
    assert_eq!(call.request.body(), "xxx");
    let headers: Vec<_> = call.request.headers().iter().collect();
    assert_eq!(headers, [(&http::header::CONTENT_LENGTH, &http::HeaderValue::from_static("3"))]);
}

#[test]
fn whoever_waits_is_refused_as_reentrant() {
    // R-CALL-2
    let (mut instance, recorder) = caller();
    let chain = || CallChain::new(vec![id("room", "lobby"), id("room", "hall")]);
    for query in ["class=counter&name=a%2Fb", "class=room&name=lobby", "class=room&name=hall"] {
        let outcome = make(&mut instance, chain(), query);
        assert_eq!(outcome, json!({ "error": "Error::Reentrant" }), "{query}");
    }
    assert!(recorder.calls.borrow().is_empty());
    make(&mut instance, chain(), "class=room&name=garden");
    assert_eq!(recorder.calls.borrow().len(), 1);
}

#[test]
fn what_cannot_be_sent_is_refused_with_a_reason() {
    let (mut instance, recorder) = caller();
    let long = format!("class=sql&name=b&headers=100&header=a:{}", "x".repeat(700));
    for (query, reason) in [
        ("class=Sql&name=b", "the class cannot be used"),
        ("class=sql&name=", "the actor name cannot be used"),
        ("class=sql&name=b&path=x", "must begin with '/'"),
        ("class=sql&name=b&path=%2F%23x", "have no '#'"),
        ("class=sql&name=b&method=A%20B", "no HTTP method"),
        ("class=sql&name=b&header=a%20b:c", "not the name of a header"),
        ("class=sql&name=b&header=a:b%0Ac", "is not allowed"),
        ("class=sql&name=b&headers=101", "more than 100 headers"),
        (&long, "longer than 65536 bytes"),
    ] {
        let outcome = make(&mut instance, CallChain::default(), query);
        let error = outcome["error"].as_str().unwrap_or_default();
        assert!(error.starts_with("Error::Refused") && error.contains(reason), "{outcome}");
    }
    let deep = CallChain::new((0..CALL_DEPTH_MAX).map(|n| id("deep", &n.to_string())).collect());
    let outcome = make(&mut instance, deep, "class=sql&name=b");
    assert!(outcome["error"].as_str().unwrap().contains("16 deep"), "{outcome}");
    assert!(recorder.calls.borrow().is_empty());
}

#[test]
fn each_way_a_call_can_end_has_its_own_error() {
    let (mut instance, recorder) = caller();
    for (error, told) in [
        (CallError::NoSuchClass, "Error::NoSuchClass"),
        (CallError::Overloaded, "Error::Overloaded"),
        (CallError::TimedOut, "Error::TimedOut"),
        (CallError::Unknown("u".into()), "Error::Unknown(\"u\")"),
        (CallError::Failed("f".into()), "Error::Failed(\"f\")"),
    ] {
        recorder.outcomes.borrow_mut().push(Err(error));
        let outcome = make(&mut instance, CallChain::default(), "class=sql&name=b");
        assert_eq!(outcome, json!({ "error": told }));
    }
}

/// Never answers, and notes that it was dropped.
struct Silent(Rc<RefCell<bool>>);

impl Calls for Silent {
    fn call(&self, _: Call) -> Pin<Box<dyn Future<Output = CallOutcome>>> {
        struct Noted(Rc<RefCell<bool>>);
        impl Drop for Noted {
            fn drop(&mut self) {
                *self.0.borrow_mut() = true;
            }
        }
        let noted = Noted(Rc::clone(&self.0));
        Box::pin(async move {
            let _noted = noted;
            std::future::pending().await
        })
    }
}

#[test]
fn an_event_that_ends_gives_its_call_up() {
    let dropped = Rc::new(RefCell::new(false));
    let setting = Setting { calls: Some(Rc::new(Silent(Rc::clone(&dropped)))), ..kit::setting() };
    let version = RUNTIME.load_actor(&sample("sql")).unwrap();
    let mut instance = block_on(version.instantiate(setting)).unwrap();
    let (event, answer) = HttpEvent::new(get("/call?class=sql&name=b"));
    instance.ends_at(ENDS_AT);
    {
        let mut turn = std::pin::pin!(instance.deliver(event.into()));
        assert!(block_on(async { futures::poll!(turn.as_mut()) }).is_pending());
        assert!(!*dropped.borrow());
    }
    assert!(*dropped.borrow());
    assert!(matches!(block_on(answer), Err(Unanswered::Dropped)));
}
