//! Rows of one statement, a batch at a time, for results that are too large to hold.

use std::marker::PhantomData;

use super::{Error, FromRow, Value, host};

/// Rows fetched from the host at once.
const BATCH_ROWS: u32 = 256;

/// The rows of a statement, fetched as they are asked for. It must not be kept beyond the event.
pub struct Cursor<T> {
    inner: host::Cursor,
    batch: std::vec::IntoIter<Vec<Value>>,
    ended: bool,
    rows: PhantomData<T>,
}

/// Starts a statement that reads.
///
/// # Errors
/// As [`exec`](super::exec); a statement that writes is refused.
pub fn open_cursor<T: FromRow>(sql: &str, params: &[Value]) -> Result<Cursor<T>, Error> {
    let inner = host::open_cursor(sql, params)?;
    Ok(Cursor { inner, batch: Vec::new().into_iter(), ended: false, rows: PhantomData })
}

impl<T> Cursor<T> {
    /// The names of the columns.
    #[must_use]
    pub fn columns(&self) -> Vec<String> {
        self.inner.columns()
    }
}

impl<T: FromRow> Iterator for Cursor<T> {
    type Item = Result<T, Error>;

    fn next(&mut self) -> Option<Result<T, Error>> {
        if self.batch.len() == 0 && !self.ended {
            match self.inner.next(BATCH_ROWS) {
                Ok(rows) => self.batch = rows.into_iter(),
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error.into()));
                }
            }
            self.ended = self.batch.len() == 0;
        }
        self.batch.next().map(T::from_row)
    }
}
