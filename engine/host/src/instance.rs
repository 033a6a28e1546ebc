//! A live instance: made from a [`Version`], then entered for one event after another.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use http::{HeaderValue, header};
use tokio::{runtime::Handle, sync::oneshot};
use wasmkeep_actor::{AlarmError, Failure, Guest, InitError, TurnEnd};
use wasmkeep_protocol::call_chain::CallChain;
use wasmtime::{
    Func, PoolConcurrencyLimitError, Store, UpdateDeadline,
    component::{self, TypedFunc},
};
use wasmtime_wasi_http::{WasiHttpView, p2::bindings::http::types::Scheme};

use crate::{
    ahead::Asked,
    boundary::{TrapReport, guarded, trap},
    event::{ActorEvent, HttpEvent, RequestBody, Revocation},
    headers,
    load::{HandleParams, Loaded, Version},
    runtime::Shared,
    stack,
    state::{ActorState, Setting},
    turn::{self, Reply, SliceEnded},
};

/// Epochs a guest may run before it yields to the executor: the ticker advances the epoch only while a shard is
/// busy, so one tick is the time slice.
const SLICE_EPOCHS: u64 = 1;

/// Why an instance could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InstantiateError {
    /// As many as the runtime was made for are alive.
    #[error("the node has as many live instances as it was set up for")]
    NoRoom,
    /// Its start trapped, or it needs more memory at once than an actor may have.
    #[error("{0}")]
    Failed(String),
}

/// One live instance of a component.
///
/// It is made, used and dropped on one thread.
pub struct Instance {
    pub(crate) store: Store<ActorState>,
    pub(crate) instance: component::Instance,
    pub(crate) loaded: Arc<Loaded>,
    handle: TypedFunc<HandleParams, ()>,
    pub(crate) timers: Handle,
    slice_ended: SliceEnded,
    /// Runs [`stack::mark`] on the instance's call stack.
    mark: Option<Func>,
    /// False while an event runs and after one that did not end well: wasmtime's stores must not be entered
    /// again after a trap or a dropped call.
    pub(crate) sound: bool,
    // Last, so that all else has ended before.
    ended: Ended,
}

/// What there is to do after an instance's end.
struct Ended {
    shared: Arc<Shared>,
    memory_bytes: usize,
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.ended.memory_bytes = instance_memory_bytes(self);
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.shared.giving_back.ended(self.memory_bytes);
    }
}

/// Linear memory of an instance, in bytes, as the guest sees it; pages it never touched included.
#[must_use]
pub fn instance_memory_bytes(instance: &Instance) -> usize {
    instance.store.data().limits.memory_bytes
}

impl Version {
    /// Makes an instance, running the component's start functions.
    ///
    /// # Errors
    /// [`InstantiateError`].
    pub async fn instantiate(&self, setting: Setting) -> Result<Instance, InstantiateError> {
        self.make(&setting, None).await
    }

    /// `asked`: of an instance that is nobody's.
    pub(crate) async fn make(
        &self,
        setting: &Setting,
        asked: Option<Asked>,
    ) -> Result<Instance, InstantiateError> {
        let loaded = &*self.0;
        let state = ActorState::new(setting, asked, self.hooks(), loaded.shared.memory_bytes_max);
        let mut store = Store::new(&loaded.shared.engine, state);
        store.limiter(|state| &mut state.limits);
        let slice_ended = SliceEnded::default();
        let ended = slice_ended.clone();
        store.epoch_deadline_callback(move |_| {
            ended.set();
            Ok(UpdateDeadline::Yield(SLICE_EPOCHS))
        });
        store.set_epoch_deadline(SLICE_EPOCHS);
        let timers = setting.timers.clone();
        let instance = guarded(&timers, loaded.pre.instantiate_async(&mut store))
            .await
            .map_err(|failure| InstantiateError::Failed(failure.to_string()))?
            .map_err(|error| instantiate_error(&error))?;
        let failed = |error: wasmtime::Error| InstantiateError::Failed(format!("{error:#}"));
        let handle = instance.get_typed_func(&mut store, loaded.handle).map_err(failed)?;
        let loaded = Arc::clone(&self.0);
        let ended = Ended { shared: Arc::clone(&loaded.shared), memory_bytes: 0 };
        Ok(Instance { store, instance, loaded, handle, timers, slice_ended, mark: None, sound: true, ended })
    }
}

fn instantiate_error(error: &wasmtime::Error) -> InstantiateError {
    if error.downcast_ref::<PoolConcurrencyLimitError>().is_some() {
        return InstantiateError::NoRoom;
    }
    match trap(error) {
        Failure::Trap(text) => InstantiateError::Failed(text),
        other => InstantiateError::Failed(other.to_string()),
    }
}

