//! The lanes, in the order in which they are served.

/// What a request is for. Earlier lanes go first, and the first never waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Heartbeats: the node lives by them.
    Lease,
    /// Owner records, and commits that an actor waits for.
    Durable,
    /// Everything else that is uploaded.
    Upload,
    /// Reads of restores.
    Restore,
    /// Listings and the collection of history.
    Housekeeping,
}

impl Lane {
    /// All of them, first to last.
    pub const ALL: [Self; 5] = [Self::Lease, Self::Durable, Self::Upload, Self::Restore, Self::Housekeeping];

    /// Its place in [`Lane::ALL`].
    pub(crate) fn index(self) -> usize {
        self as usize
    }

    /// Requests of this lane under way at once, and how many of those no other lane may take from it.
    ///
    /// A connection carries one request at a time, so these are connections. Restores have 32 (R-BKT-3). The
    /// lanes' shares add up to more than [`IN_FLIGHT_MAX`]: what one does not use another may, short of what
    /// is kept for the others.
    pub(crate) const fn share(self) -> Share {
        match self {
            Self::Lease => Share { most: usize::MAX, kept: 0 },
            Self::Durable => Share { most: 48, kept: 8 },
            Self::Upload => Share { most: 32, kept: 4 },
            Self::Restore => Share { most: 32, kept: 4 },
            Self::Housekeeping => Share { most: 4, kept: 1 },
        }
    }
}

/// How many requests a lane may have under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) most: usize,
    pub(crate) kept: usize,
}

/// Requests under way at once, those of [`Lane::Lease`] apart.
pub(crate) const IN_FLIGHT_MAX: usize = 64;
