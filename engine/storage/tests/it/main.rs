//! What an actor's database promises, checked through its public interface.

mod alarm;
mod bench;
mod capture;
mod dozing;
mod durable;
mod events;
mod files;
mod full_disk;
mod histories;
mod init;
mod policy;
mod preempt;
mod quota;
mod rig;
mod settings;
mod spares;
mod stack;
mod statements;
mod sums;
mod templates;
mod values;
