//! Parts of the contract that are not built yet: each answers with its typed `unsupported`.

use crate::{bindings::alarms, state::ActorState};

impl alarms::Host for ActorState {
    fn set(&mut self, _: u64) -> wasmtime::Result<Result<(), alarms::Error>> {
        Ok(Err(alarms::Error::Unsupported))
    }

    fn get(&mut self) -> wasmtime::Result<Result<Option<u64>, alarms::Error>> {
        Ok(Err(alarms::Error::Unsupported))
    }

    fn clear(&mut self) -> wasmtime::Result<Result<(), alarms::Error>> {
        Ok(Err(alarms::Error::Unsupported))
    }
}
