//! Parts of the contract that are not built yet: each answers with its typed `unsupported`.

use crate::{
    bindings::{alarms, websockets},
    state::ActorState,
};

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

impl websockets::Host for ActorState {
    fn connections(
        &mut self,
        _: Option<String>,
    ) -> wasmtime::Result<Result<Vec<websockets::Connection>, websockets::Error>> {
        Ok(Err(websockets::Error::Unsupported))
    }

    fn send(&mut self, _: u64, _: websockets::Message) -> wasmtime::Result<Result<(), websockets::Error>> {
        Ok(Err(websockets::Error::Unsupported))
    }

    fn broadcast(
        &mut self,
        _: Option<String>,
        _: websockets::Message,
    ) -> wasmtime::Result<Result<u32, websockets::Error>> {
        Ok(Err(websockets::Error::Unsupported))
    }

    fn set_attachment(&mut self, _: u64, _: Vec<u8>) -> wasmtime::Result<Result<(), websockets::Error>> {
        Ok(Err(websockets::Error::Unsupported))
    }

    fn close(&mut self, _: u64, _: u16, _: String) -> wasmtime::Result<Result<(), websockets::Error>> {
        Ok(Err(websockets::Error::Unsupported))
    }
}
