//! Limits and timings of an actor and of the HTTP front, one constant each. Flags override the ones
//! documented as defaults.

use std::time::Duration;

/// Wall-clock limit of one event, waits in host calls included.
pub const EVENT_WALL_CLOCK: Duration = Duration::from_secs(30);

/// How long a stopping node lets events in flight finish (R-LEASE-6).
pub const STOP_GRACE: Duration = Duration::from_secs(10);

/// How long a heartbeat's write keeps a node's lease, counted from when the write began (R-LEASE-2).
pub const LEASE_TTL: Duration = Duration::from_secs(10);

/// How much longer than [`LEASE_TTL`] others leave a silent node alone (R-LEASE-4).
pub const LEASE_GRACE: Duration = Duration::from_secs(5);

/// How long before the end of its lease a node stops running events (R-LEASE-2). It covers clocks that run at
/// slightly different speeds and the time it takes to drop every actor.
pub const LEASE_SAFETY: Duration = Duration::from_secs(2);

/// Time between the beginnings of two heartbeats, and between two listings of them. At most a third of the ttl.
pub const HEARTBEAT_PERIOD: Duration = Duration::from_secs(3);

/// A heartbeat's write, or a read of one, that has no answer by then counts as unknown.
pub const HEARTBEAT_TIMEOUT: Duration = Duration::from_millis(2_700);

/// Heartbeats a node reads at the same time.
pub const HEARTBEAT_READS_MAX: usize = 16;

/// How far apart the wall clocks of two nodes may be before somebody is warned (R-LEASE-9).
pub const CLOCK_SKEW: Duration = Duration::from_secs(1);

/// How long a stopping node tries to give up its ownership records, after its events have ended. With
/// [`STOP_GRACE`] before it and the last heartbeat after it, a stop takes 29 s at most (R-LEASE-6).
pub const STOP_RELEASES: Duration = Duration::from_secs(16);

/// The requests kept for a node's actors ask for them within this time once the actors are free, each actor at a
/// moment of its own (R-WAIT-3).
pub const FAILOVER_SPREAD: Duration = Duration::from_secs(1);

/// Pause before a release of an ownership record that did not land is tried again (R-OWN-2).
pub const RELEASE_RETRY: Duration = Duration::from_secs(1);

/// How often one take of an actor is written while the record it replaces still stands; then its callers are told
/// to retry.
pub const OWNER_WRITES_MAX: u32 = 3;

/// How long a node keeps an actor that it took for a request and that is not being opened. After that it gives it up, at
/// the next look, one second later at most (R-OWN-1).
pub const CLAIM_UNUSED_MAX: Duration = Duration::from_secs(5);

/// How long a node waits for a connection to another (R-FWD-3).
pub const FORWARD_CONNECT: Duration = Duration::from_secs(5);

/// How long it waits for the answer to a forwarded request (R-FWD-3).
pub const FORWARD_ANSWER: Duration = Duration::from_secs(30);

/// Connections of a node's cluster listener (R-TLS-2), before the open-file limit lowers it. They are counted before
/// those of clients.
pub const CLUSTER_CONNECTIONS_MAX: usize = 1024;

/// How often a node says which nodes it does not use because they talk plain HTTP (R-TLS-3).
pub const UNUSED_WARNING_PERIOD: Duration = Duration::from_secs(60);

/// How long a node that failed to take an event is passed over (R-FWD-4).
pub const PEER_SKIP: Duration = Duration::from_secs(10);

/// How long a node that proved alive is not suspected again (R-WAIT-4).
pub const SUSPICION_PAUSE: Duration = Duration::from_secs(10);

/// How often the requests kept for one actor have its record read, or ask for it (R-WAIT-3).
pub const FAILOVER_ASK_PERIOD: Duration = Duration::from_secs(1);

/// Requests kept for one actor (R-WAIT-3).
pub const FAILOVER_KEPT_PER_ACTOR_MAX: usize = 64;

