//! Several statements as one.

use super::{Error, exec, exec_durable};

/// Runs `body` as one transaction: everything it writes is kept if it returns `Ok`, nothing otherwise.
///
/// It is a savepoint, so transactions nest and work in [`Init`](crate::Init) as well. A statement that rolls
/// the whole transaction back (`RAISE(ROLLBACK)`, `INSERT OR ROLLBACK`) ends it: statements that `body` runs
/// after that commit by themselves, and an error is returned at the end.
///
/// # Errors
/// What `body` returned, or why it could not begin or commit.
pub fn transaction<T, E: From<Error>>(body: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    exec("SAVEPOINT wasmkeep_transaction", &[])?;
    let outcome = body().and_then(|value| {
        exec("RELEASE wasmkeep_transaction", &[])?;
        Ok(value)
    });
    if outcome.is_err() {
        // Both fail when the transaction is gone already, which is what is wanted.
        let _ = exec("ROLLBACK TO wasmkeep_transaction", &[]);
        let _ = exec("RELEASE wasmkeep_transaction", &[]);
    }
    outcome
}

/// As [`transaction`], and returns only once the commit is durable. It does not nest.
///
/// # Errors
/// As [`transaction`]; [`Error::NotDurable`] when durability was not confirmed, and the writes then stand
/// locally.
pub fn transaction_durable<T, E: From<Error>>(body: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    exec("BEGIN", &[])?;
    let outcome = body().and_then(|value| {
        exec_durable("COMMIT", &[])?;
        Ok(value)
    });
    if outcome.is_err() {
        // Fails when the transaction is gone already: rolled back by a statement, or committed.
        let _ = exec("ROLLBACK", &[]);
    }
    outcome
}
