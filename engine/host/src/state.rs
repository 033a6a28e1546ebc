//! What one live instance carries beside its memory: who it is, its database, WASI's state and its limits.

use std::{rc::Rc, sync::Arc, time::Duration};

use send_wrapper::SendWrapper;
use wasmkeep_actor::alarm::Book;
use wasmkeep_protocol::{ActorId, call_chain::CallChain};
use wasmkeep_storage::{Database, Offload};
use wasmtime::{ResourceLimiter, component::ResourceTable};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{
    Error as WasiError, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks, WasiHttpView,
};

use crate::{
    ahead::Asked,
    calls::Calls,
    load::Hooks,
    log::{ActorLog, Stream},
    moment,
    outbound::{self, EventSpan, Outbound, Sent},
    sockets::Sockets,
};

/// Host resources (streams, header lists, pollables, cursors) an instance may hold at once; over it, the next
/// one traps. What they hold is host memory, 128 MiB at worst (so many full header lists), so a guest that leaks
/// them must meet a limit before the node does; an ordinary event holds about ten.
const RESOURCES_MAX: usize = 1024;

/// Bytes of one header list, counted as in memory (name, value and about 40 bytes each). Twice the limit of a
/// request head as it is on the wire, so that any request a client may send can be seen.
pub(crate) const FIELDS_BYTES_MAX: usize = 2 * wasmkeep_protocol::limits::HEAD_BYTES_MAX;

/// Bytes of randomness in one call; over it, a trap. They are made in host memory before the guest has them.
const RANDOM_BYTES_MAX: u64 = 1 << 20;

/// Elements of one table. The largest toolchain output seen (a Python interpreter) needs about 30,000.
pub(crate) const TABLE_ELEMENTS_MAX: usize = 100_000;

/// Who an actor is, as `context.self` tells it and as its log lines are marked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Whose app it belongs to.
    pub tenant: String,
    /// Its class; empty for the stateless component, which is no actor.
    pub class: String,
    /// Its name, percent-decoded.
    pub name: String,
    /// The node it runs on.
    pub node: String,
    /// Of the node's hold on it; 0 on a node without a bucket.
    pub generation: u64,
    /// Of the code it runs.
    pub version: String,
}

impl Identity {
    /// Its class and name; none for the stateless component.
    pub(crate) fn actor_id(&self) -> Option<ActorId> {
        Some(ActorId { class: self.class.parse().ok()?, name: self.name.parse().ok()? })
    }
}

/// What an instance is made with.
#[derive(Clone)]
pub struct Setting {
    /// Who it is.
    pub identity: Arc<Identity>,
    /// Its database; `None` for the stateless component.
    pub database: Option<Rc<Database>>,
    /// Its WebSockets; `None` where there are none to be had.
    pub sockets: Option<Rc<dyn Sockets>>,
    /// Where fsync and other blocking work of its database goes.
    pub offload: Rc<dyn Offload>,
    /// Environment variables, shared by the class.
    pub env: Arc<Vec<(String, String)>>,
    /// Where its alarm is announced; without it alarms are unsupported.
    pub alarms: Option<Rc<Book>>,
    /// What carries its calls to other actors; without it they are unsupported.
    pub calls: Option<Rc<dyn Calls>>,
    /// See [`crate::Timers::handle`].
    pub timers: tokio::runtime::Handle,
    /// What carries its outbound requests; without it they are denied.
    pub outbound: Option<Arc<dyn Outbound>>,
}

/// The data of an instance's wasmtime store.
///
/// wasmtime asks for `Send` data although a store never leaves its thread here; what is not `Send` is wrapped,
/// and the wrapper panics if that promise were ever broken.
pub(crate) struct ActorState {
    pub(crate) identity: Arc<Identity>,
    pub(crate) env: Arc<Vec<(String, String)>>,
    pub(crate) database: Option<SendWrapper<Rc<Database>>>,
    pub(crate) sockets: Option<SendWrapper<Rc<dyn Sockets>>>,
    pub(crate) offload: SendWrapper<Rc<dyn Offload>>,
    pub(crate) alarms: Option<SendWrapper<Rc<Book>>>,
    pub(crate) has_on_alarm: bool,
    pub(crate) calls: Option<SendWrapper<Rc<dyn Calls>>>,
    /// Who waits for the event that runs.
    pub(crate) chain: CallChain,
    /// When the event that runs is ended; none in `on-init`.
    pub(crate) ends_at: Option<Duration>,
    pub(crate) log: Arc<ActorLog>,
    /// Of an instance that is nobody's.
    asked: Option<Asked>,
    pub(crate) limits: Limits,
    pub(crate) table: ResourceTable,
    wasi: WasiCtx,
    http: WasiHttpCtx,
    pub(crate) hooks: HttpHooks,
}