/// The part of the connection limit that kept requests may fill (R-WAIT-3).
pub const FAILOVER_KEPT_DIVISOR: usize = 4;

/// How often at most one node's clock is warned about (R-LEASE-9).
pub const SKEW_WARNING_PERIOD: Duration = Duration::from_secs(60);

/// Events that may wait for one actor; the next one is refused with 503 and `Retry-After: 1`.
pub const MAILBOX_EVENTS_MAX: usize = 256;

/// Wait after an alarm's first failed attempt; each later wait is twice the one before.
pub const ALARM_RETRY_FIRST: Duration = Duration::from_secs(1);

/// Longest wait between two attempts of an alarm (R-ALM-1), and between two looks at one that cannot run.
pub const ALARM_RETRY_MAX: Duration = Duration::from_secs(300);

/// Alarms of one shard that run or wait for their actors at once: a node that starts with many overdue ones still
/// answers requests.
pub const ALARMS_AT_ONCE: usize = 32;

/// Alarms one actor may have in a row as soon as each is due. Beyond them the next is taken when
/// [`ALARM_INTERVAL_MIN`] a time has passed since the first of them.
pub const ALARMS_IN_A_ROW: u32 = 100;

/// Least time between two alarms of one actor, on the average of more than [`ALARMS_IN_A_ROW`] of them: an actor that
/// sets its alarm to "now" each time takes 50 turns a second, and not its whole core.
pub const ALARM_INTERVAL_MIN: Duration = Duration::from_millis(20);

/// How long a shard sleeps at most while alarms are pending: the wall clock may have been set meanwhile.
pub const ALARM_CLOCK_CHECK: Duration = Duration::from_secs(10);

/// How often a node looks for overdue alarms in the bucket (R-ALM-1).
pub const ALARM_SWEEP_EVERY: Duration = Duration::from_secs(10);

/// Keys in a page of that listing: one page is enough while nothing is overdue.
pub const ALARM_SWEEP_PAGE_KEYS: usize = 200;

/// Keys read in one sweep at most. The next one goes on where one that had more to read stopped.
pub const ALARM_SWEEP_KEYS_MAX: usize = 2000;

/// Actors a node looks at together because of a sweep. Each may have to be restored.
pub const ALARM_SWEEP_AT_ONCE: usize = 32;

/// Between two rounds of bringing one actor's alarms in the bucket in step with its database. An actor that sets its
/// alarm anew in every event then costs two requests more a second, and not two an event.
pub const ALARM_TIDY_PAUSE: Duration = Duration::from_secs(1);

/// Actors that may wait for one another in one chain of calls, the first caller included.
pub const CALL_DEPTH_MAX: usize = 16;

/// Body of a call between actors and of its answer, in bytes.
pub const CALL_BODY_BYTES_MAX: usize = 16 << 20;

/// What a caller keeps for itself of the time left to its event: enough to take a `timed-out` and answer.
pub const CALL_TIME_KEPT: Duration = Duration::from_millis(250);

/// Idle time after which an actor dozes: it closes its database and gives back its call stack, and keeps its
/// instance. Looked for once a second.
pub const DOZE_AFTER: Duration = Duration::from_secs(2);

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

/// Request bodies up to this size, in bytes, are read before their event waits for its actor (default of
/// `--buffered-body-kib`).
pub const BUFFERED_BODY_BYTES_MAX: usize = 64 << 10;

/// Time a guest waits for the next byte of a longer body. Over it: 408, and the event's body and connection end.
pub const BODY_SILENCE_MAX: Duration = Duration::from_secs(5);

/// Time a client has to send a whole request head once it began, the same again for a body
/// that is read before its event, and an idle kept-alive connection's life.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Client connections of a node (default of `--max-connections`, R-FLAG-2).
pub const CONNECTIONS_MAX: usize = 10_000;

/// Connections of a node beyond those of clients, on which only operators' endpoints answer, one request on each.
pub const OPERATOR_CONNECTIONS_MAX: usize = 64;