impl Instance {
    pub(crate) fn enter(&mut self) -> Result<(), Failure> {
        if !std::mem::replace(&mut self.sound, false) {
            return Err(Failure::Bug("the instance was entered again after it failed".to_owned()));
        }
        self.store.set_epoch_deadline(SLICE_EPOCHS);
        Ok(())
    }

    /// Puts a request into the guest's reach.
    fn admit(&mut self, request: http::Request<RequestBody>) -> wasmtime::Result<(HandleParams, Admitted)> {
        let (mut parts, body) = request.into_parts();
        headers::strip(&mut parts.headers);
        let host = parts.headers.get(header::HOST);
        if parts.uri.authority().is_none() && host.is_none_or(|host| host.to_str().is_err()) {
            // HTTP/1.0 may come without; what the guest sees as its authority must be something.
            parts.headers.insert(header::HOST, HeaderValue::from_static("localhost"));
        }
        let (body, revocation) = body.lend();
        let mut http = self.store.data_mut().http();
        let incoming = http.new_incoming_request(Scheme::Http, http::Request::from_parts(parts, body))?;
        let (sender, head) = oneshot::channel();
        let outparam = http.new_response_outparam(sender)?;
        Ok(((incoming, outparam), Admitted { head, revocation }))
    }

    /// Takes back what belongs to the event alone.
    pub(crate) fn leave(&mut self) {
        let state = self.store.data_mut();
        state.chain = CallChain::default();
        state.ends_at = None;
        state.end_outbound();
        state.log.flush();
    }
}

struct Admitted {
    head: oneshot::Receiver<
        Result<
            http::Response<wasmtime_wasi_http::p2::body::HyperOutgoingBody>,
            wasmtime_wasi_http::p2::bindings::http::types::ErrorCode,
        >,
    >,
    revocation: Revocation,
}

impl Guest for Instance {
    type Event = ActorEvent;

    fn has_init(&self) -> bool {
        self.loaded.exports.init.is_some()
    }

    async fn init(&mut self) -> Result<(), InitError> {
        self.on_init().await
    }

    fn ends_at(&mut self, moment: Duration) {
        self.store.data_mut().ends_at = Some(moment);
    }

    /// Gives back the call stack, which wasmtime keeps with each store for its next call.
    fn doze(&mut self) {
        if !self.sound {
            return;
        }
        let mark = *self.mark.get_or_insert_with(|| Func::wrap(&mut self.store, stack::mark));
        let call = pin!(mark.call_async(&mut self.store, &[], &mut []));
        match call.poll(&mut Context::from_waker(Waker::noop())) {
            // SAFETY: the call has ended, and the store runs one at a time.
            Poll::Ready(_) => unsafe { stack::give_back() },
            Poll::Pending => tracing::error!("a call that does not wait did not end"),
        }
    }

    async fn alarm(&mut self, due_ms: u64, attempt: u32) -> Result<(), AlarmError> {
        self.on_alarm(due_ms, attempt).await
    }

    async fn deliver(&mut self, event: ActorEvent) -> TurnEnd {
        match event {
            ActorEvent::Http(event) => self.on_request(event).await,
            // Whether it is due, and which attempt it is, the actor decides: it calls `alarm`.
            ActorEvent::Alarm(_) => TurnEnd::Ready,
            ActorEvent::SocketOpen(event) => self.on_socket_open(event).await,
            ActorEvent::SocketMessage(event) => self.on_socket_message(event).await,
            ActorEvent::SocketClose(event) => self.on_socket_close(event).await,
        }
    }
}

impl Instance {
    async fn on_request(&mut self, event: HttpEvent) -> TurnEnd {
        let HttpEvent { request, chain, answer, .. } = event;
        let method = request.method().clone();
        let admitted = self.enter().and_then(|()| {
            self.store.data_mut().chain = chain;
            self.admit(request).map_err(|error| Failure::Trap(format!("{error:#}")))
        });
        let (params, Admitted { head, revocation }) = match admitted {
            Ok(admitted) => admitted,
            Err(failure) => {
                answer.send(Err(crate::Unanswered::Failed(failure.clone())));
                return TurnEnd::Poisoned(failure);
            }
        };
        let log = self.store.data().log.clone();
        let on_trap = |error: &wasmtime::Error| log.failure("trapped", &TrapReport(error));
        let reply = Reply::new(answer, &method, head);
        let call = self.handle.call_async(&mut self.store, params);
        let ended = turn::run(&self.timers, call, &self.slice_ended, reply, on_trap).await;
        drop(revocation);
        self.leave();
        self.sound = ended == TurnEnd::Ready;
        ended
    }
}
