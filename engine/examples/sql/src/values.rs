//! SQLite's values as JSON and back.
//!
//! NULL, INTEGER, finite REAL and TEXT are what JSON has: `null`, `1`, `1.0`, `"text"`. What it has not is an
//! object: `{"blob": "00ff"}` (hexadecimal), `{"real": "inf"}`, `"-inf"` or `"nan"`.

use serde_json::{Value as Json, json};
use wasmkeep_sdk::{Error, Result, storage::Value};

pub(crate) fn to_json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Integer(number) => json!(number),
        Value::Real(number) if number.is_finite() => json!(number),
        Value::Real(number) => json!({ "real": number.to_string() }),
        Value::Text(text) => json!(text),
        Value::Blob(bytes) => {
            json!({ "blob": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() })
        }
    }
}

pub(crate) fn from_json(json: &Json) -> Result<Value> {
    let value = match json {
        Json::Null => Some(Value::Null),
        Json::Bool(truth) => Some(Value::Integer(i64::from(*truth))),
        Json::Number(number) => {
            number.as_i64().map(Value::Integer).or_else(|| number.as_f64().map(Value::Real))
        }
        Json::String(text) => Some(Value::Text(text.clone())),
        Json::Object(_) => object(json),
        Json::Array(_) => None,
    };
    value.ok_or_else(|| Error::new(400, format!("{json} is not a value of SQLite")))
}

fn object(json: &Json) -> Option<Value> {
    if let Some(digits) = json["blob"].as_str() {
        return hex(digits).map(Value::Blob);
    }
    json["real"].as_str()?.parse().ok().map(Value::Real)
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    let nibbles: Option<Vec<u32>> = digits.chars().map(|digit| digit.to_digit(16)).collect();
    let nibbles = nibbles.filter(|nibbles| nibbles.len() % 2 == 0)?;
    nibbles.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // case Q7
    #[test]
    fn every_kind_of_value_survives_json() {
        let values = [
            Value::Null,
            Value::Integer(i64::MIN),
            Value::Integer((1 << 53) + 1),
            Value::Real(-0.0),
            Value::Real(1e308),
            Value::Real(3.0),
            Value::Real(f64::NEG_INFINITY),
            Value::Real(f64::NAN),
            Value::Text("a\0b".to_owned()),
            Value::Blob(vec![]),
            Value::Blob(vec![0, 255]),
        ];
        for value in values {
            let text = to_json(&value).to_string();
            let back = serde_json::from_str(&text).map(|json| from_json(&json));
            let back = back.expect("it was JSON").unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(format!("{back:?}"), format!("{value:?}"), "{text}");
        }
    }
}