/// Mebibyte, the unit the bucket's time limits count in: a second for each one begun.
pub const MIB: u64 = 1 << 20;

/// Time the first attempt of an upload, or one try of a restore read, has before its size is counted (R-REPL-2,
/// R-RST-2).
pub const ATTEMPT_BASE: Duration = Duration::from_secs(5);

/// Longest time one request to the bucket may take whatever it carries (R-REPL-2).
pub const BUCKET_REQUEST_MAX: Duration = Duration::from_secs(30);

/// Time a whole upload has before its size is counted, all attempts together (R-REPL-2).
pub const UPLOAD_BASE: Duration = Duration::from_secs(20);

/// Attempts of one upload (R-REPL-2).
pub const UPLOAD_ATTEMPTS_MAX: u32 = 3;

/// Longest attempt of a periodic snapshot, whatever its size: the actor is held meanwhile (R-REPL-3).
pub const SNAPSHOT_ATTEMPT_MAX: Duration = Duration::from_secs(10);

/// Uploads after which a snapshot is due (R-REPL-1).
pub const SNAPSHOT_UPLOADS: u64 = 64;

/// Writes between a failed periodic snapshot and the next try, by how many failed in a row; the last goes on
/// (R-REPL-3).
pub const SNAPSHOT_RETRY_WRITES: [u64; 3] = [1, 8, 64];

/// Least time between two tries of a periodic snapshot (R-REPL-3).
pub const SNAPSHOT_RETRY_PAUSE: Duration = Duration::from_secs(30);

/// Reads that all restores of a node have in flight together (R-BKT-3).
pub const RESTORE_READS_MAX: usize = 32;

/// Bytes that all restores of a node have in flight together (R-BKT-3). One larger object goes alone.
pub const RESTORE_BYTES_MAX: u64 = 256 << 20;

/// Reads that one restore has in flight or waits to have (R-RST-1).
pub const RESTORE_READS_PER_ACTOR: usize = 8;

/// Bytes that one restore reads ahead of what it applies, beside the reads it has in flight.
pub const RESTORE_AHEAD_BYTES: u64 = 4 << 20;

/// Restores of a node that check and write what they have read at once. Each takes a core while it does, from the
/// shards where there are no others; two do more than a gigabyte a second.
pub const RESTORES_APPLIED_AT_ONCE: usize = 2;

/// Bytes of whole databases that are on their way to the bucket, on a node at once: firsts of an actor and periodic
/// snapshots (R-REPL-1). One larger database goes alone.
pub const UPLOAD_BYTES_MAX: u64 = 256 << 20;

/// Passes over actors' histories that delete what is not needed any more, on a node at once (R-HIST-1).
pub const HISTORY_PASSES_MAX: usize = 4;

/// Pauses before the erasure of a deleted actor's history is tried again after an error (R-DEL-1).
pub const ERASE_PAUSES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(15), Duration::from_secs(30)];

/// Tries of one file's read in one restore (R-RST-2).
pub const RESTORE_TRIES_MAX: u32 = 3;

/// Pauses before a restore read is sent again after an error (R-RST-2).
pub const RESTORE_PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(1)];

/// Time one restore may wait for the bucket before its size and files are counted (R-RST-3).
pub const RESTORE_BASE: Duration = Duration::from_secs(30);

/// Files that add a second to a restore's time (R-RST-3).
pub const RESTORE_FILES_PER_SECOND: u64 = 8;

/// Longest time a listing goes on without a key (R-RST-3).
pub const LISTING_SILENCE: Duration = Duration::from_secs(5);

/// Time history stays in the bucket before it may be collected (default of `--history-retention-secs`, R-HIST-1).
pub const HISTORY_RETENTION: Duration = Duration::from_secs(3600);

