//! Rust values as SQLite's and back.
//!
//! Reading is strict, so that a number is never silently another: an INTEGER column reads as an integer type
//! it fits in, and only `f64` takes both REAL and INTEGER, since SQLite itself turns one into the other.

use super::Value;

/// A Rust type that one value of a row can become.
pub trait FromValue: Sized {
    /// What the type wants, for error messages.
    const EXPECTED: &'static str;

    /// The value as this type, or the value back when it is of another kind or does not fit.
    ///
    /// # Errors
    /// The value itself.
    fn from_value(value: Value) -> Result<Self, Value>;
}

impl FromValue for Value {
    const EXPECTED: &'static str = "any value";

    fn from_value(value: Value) -> Result<Value, Value> {
        Ok(value)
    }
}

impl FromValue for f64 {
    const EXPECTED: &'static str = "a number";

    #[expect(clippy::cast_precision_loss, reason = "who reads an INTEGER as f64 asks for this")]
    fn from_value(value: Value) -> Result<f64, Value> {
        match value {
            Value::Real(number) => Ok(number),
            Value::Integer(number) => Ok(number as f64),
            other => Err(other),
        }
    }
}

impl FromValue for bool {
    const EXPECTED: &'static str = "0 or 1";

    fn from_value(value: Value) -> Result<bool, Value> {
        match value {
            Value::Integer(0) => Ok(false),
            Value::Integer(1) => Ok(true),
            other => Err(other),
        }
    }
}

impl FromValue for String {
    const EXPECTED: &'static str = "text";

    fn from_value(value: Value) -> Result<String, Value> {
        match value {
            Value::Text(text) => Ok(text),
            other => Err(other),
        }
    }
}

impl FromValue for Vec<u8> {
    const EXPECTED: &'static str = "a blob";

    fn from_value(value: Value) -> Result<Vec<u8>, Value> {
        match value {
            Value::Blob(bytes) => Ok(bytes),
            other => Err(other),
        }
    }
}

impl<T: FromValue> FromValue for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn from_value(value: Value) -> Result<Option<T>, Value> {
        match value {
            Value::Null => Ok(None),
            other => T::from_value(other).map(Some),
        }
    }
}

macro_rules! integers {
    (into: $($wide:ty)*; from: $($any:ty)*) => {
        $(impl From<$wide> for Value {
            fn from(number: $wide) -> Value {
                Value::Integer(i64::from(number))
            }
        })*
        $(impl FromValue for $any {
            const EXPECTED: &'static str = concat!("an integer that fits ", stringify!($any));

            fn from_value(value: Value) -> Result<$any, Value> {
                match value {
                    Value::Integer(number) => <$any>::try_from(number).map_err(|_| Value::Integer(number)),
                    other => Err(other),
                }
            }
        })*
    };
}

// Not u64 and usize as parameters: half of a u64 has no INTEGER.
integers!(into: bool i8 i16 i32 i64 u8 u16 u32; from: i8 i16 i32 i64 u8 u16 u32 u64 usize);

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        Value::Real(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Value {
        Value::Text(text.clone())
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Value {
        Value::Blob(bytes.to_vec())
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Value {
        Value::Blob(bytes)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

/// The name of a value's kind, for error messages.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "NULL",
        Value::Integer(_) => "an INTEGER",
        Value::Real(_) => "a REAL",
        Value::Text(_) => "TEXT",
        Value::Blob(_) => "a BLOB",
    }
}
