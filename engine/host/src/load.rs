//! From the bytes of a component to a [`Version`] that instances can be made of: what it is, what it imports,
//! what it exports and whether all of that has the types of the contract.

use std::{fmt, sync::Arc};

use sha2::{Digest, Sha256};
use wasmtime::component::{
    Component, ComponentExportIndex, ComponentNamedList, InstancePre, Lift, Linker, Lower, Resource,
    types::{self, ComponentItem},
};
use wasmtime_wasi_http::p2::types::{HostIncomingRequest, HostResponseOutparam};

use crate::{
    bindings::websockets::{Acceptance, Message},
    imports::{ACTOR_INTERFACES, COMMON_INTERFACES},
    runtime::Shared,
    state::ActorState,
};

/// The contract's version. Guests of any 0.2.x are taken; WIT's rules make 0.2.x compatible upwards.
const CONTRACT: &str = "0.2";

const HANDLER: &str = "wasi:http/incoming-handler";

/// Bytes of the id of a version, as hexadecimal digits of its hash.
const ID_DIGITS: usize = 16;

/// Why a component cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// Not WebAssembly at all.
    #[error("it is not a WebAssembly component: its first bytes are not those of WebAssembly")]
    NotWasm,
    /// A core module.
    #[error(
        "it is a core WebAssembly module, not a component; build it for wasm32-wasip2, or turn it into a \
         component with `wasm-tools component new`"
    )]
    CoreModule,
    /// A component that cannot be read.
    #[error("it is not a valid component: {0}")]
    Invalid(String),
    /// It cannot take requests.
    #[error("it does not export wasi:http/incoming-handler (0.2), which every component must")]
    NoHandler,
    /// An import nothing stands behind.
    #[error("it imports {name}, which is not offered here; offered are {offered}")]
    UnknownImport {
        /// As the component has it.
        name: String,
        /// Interfaces.
        offered: String,
    },
    /// Another version of the contract.
    #[error("it was built for {name}; this node offers wasmkeep:actor {CONTRACT}")]
    ContractVersion {
        /// As the component has it.
        name: String,
    },
    /// A known import or export with types of its own.
    #[error("its {name} does not have the types of the contract: {reason}")]
    WrongType {
        /// The import or export.
        name: String,
        /// What differs.
        reason: String,
    },
    /// It needs more than an actor may have.
    #[error("it needs more than an actor may have: {0}")]
    OverLimit(String),
}

/// Which optional hooks a component exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hooks {
    /// `on-init`
    pub init: bool,
    /// `on-alarm`
    pub alarm: bool,
    /// `on-websocket-open`
    pub websocket_open: bool,
    /// `on-websocket-message`
    pub websocket_message: bool,
    /// `on-websocket-close`
    pub websocket_close: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Actor,
    Stateless,
}

pub(crate) type HandleParams = (Resource<HostIncomingRequest>, Resource<HostResponseOutparam>);
pub(crate) type InitResults = (Result<(), String>,);
pub(crate) type AlarmParams = (u64, u32);
pub(crate) type AlarmResults = (Result<(), String>,);
pub(crate) type OpenParams = (u64, String, Vec<(String, Vec<u8>)>);
pub(crate) type OpenResults = (Result<Acceptance, u16>,);
pub(crate) type MessageParams = (u64, Message);
pub(crate) type CloseParams = (u64, u16, String);

pub(crate) struct Loaded {
    pub(crate) shared: Arc<Shared>,
    pub(crate) pre: InstancePre<ActorState>,
    pub(crate) handle: ComponentExportIndex,
    pub(crate) exports: HookExports,
    id: String,
    hooks: Hooks,
}

/// Where the hooks a component has are to be found.
#[derive(Default)]
pub(crate) struct HookExports {
    pub(crate) init: Option<ComponentExportIndex>,
    pub(crate) alarm: Option<ComponentExportIndex>,
    pub(crate) websocket_open: Option<ComponentExportIndex>,
    pub(crate) websocket_message: Option<ComponentExportIndex>,
    pub(crate) websocket_close: Option<ComponentExportIndex>,
}

