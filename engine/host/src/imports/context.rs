//! `wasmkeep:actor/context`.

use crate::{
    bindings::context::{Host, Identity},
    state::ActorState,
};

impl Host for ActorState {
    fn self_(&mut self) -> wasmtime::Result<Identity> {
        self.note_asked();
        let identity = &self.identity;
        Ok(Identity {
            tenant: identity.tenant.clone(),
            class: identity.class.clone(),
            name: identity.name.clone(),
            node: identity.node.clone(),
            generation: identity.generation,
            version: identity.version.clone(),
        })
    }

    fn caller(&mut self) -> wasmtime::Result<Option<(String, String)>> {
        self.note_asked();
        Ok(self.chain.caller().map(|caller| (caller.class.to_string(), caller.name.to_string())))
    }
}
