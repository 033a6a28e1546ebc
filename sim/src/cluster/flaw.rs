//! The broken variants of a cluster: each breaks one rule on purpose, around the shipped code and never in it, and
//! names the checkers that must notice.

use super::faults::Fault;

macro_rules! flaws {
    ($($(#[$doc:meta])* $flaw:ident => $name:literal, $checkers:expr;)*) => {
        /// One way to be wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Flaw { $($(#[$doc])* $flaw,)* }

        impl Flaw {
            /// Every variant.
            pub const ALL: &[Self] = &[$(Self::$flaw),*];

            /// What the command line calls it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$flaw => $name,)* }
            }

            /// The trouble that brings it out, if it takes a certain one.
            #[must_use]
            pub(super) const fn provoked_by(self) -> Option<Fault> {
                match self {
                    Self::FencesAfterOutage | Self::StaysDown => Some(Fault::Outage),
                    Self::SleepUncounted => Some(Fault::Sleep),
                    Self::NoStartCheck => Some(Fault::Rival),
                    Self::DeletedFrees => Some(Fault::DeleteHeartbeat),
                    Self::FenceFreesAtOnce | Self::TrustsFenced => Some(Fault::OperatorFence),
                    Self::ReleasesEarly | Self::StopsNever => Some(Fault::Stop),
                    Self::SendsAgain => Some(Fault::CutPeers),
                    Self::BelievesSilence | Self::WaitsTooLong | Self::SwallowsEnds => {
                        Some(Fault::CutBucket)
                    },
                    Self::AcksWithoutLease => Some(Fault::Pause),
                    _ => None,
                }
            }

            /// The checkers one of which must notice it.
            #[must_use]
            pub const fn noticed_by(self) -> &'static [&'static str] {
                match self { $(Self::$flaw => $checkers,)* }
            }
        }
    };
}

flaws! {
    /// The clock leases are judged by stands still while a machine sleeps (case L6).
    SleepUncounted => "clock-stands-still-in-sleep", &["single-owner", "trust"];
    /// A node goes on when its lease runs out.
    IgnoresLapse => "lapse-ignored", &["held", "single-owner", "liveness"];
    /// A heartbeat without an answer counts as written.
    BelievesSilence => "silence-taken-for-success", &["single-owner"];
    /// A take whose condition failed counts as written (case L5).
    BelievesRefusal => "failed-condition-taken-for-success", &["single-owner", "generations", "held"];
    /// The bucket ignores conditions on ownership records (case S3).
    OwnersUnconditional => "owner-conditions-ignored", &["single-owner", "generations", "held"];
    /// The bucket ignores conditions on heartbeats (case S3).
    HeartbeatsUnconditional => "heartbeat-conditions-ignored", &["fences", "single-owner"];
    /// A fence is written over whatever stands there.
    FencesBlindly => "fence-without-condition", &["fences"];
    /// A fence is as long as what it replaces.
    FenceKeepsLength => "fence-keeps-the-length", &["takeover", "trust"];
    /// Nodes fence without the grace.
    NoGrace => "fence-without-grace", &["fences"];
    /// A node that regained the bucket fences at once whoever was cut off with it (case L9).
    FencesAfterOutage => "fence-right-after-an-outage", &["outages"];
    /// Nobody is ever fenced.
    NeverFences => "never-fences", &["takeover"];
    /// A start does not wait for the previous process.
    NoStartCheck => "start-check-skipped", &["single-owner", "durable"];
    /// A deleted heartbeat counts as a release (R-LEASE-7).
    DeletedFrees => "deleted-heartbeat-frees", &["single-owner", "held"];
    /// An operator's fence counts as if somebody had watched the node for long enough.
    FenceFreesAtOnce => "operators-fence-frees-at-once", &["single-owner", "held", "fences"];
    /// A stopping node gives its actors up while events still run.
    ReleasesEarly => "released-while-events-run", &["single-owner", "held", "durable"];
    /// A stop that has hung for too long is not ended.
    StopsNever => "stop-without-an-end", &["stops"];
    /// A node whose lease ran out once takes no request any more.
    StaysDown => "no-service-after-a-lapse", &["liveness"];
    /// A take does not raise the generation.
    ReusesGeneration => "generation-reused", &["generations"];
    /// A request with a body is kept like one without.
    KeepsBodies => "requests-with-bodies-kept", &["waits"];
    /// A request is kept for longer than it may be.
    WaitsTooLong => "kept-for-too-long", &["waits"];
    /// A kept request runs although its client left.
    RunsAbandoned => "abandoned-request-run", &["waits"];
    /// The end of a wait is not told.
    SwallowsEnds => "wait-without-an-answer", &["answers"];
    /// A request that may have been written is sent again.
    SendsAgain => "sent-again-after-a-loss", &["answers"];
    /// A durable write is acknowledged before it is in the bucket.
    AcksEarly => "acknowledged-before-the-bucket", &["durable", "linearizability", "alarms"];
    /// Uploads that land after the lease ran out are acknowledged.
    AcksWithoutLease => "acknowledged-without-a-lease", &["durable", "linearizability", "alarms"];
    /// The local file is believed without a look at the bucket.
    TrustsDisk => "own-disk-believed", &["durable", "linearizability", "alarm-index"];
    /// An actor is given up before the last of it is in the bucket.
    ClosesEarly => "closed-before-the-last-upload", &["durable"];
    /// A durable write is carried out once more.
    WritesTwice => "durable-write-repeated", &["durable", "linearizability"];
    /// Reads are answered from the disk of whichever node is asked.
    ReadsAnywhere => "reads-from-any-disk", &["linearizability"];
    /// A certificate is trusted as long as it stands in a heartbeat, whatever the heartbeat says (R-TLS-4).
    TrustsFenced => "fenced-peer-trusted", &["trust"];
    /// The bucket is told of no alarm.
    AlarmsUnannounced => "alarms-not-in-the-bucket", &["alarms", "alarm-index"];
    /// It is told of an alarm when the actor is closed.
    AlarmsListedLate => "alarms-listed-after-their-commit", &["alarm-index", "alarms"];
    /// An entry is deleted before the commit that makes it needless is in the bucket.
    AlarmsDeletedEarly => "alarms-deleted-before-their-commit", &["alarm-index", "alarms"];
    /// An alarm that the bucket lists fires, whatever the actor's database says.
    TrustsEntries => "alarms-fired-on-the-index-alone", &["alarms"];
    /// Nobody looks for overdue alarms in the bucket.
    NeverSweeps => "never-sweeps", &["alarms"];
    /// A deletion is carried out on the disk and not told to the bucket.
    DeletesHereAlone => "deletion-not-in-the-bucket", &["deletions"];
    /// Something draws from real chance.
    UsesEntropy => "cluster-not-deterministic", &["determinism"];
}
