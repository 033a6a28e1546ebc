//! Rows as tuples.

use super::{
    Error, Value,
    value::{FromValue, kind},
};

/// A Rust type that a row can become: a tuple of up to eight values, one value, or all as they are.
pub trait FromRow: Sized {
    /// The row as this type.
    ///
    /// # Errors
    /// [`Error::Shape`] when the number of columns or the kind of one differs.
    fn from_row(row: Vec<Value>) -> Result<Self, Error>;
}

impl FromRow for Vec<Value> {
    fn from_row(row: Vec<Value>) -> Result<Vec<Value>, Error> {
        Ok(row)
    }
}

macro_rules! single {
    ($($type:ty)*) => {
        $(impl FromRow for $type {
            fn from_row(row: Vec<Value>) -> Result<$type, Error> {
                <($type,)>::from_row(row).map(|(value,)| value)
            }
        })*
    };
}

single!(Value bool i8 i16 i32 i64 u8 u16 u32 u64 usize f64 String Vec<u8>);

impl<T: FromValue> FromRow for Option<T> {
    fn from_row(row: Vec<Value>) -> Result<Option<T>, Error> {
        <(Option<T>,)>::from_row(row).map(|(value,)| value)
    }
}

macro_rules! tuple {
    ($count:literal: $($type:ident)*) => {
        impl<$($type: FromValue),*> FromRow for ($($type,)*) {
            fn from_row(row: Vec<Value>) -> Result<Self, Error> {
                if row.len() != $count {
                    return Err(Error::Shape(format!("a row has {} columns, {} expected", row.len(), $count)));
                }
                let mut values = row.into_iter().enumerate();
                Ok(($(column::<$type>(&mut values)?,)*))
            }
        }
    };
}

tuple!(1: A);
tuple!(2: A B);
tuple!(3: A B C);
tuple!(4: A B C D);
tuple!(5: A B C D E);
tuple!(6: A B C D E F);
tuple!(7: A B C D E F G);
tuple!(8: A B C D E F G H);

fn column<T: FromValue>(values: &mut impl Iterator<Item = (usize, Value)>) -> Result<T, Error> {
    let (index, value) = values.next().expect("the number of columns was compared");
    T::from_value(value).map_err(|value| {
        Error::Shape(format!("column {} is {}, {} expected", index + 1, kind(&value), T::EXPECTED))
    })
}
