//! The broken variants: each breaks one promise on purpose, in the simulated surroundings of the shipped code,
//! and names the checkers that must notice.

macro_rules! flaws {
    ($(#[$of:meta])* $all:ident; $($(#[$doc:meta])* $flaw:ident => $name:literal, $checkers:expr;)*) => {
        $(#[$of])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $all { $($(#[$doc])* $flaw,)* }

        impl $all {
            /// Every variant.
            pub const ALL: &[Self] = &[$(Self::$flaw),*];

            /// What the command line calls it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$flaw => $name,)* }
            }

            /// The checkers one of which must notice it.
            #[must_use]
            pub const fn noticed_by(self) -> &'static [&'static str] {
                match self { $(Self::$flaw => $checkers,)* }
            }
        }
    };
}

pub(crate) use flaws;

flaws! {
    /// One way to be wrong.
    Flaw;
    /// The guest answers before it commits.
    AnswersEarly => "answers-before-commit", &["storage"];
    /// A transaction left open is committed when the event ends.
    CommitsLeftovers => "no-rollback-at-the-end", &["storage"];
    /// The record that `on-init` ran never matches.
    ForgetsInit => "init-record-lost", &["init"];
    /// `on-init` is skipped.
    SkipsInit => "init-skipped", &["init"];
    /// A failed `on-init` passes as a success.
    HidesInitFailure => "failed-init-committed", &["init"];
    /// Two actors have one file.
    SharesFile => "two-actors-on-one-file", &["storage", "init", "residency"];
    /// What is in the WAL is lost when an actor goes to rest.
    LosesWal => "data-lost-at-hibernation", &["storage", "init"];
    /// A database made ahead takes the place of one that is there.
    PlacesOver => "spare-over-a-database", &["storage", "init"];
    /// What is in the WAL is lost while an actor dozes.
    LosesWalDozing => "data-lost-while-dozing", &["storage", "init"];
    /// Two arrivals for one actor change places.
    SwapsArrivals => "reorders-arrivals", &["order"];
    /// An event runs although its client has left.
    RunsAbandoned => "runs-abandoned", &["order"];
    /// A mailbox takes more than its bound.
    OverfillsMailbox => "over-admits", &["order"];
    /// More actors stay resident than there is room for.
    OverfillsShard => "over-the-resident-cap", &["residency"];
    /// The least recently used actor is not the one that gives way.
    TouchesNobody => "evicts-the-wrong-actor", &["residency"];
    /// An event is answered twice.
    AnswersTwice => "double-answer", &["answers"];
    /// An event is dropped without an answer.
    SwallowsEvents => "event-swallowed", &["answers"];
    /// An instance keeps its database beyond its life.
    KeepsDatabase => "database-leaked", &["residency"];
    /// `delete-self` leaves the data.
    SkipsErase => "delete-forgotten", &["storage", "init"];
    /// No event is ended at its limit.
    IgnoresLimit => "no-time-limit", &["liveness", "storage"];
    /// A crash loses a commit that was acknowledged.
    LosesAcknowledged => "crash-loses-acknowledged", &["storage", "init"];
    /// A new version does not reach the actors in memory.
    RunsOldCode => "runs-old-code", &["version"];
    /// The index of alarms hears of a new time only when the event that set it has ended.
    AnnouncesLate => "alarm-index-after-the-database", &["alarms"];
    /// The index of alarms hears of a later time before the database has it.
    SettlesEarly => "alarm-index-later-than-the-database", &["alarms"];
    /// A start does not read the index of alarms.
    ForgetsAlarms => "alarm-index-not-read", &["alarms"];
    /// A start after a machine went down trusts the index of alarms.
    TrustsIndex => "alarm-index-trusted-after-a-crash", &["alarms"];
    /// A failed attempt at an alarm passes as a success.
    HidesAlarmFailure => "failed-alarm-not-retried", &["alarms"];
    /// The clock that alarms are measured by is ahead.
    FiresEarly => "alarm-before-its-time", &["alarms"];
    /// Something draws from real chance.
    UsesEntropy => "not-deterministic", &["determinism"];
}

impl Flaw {
    /// Whether it shows only when a life ends in a kill close behind a change of an alarm.
    #[must_use]
    pub const fn is_shown_by_kills(self) -> bool {
        matches!(self, Self::AnnouncesLate | Self::SettlesEarly)
    }
}