impl HookExports {
    /// `hooks` have passed their type checks.
    fn find(component: &Component, hooks: Hooks) -> Self {
        let find = |there: bool, name| there.then(|| component.get_export_index(None, name)).flatten();
        Self {
            init: find(hooks.init, "on-init"),
            alarm: find(hooks.alarm, "on-alarm"),
            websocket_open: find(hooks.websocket_open, "on-websocket-open"),
            websocket_message: find(hooks.websocket_message, "on-websocket-message"),
            websocket_close: find(hooks.websocket_close, "on-websocket-close"),
        }
    }
}

/// One component, compiled, checked and linked: what instances are made of. Cheap to clone.
#[derive(Clone)]
pub struct Version(pub(crate) Arc<Loaded>);

impl Version {
    /// First 16 hexadecimal digits of the SHA-256 of the component.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// The hooks it exports; none for a stateless component.
    #[must_use]
    pub fn hooks(&self) -> Hooks {
        self.0.hooks
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Version").field("id", &self.0.id).field("hooks", &self.0.hooks).finish()
    }
}

pub(crate) fn load(
    shared: &Arc<Shared>,
    linker: &Linker<ActorState>,
    kind: Kind,
    wasm: &[u8],
) -> Result<Version, LoadError> {
    check_is_component(wasm)?;
    let digest = digest(wasm);
    let component = match shared.cache.load(&shared.engine, &digest) {
        Some(component) => component,
        None => {
            let component = Component::from_binary(&shared.engine, wasm).map_err(compile_error)?;
            shared.cache.store(&component, &digest);
            component
        }
    };
    check_imports(shared, kind, &component)?;
    let pre = linker.instantiate_pre(&component).map_err(import_error)?;
    let linked = linker.substituted_component_type(&component).map_err(import_error)?;
    let handle = check_handler(shared, &component, &linked)?;
    let hooks = if kind == Kind::Actor { check_hooks(shared, &linked)? } else { Hooks::default() };
    let exports = HookExports::find(&component, hooks);
    let id = digest[..ID_DIGITS].to_owned();
    Ok(Version(Arc::new(Loaded { shared: Arc::clone(shared), pre, handle, exports, id, hooks })))
}

