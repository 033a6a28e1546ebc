//! What replication promises, over a bucket whose faults are scripted and with a clock that jumps.

mod alarms;
mod collecting;
mod restores;
mod rig;
mod scripted;
mod session;
mod sharing;
mod uploads;