/// What one actor's output gate holds before its next event waits, in bytes of messages and bodies. A fast actor
/// fills about a tenth of it during one slow upload.
pub const GATE_HELD_BYTES_MAX: usize = 16 << 20;

/// Answers, messages and requests one actor's output gate holds before its next event waits.
pub const GATE_HELD_MAX: usize = 8192;

/// Outbound requests one actor may have open at a time; the next one fails with `connection-limit-reached`.
pub const OUTBOUND_REQUESTS_PER_ACTOR_MAX: usize = 32;

/// Outbound requests a node may have open at a time, before the open-file limit lowers it.
pub const OUTBOUND_REQUESTS_MAX: usize = 1024;

/// Time to connect for an outbound request, name lookup and TLS included. A guest may ask for less.
pub const OUTBOUND_CONNECT: Duration = Duration::from_secs(10);

/// How long an outbound connection is kept for the next request to the same place.
pub const OUTBOUND_IDLE: Duration = Duration::from_secs(10);

/// Outbound connections kept for one place.
pub const OUTBOUND_IDLE_PER_HOST_MAX: usize = 8;

/// One WebSocket message in either direction, in bytes. A longer one from a client closes its socket with 1009;
/// an actor's is refused.
pub const SOCKET_MESSAGE_BYTES_MAX: usize = 1 << 20;

/// What may wait in the node for a WebSocket's client to read, in bytes. Four of the largest messages, so that
/// one event may send a few; a client that is further behind is closed.
pub const SOCKET_QUEUE_BYTES_MAX: usize = 4 << 20;

/// Messages of one WebSocket that the node keeps until their actor takes them, in bytes. Beyond it the socket is
/// not read.
pub const SOCKET_MAIL_BYTES_MAX: usize = 64 << 10;

/// An actor's note on one WebSocket, in bytes.
pub const SOCKET_ATTACHMENT_BYTES_MAX: usize = 16 << 10;

/// Tags of one WebSocket.
pub const SOCKET_TAGS_MAX: usize = 16;

/// One tag, in bytes.
pub const SOCKET_TAG_BYTES_MAX: usize = 128;

/// Silence of a WebSocket's client after which it is sent a ping, and after as much again is taken for lost
/// (default of `--websocket-ping-secs`). Half of the idle limit that proxies commonly have.
pub const SOCKET_PING_AFTER: Duration = Duration::from_secs(30);

/// How often a node looks whether the nodes it is connected to are still in view and trusted: what it has with one that
/// is not ends within 500 ms (R-TLS-4, R-WS-3).
pub const RELAY_LOOK_EVERY: Duration = Duration::from_millis(250);

/// How often a node looks whether actors that sleep with WebSockets were taken by another node (R-WS-2).
pub const OWNER_SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Ownership records a node reads in one such sweep, shared out among its shards: ten a second. The next sweep goes on
/// where one that had more to read stopped.
pub const OWNER_SWEEP_READS_MAX: usize = 600;

/// Time a client has to answer a close frame before its connection is dropped (R-WS-3).
pub const SOCKET_CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// Databases a shard keeps made ahead for actors that are new: enough for the requests that arrive while more are made.
pub const SPARES_PER_SHARD: usize = 8;

/// With so many left of them, more are made.
pub const SPARES_LOW: usize = 4;

/// Kinds of databases, [`SPARES_PER_SHARD`] of each, that a shard keeps made ahead with what a class's `on-init` leaves.
pub const TEMPLATES_PER_SHARD: usize = 4;

/// Instances a shard keeps made ahead for actors of one class of which several started lately.
pub const INSTANCES_AHEAD: usize = 6;

/// As [`INSTANCES_AHEAD`], of all classes together.
pub const INSTANCES_AHEAD_PER_SHARD: usize = 16;

/// With so many left of a class, more are made.
pub const INSTANCES_AHEAD_LOW: usize = 3;

/// They are let go when no actor of the class started for so long.
pub const INSTANCES_AHEAD_IDLE: Duration = Duration::from_secs(10);
