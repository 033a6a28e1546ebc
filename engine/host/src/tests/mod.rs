//! Whole components through the public interface.

mod ahead;
mod alarms;
mod answers;
mod calls;
mod code_cache;
mod database;
mod footprint;
mod hooks;
mod init;
mod kit;
mod limits;
mod loading;
mod requests;
mod samples;
mod wasi;
