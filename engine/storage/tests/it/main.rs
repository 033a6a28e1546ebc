//! What an actor's database promises, checked through its public interface.

mod bench;
mod capture;
mod durable;
mod events;
mod files;
mod init;
mod policy;
mod preempt;
mod quota;
mod rig;
mod settings;
mod stack;
mod statements;
mod values;
