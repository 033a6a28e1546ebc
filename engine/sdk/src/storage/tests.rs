//! Conversions between Rust's values and SQLite's.

use proptest::prelude::*;

use super::*;

fn read<T: FromRow>(values: &[Value]) -> Result<T, String> {
    T::from_row(values.to_vec()).map_err(|error| error.to_string())
}

/// The value as it was, told apart bit by bit where `==` would not.
fn bits(value: &Value) -> String {
    match value {
        Value::Real(number) => format!("real {:x}", number.to_bits()),
        other => format!("{other:?}"),
    }
}

#[test]
fn params_keep_the_kind_of_each_value() {
    let values = params![1, true, 2.5, "t", String::from("s"), &b"b"[..], None::<i64>, Some("x"), vec![0u8]];
    let expected = [
        Value::Integer(1),
        Value::Integer(1),
        Value::Real(2.5),
        Value::Text("t".into()),
        Value::Text("s".into()),
        Value::Blob(b"b".to_vec()),
        Value::Null,
        Value::Text("x".into()),
        Value::Blob(vec![0]),
    ];
    assert_eq!(values.iter().map(bits).collect::<Vec<_>>(), expected.iter().map(bits).collect::<Vec<_>>());
    assert!(params![].is_empty());
}

// case Q7
#[test]
fn a_number_is_never_silently_another() {
    let extremes = [i64::MIN, i64::MAX, (1 << 53) + 1, (1 << 53) - 1];
    for number in extremes {
        assert_eq!(read::<i64>(params![number]), Ok(number));
    }
    assert_eq!(
        read::<u8>(params![256]),
        Err("column 1 is an INTEGER, an integer that fits u8 expected".to_owned())
    );
    assert!(read::<u64>(params![-1]).is_err());
    assert!(read::<i64>(params![1.0]).is_err());
    assert!(read::<bool>(params![2]).is_err());
    assert_eq!(read::<f64>(params![-0.0]).map(f64::to_bits), Ok((-0.0f64).to_bits()));
    assert_eq!(read::<f64>(params![f64::INFINITY]), Ok(f64::INFINITY));
    assert_eq!(read::<f64>(params![3]), Ok(3.0));
}

// case Q7
#[test]
fn an_empty_blob_and_an_empty_text_are_not_null() {
    assert_eq!(read::<Option<Vec<u8>>>(params![&[][..]]), Ok(Some(vec![])));
    assert_eq!(read::<Option<String>>(params![""]), Ok(Some(String::new())));
    assert_eq!(read::<Option<String>>(params![None::<String>]), Ok(None));
    assert_eq!(read::<String>(params![None::<String>]), Err("column 1 is NULL, text expected".to_owned()));
}

// case Q8
#[test]
fn text_that_arrives_as_a_blob_is_reported_not_guessed() {
    assert_eq!(
        read::<String>(&[Value::Blob(vec![0xff])]),
        Err("column 1 is a BLOB, text expected".to_owned())
    );
}

#[test]
fn a_row_of_another_width_is_refused() {
    assert_eq!(read::<(i64, String)>(params![1, "a"]), Ok((1, "a".to_owned())));
    assert_eq!(read::<(i64, String)>(params![1]), Err("a row has 1 columns, 2 expected".to_owned()));
    assert_eq!(
        read::<(i64, i64)>(params![1, "a"]),
        Err("column 2 is TEXT, an integer that fits i64 expected".to_owned())
    );
    assert_eq!(read::<Vec<Value>>(params![1, 2, 3]).map(|row| row.len()), Ok(3));
}

proptest! {
    #[test]
    fn every_value_reads_back_as_it_was_bound(
        integer: i64, real: f64, text: String, blob: Vec<u8>, maybe: Option<i32>
    ) {
        let row = params![integer, real, &text, &blob[..], maybe];
        let (i, r, t, b, m) = <(i64, f64, String, Vec<u8>, Option<i32>)>::from_row(row.to_vec())
            .map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!((i, r.to_bits(), t, b, m), (integer, real.to_bits(), text, blob, maybe));
    }
}