impl ActorState {
    /// What belongs to an actor stays out while the instance is nobody's (`asked`).
    pub(crate) fn new(
        setting: &Setting,
        asked: Option<Asked>,
        hooks: Hooks,
        memory_bytes_max: usize,
    ) -> Self {
        let log = ActorLog::new(Arc::clone(&setting.identity), asked.clone());
        let mut wasi = WasiCtx::builder();
        wasi.stdout(log.stream(Stream::Out))
            .stderr(log.stream(Stream::Err))
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false)
            .max_random_size(RANDOM_BYTES_MAX);
        if let Some(asked) = asked.as_ref().filter(|asked| asked.minds_moment()) {
            moment::watch(&mut wasi, asked);
        }
        let wasi = wasi.build();
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(FIELDS_BYTES_MAX);
        let mut table = ResourceTable::new();
        table.set_max_capacity(RESOURCES_MAX);
        let is_claimed = asked.is_none();
        let mut state = Self {
            identity: Arc::clone(&setting.identity),
            env: Arc::clone(&setting.env),
            database: None,
            sockets: None,
            offload: SendWrapper::new(Rc::clone(&setting.offload)),
            alarms: None,
            has_on_alarm: hooks.alarm,
            calls: None,
            chain: CallChain::default(),
            ends_at: None,
            log,
            asked: asked.clone(),
            limits: Limits { memory_bytes: 0, memory_bytes_max },
            table,
            wasi,
            http,
            hooks: HttpHooks { outbound: None, span: EventSpan::default(), asked },
        };
        if is_claimed {
            state.claim(setting);
        }
        state
    }

    /// For an `on-init` that is nobody's: a database of its own.
    pub(crate) fn lend(&mut self, database: &Rc<Database>) {
        self.database = Some(SendWrapper::new(Rc::clone(database)));
    }

    /// It is the actor's of `setting` from now on.
    pub(crate) fn claim(&mut self, setting: &Setting) {
        self.identity = Arc::clone(&setting.identity);
        self.database = setting.database.clone().map(SendWrapper::new);
        self.sockets = setting.sockets.clone().map(SendWrapper::new);
        self.alarms = setting.alarms.clone().map(SendWrapper::new);
        self.calls = setting.calls.clone().map(SendWrapper::new);
        self.hooks.outbound = setting.outbound.clone();
        (self.asked, self.hooks.asked) = (None, None);
        self.log.claim(&setting.identity);
    }

    /// The guest asks for what only an actor has.
    pub(crate) fn note_asked(&self) {
        if let Some(asked) = &self.asked {
            asked.note();
        }
    }

    /// Ends the outbound requests that the event has under way.
    pub(crate) fn end_outbound(&mut self) {
        self.hooks.span.end();
    }
}

impl WasiView for ActorState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for ActorState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { hooks: &mut self.hooks, table: &mut self.table, ctx: &mut self.http }
    }
}

/// How much an instance may hold in linear memories and tables.
pub(crate) struct Limits {
    /// All linear memories together, in bytes.
    pub(crate) memory_bytes: usize,
    memory_bytes_max: usize,
}

impl ResourceLimiter for Limits {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let others = self.memory_bytes.saturating_sub(current);
        let total = others.saturating_add(desired);
        let allowed = total <= self.memory_bytes_max;
        if allowed {
            self.memory_bytes = total;
        }
        Ok(allowed)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= TABLE_ELEMENTS_MAX)
    }
}

/// What differs from WASI's defaults for HTTP.
pub(crate) struct HttpHooks {
    outbound: Option<Arc<dyn Outbound>>,
    span: EventSpan,
    /// Of an instance that is nobody's.
    asked: Option<Asked>,
}

impl WasiHttpHooks for HttpHooks {
    /// Only `host`, which `incoming-request.authority` tells and `outgoing-request.set-authority` says. What else
    /// must not pass is removed from messages on their way, so that a guest that copies headers from one to the
    /// other is not punished for it.
    fn is_forbidden_header(&mut self, name: &http::HeaderName) -> bool {
        name == http::header::HOST
    }

    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Sent<()>,
    ) -> Sent<(http::Response<WasiBody>, Sent<()>)> {
        if let Some(asked) = &self.asked {
            asked.note();
        }
        match &self.outbound {
            Some(outbound) => {
                outbound::send(&**outbound, &mut self.span, request, options.unwrap_or_default())
            }
            None => Box::new(std::future::ready(Err(WasiError::HttpRequestDenied))),
        }
    }
}
