//! Query strings, as browsers and command-line clients write them.

/// The value of `name` in `query` (without `?`): the first one, percent-decoded, `+` read as a space. A name
/// without `=` has an empty value. Bytes that are not UTF-8 become U+FFFD; a `%` that is not followed by two
/// hexadecimal digits stands for itself.
pub(crate) fn value(query: &str, name: &str) -> Option<String> {
    query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(key) == name).then(|| decode(value))
    })
}

/// The decoded value of `name` in the query of a path, as [`Request::query_value`](crate::Request::query_value)
/// gives it: for the path of an `on-websocket-open`.
#[must_use]
pub fn query_value(path_with_query: &str, name: &str) -> Option<String> {
    value(path_with_query.split_once('?')?.1, name)
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%').and_then(hex_pair);
        decoded.push(escape.unwrap_or(if bytes[at] == b'+' { b' ' } else { bytes[at] }));
        at += if escape.is_some() { 3 } else { 1 };
    }
    String::from_utf8(decoded).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn hex_pair(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(digits[0])? * 16 + digit(digits[1])?).ok()
}

#[cfg(test)]
mod tests {
    use super::{query_value, value};

    #[test]
    fn the_query_of_a_path_is_what_follows_its_first_question_mark() {
        assert_eq!(query_value("/a?name=x%20y&b", "name").as_deref(), Some("x y"));
        assert_eq!(query_value("/name=x", "name"), None);
    }

    #[test]
    fn the_first_value_of_a_name_is_decoded_once() {
        let query = "a=1&b=x+y%2Bz&b=2&c&d%5B%5D=%C3%A9&e=%2561&f=%zz%4";
        let cases = [
            ("a", Some("1")),
            ("b", Some("x y+z")),
            ("c", Some("")),
            ("d[]", Some("é")),
            ("e", Some("%61")),
            ("f", Some("%zz%4")),
            ("g", None),
        ];
        for (name, expected) in cases {
            assert_eq!(value(query, name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_replaced() {
        assert_eq!(value("a=%FFb", "a").as_deref(), Some("\u{fffd}b"));
    }
}
