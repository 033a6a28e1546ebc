//! Values that cross between a guest and its database.

/// One SQLite value.
///
/// Text that SQLite holds but that is not UTF-8 comes back as [`Value::Blob`].
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// NULL.
    Null,
    /// A 64-bit integer.
    Integer(i64),
    /// A double. NaN is refused as a parameter: SQLite would store NULL in its place.
    Real(f64),
    /// Text; NUL characters are kept.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

impl Value {
    /// Bytes this value takes in a result, for the limit on a whole result.
    pub(crate) fn size_bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Text(text) => text.len(),
                Self::Blob(bytes) => bytes.len(),
                _ => 0,
            }
    }
}

/// What a statement changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changes {
    /// Rows the statement itself inserted, updated or deleted; those of triggers and foreign keys do not count.
    pub rows: u64,
    /// The rowid of the last successful insert of this connection; 0 before the first.
    pub last_insert_rowid: i64,
}

/// All rows of one statement.
#[derive(Debug, Clone, PartialEq)]
pub struct ResultSet {
    /// Column names in order; bytes that are not UTF-8 are replaced by U+FFFD.
    pub columns: Vec<String>,
    /// Rows, each as long as `columns`.
    pub rows: Vec<Vec<Value>>,
}