/// By which a component is known.
pub(crate) fn digest(wasm: &[u8]) -> String {
    hex(&Sha256::digest(wasm))
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Bytes 4 to 8 of a binary: the version, then the layer (0 for core modules, 1 for components).
fn check_is_component(wasm: &[u8]) -> Result<(), LoadError> {
    if !wasm.starts_with(b"\0asm") {
        return Err(LoadError::NotWasm);
    }
    match wasm.get(6..8) {
        Some([0, 0]) => Err(LoadError::CoreModule),
        _ => Ok(()),
    }
}

fn compile_error(error: wasmtime::Error) -> LoadError {
    let reason = one_line(&format!("{error:#}"));
    // The pool's own refusals have no type of their own; all of them name what exceeds what.
    if reason.contains("exceed") || reason.contains("limit of") {
        LoadError::OverLimit(reason)
    } else {
        LoadError::Invalid(reason)
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn check_imports(shared: &Shared, kind: Kind, component: &Component) -> Result<(), LoadError> {
    for (name, _) in component.component_type().imports(&shared.engine) {
        let (interface, version) = name.split_once('@').unwrap_or((name, ""));
        let compatible = version == CONTRACT || version.starts_with("0.2.");
        let contract = interface.starts_with("wasmkeep:actor/") && interfaces(kind).contains(&interface);
        let wasi = interface.starts_with("wasi:");
        if contract && !compatible {
            return Err(LoadError::ContractVersion { name: name.to_owned() });
        }
        let known = contract || (wasi && compatible);
        if !known {
            return Err(unknown_import(kind, name));
        }
    }
    Ok(())
}

/// What a component of this kind may import of the contract.
fn interfaces(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Actor => &ACTOR_INTERFACES,
        Kind::Stateless => &COMMON_INTERFACES,
    }
}

fn unknown_import(kind: Kind, name: &str) -> LoadError {
    let mut offered = "WASI 0.2 (cli, clocks, filesystem, http, io, random, sockets)".to_owned();
    for interface in interfaces(kind) {
        offered = format!("{offered}, {interface}");
    }
    LoadError::UnknownImport { name: name.to_owned(), offered }
}

/// What the linker found wrong with an import whose name is known.
fn import_error(error: wasmtime::Error) -> LoadError {
    let text = error.to_string();
    let name = text.split('`').nth(1).unwrap_or("import").to_owned();
    LoadError::WrongType { name: format!("import {name}"), reason: one_line(&error.root_cause().to_string()) }
}

fn check_handler(
    shared: &Shared,
    component: &Component,
    linked: &types::Component,
) -> Result<ComponentExportIndex, LoadError> {
    let name = linked
        .exports(&shared.engine)
        .map(|(name, _)| name)
        .find(|name| name.split_once('@').is_some_and(|(n, v)| n == HANDLER && v.starts_with("0.2.")))
        .ok_or(LoadError::NoHandler)?;
    let instance = component.get_export_index(None, name).ok_or(LoadError::NoHandler)?;
    let handle = component.get_export_index(Some(&instance), "handle").ok_or(LoadError::NoHandler)?;
    let item = match linked.get_export(&shared.engine, name).map(|export| export.ty) {
        Some(ComponentItem::ComponentInstance(instance)) => {
            instance.get_export(&shared.engine, "handle").map(|export| export.ty)
        }
        _ => None,
    };
    check_function::<HandleParams, ()>(linked, name, item)?;
    Ok(handle)
}

fn check_hooks(shared: &Shared, linked: &types::Component) -> Result<Hooks, LoadError> {
    let export = |name| linked.get_export(&shared.engine, name).map(|export| export.ty);
    Ok(Hooks {
        init: check_hook::<(), InitResults>(linked, "on-init", export("on-init"))?,
        alarm: check_hook::<AlarmParams, AlarmResults>(linked, "on-alarm", export("on-alarm"))?,
        websocket_open: check_hook::<OpenParams, OpenResults>(
            linked,
            "on-websocket-open",
            export("on-websocket-open"),
        )?,
        websocket_message: check_hook::<MessageParams, ()>(
            linked,
            "on-websocket-message",
            export("on-websocket-message"),
        )?,
        websocket_close: check_hook::<CloseParams, ()>(
            linked,
            "on-websocket-close",
            export("on-websocket-close"),
        )?,
    })
}

fn check_hook<P, R>(
    linked: &types::Component,
    name: &str,
    item: Option<ComponentItem>,
) -> Result<bool, LoadError>
where
    P: ComponentNamedList + Lower,
    R: ComponentNamedList + Lift,
{
    match item {
        None => Ok(false),
        item => check_function::<P, R>(linked, name, item).map(|()| true),
    }
}

fn check_function<P, R>(
    linked: &types::Component,
    name: &str,
    item: Option<ComponentItem>,
) -> Result<(), LoadError>
where
    P: ComponentNamedList + Lower,
    R: ComponentNamedList + Lift,
{
    let wrong = |reason: String| LoadError::WrongType { name: format!("export {name}"), reason };
    match item {
        Some(ComponentItem::ComponentFunc(function)) => function
            .typecheck::<P, R>(&linked.instance_type())
            .map_err(|error| wrong(one_line(&format!("{error:#}")))),
        _ => Err(wrong("it is not a function".to_owned())),
    }
}
