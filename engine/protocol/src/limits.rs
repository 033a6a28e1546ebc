//! Limits and timings of an actor and of the HTTP front, one constant each. Flags override the ones
//! documented as defaults.

use std::time::Duration;

/// Wall-clock limit of one event, waits in host calls included.
pub const EVENT_WALL_CLOCK: Duration = Duration::from_secs(30);

/// How long a stopping node lets events in flight finish (R-LEASE-6).
pub const STOP_GRACE: Duration = Duration::from_secs(10);

/// Events that may wait for one actor; the next one is refused with 503 and `Retry-After: 1`.
pub const MAILBOX_EVENTS_MAX: usize = 256;

/// Idle time after which an actor hibernates (default of `--hibernate-after-secs`).
pub const HIBERNATE_AFTER: Duration = Duration::from_secs(10);

/// Resident actors of a node (default of `--max-resident`); beyond it the least recently used hibernates.
pub const RESIDENT_MAX: usize = 10_000;

/// Linear memory of one actor, in bytes (default of `--actor-memory-mib`).
pub const ACTOR_MEMORY_BYTES: usize = 128 << 20;

/// Size of one actor's database, in bytes (default of `--actor-storage-mib`).
pub const ACTOR_STORAGE_BYTES: u64 = 1 << 30;

/// Page size of every actor's database, in bytes.
pub const PAGE_BYTES: u32 = 4096;

/// Request head: request line and headers together, in bytes. Over it: 431.
pub const HEAD_BYTES_MAX: usize = 64 << 10;

/// Headers in one request. Over it: 431.
pub const HEADERS_MAX: usize = 100;

/// Request body, in bytes. Over it: 413.
pub const BODY_BYTES_MAX: u64 = 100 << 20;

/// Time a client has to send a whole request head once it began, and an idle kept-alive connection's life.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Client connections of a node (default of `--max-connections`, R-FLAG-2).
pub const CONNECTIONS_MAX: usize = 10_000;
