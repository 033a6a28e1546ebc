//! What replication promises, one checker a file. A checker sees every record and nothing else.

mod budget;
mod collection;
mod durable;
mod liveness;
mod pages;
mod restores;
mod transactions;

use super::record::Record;

/// What checkers know of the run beside the records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// History younger than this stays.
    pub(crate) retention_ms: u64,
}

/// Watches one promise.
pub(crate) trait Checker {
    /// What reports call it.
    fn name(&self) -> &'static str;

    /// Takes the next record.
    ///
    /// # Errors
    /// How the promise was broken.
    fn see(&mut self, record: &Record) -> Result<(), String>;
}

pub(crate) fn all(rules: Rules) -> Vec<Box<dyn Checker>> {
    vec![
        Box::new(durable::Durable::default()),
        Box::new(pages::Pages::default()),
        Box::new(transactions::Transactions::default()),
        Box::new(restores::Restores),
        Box::new(collection::Collection::new(rules)),
        Box::new(budget::Budget),
        Box::new(liveness::Liveness::default()),
    ]
}
