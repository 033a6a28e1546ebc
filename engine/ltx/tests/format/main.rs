//! The format as others see it: golden files, round trips, hostile input, application and merging.

mod applying;
mod counting_allocator;
mod forging;
mod golden;
mod histories;
mod hostile;
mod merging;
mod round_trip;
