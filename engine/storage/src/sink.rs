//! Where commits become durable when that is not this machine's disk.

use std::{future::Future, pin::Pin};

use crate::{Database, Error};

/// Takes commits to where they outlive this machine.
pub trait CommitSink {
    /// Returns once everything `database` has committed is durable there (R-DUR-1).
    ///
    /// # Errors
    /// [`Error::NotDurable`]: it may or may not be.
    fn flush<'a>(&'a self, database: &'a Database) -> Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>>;
}
