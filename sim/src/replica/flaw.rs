//! The broken variants of this world: each breaks one promise on purpose, in the surroundings of the shipped code,
//! and names the checkers that must notice.

use crate::flaw::flaws;

flaws! {
    /// One way for replication to be wrong.
    ReplicaFlaw;
    /// A durable write is acknowledged before it is in the bucket.
    AcksEarly => "acks-before-the-bucket", &["durable"];
    /// An owner that lost its lease goes on acknowledging.
    IgnoresLostHold => "acks-without-a-lease", &["durable"];
    /// The bucket says that it wrote and did not.
    LosesWrites => "bucket-loses-writes", &["durable", "restores", "pages"];
    /// A listing leaves its last key out.
    ShortListings => "listing-one-short", &["durable", "restores", "pages"];
    /// A listing shows what the bucket held some time ago.
    StaleListings => "listing-from-the-past", &["durable", "restores", "pages"];
    /// The local file is believed without a look at the bucket.
    TrustsLocalFiles => "local-file-believed", &["durable", "pages", "transactions"];
    /// Two holds have one generation.
    RepeatsGenerations => "generation-used-twice", &["durable", "restores", "pages", "transactions"];
    /// Collection takes the snapshot that restores begin with.
    CollectsTheBase => "collects-the-base", &["restores", "durable"];
    /// Collection goes by another retention than the one set.
    ForgetsRetention => "retention-ignored", &["collection"];
    /// A bit of an object flips while it is stored.
    FlipsBits => "bit-flips-in-the-bucket", &["restores"];
    /// Each restore has a budget of its own.
    SplitsBudget => "budget-not-shared", &["budget"];
    /// An owner counts its transactions anew.
    CountsAnew => "transactions-counted-anew", &["transactions", "restores", "durable", "pages"];
    /// Something draws from real chance.
    UsesEntropy => "replica-not-deterministic", &["determinism"];
}
