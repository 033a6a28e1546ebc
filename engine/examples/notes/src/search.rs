//! What a person types as a query of SQLite's full-text search.

/// A query for the rows that have all of `words`, the last one perhaps unfinished; none when there is no word.
/// Each word is quoted, so that nothing typed is taken for the query language.
pub(crate) fn all_words(words: &str) -> Option<String> {
    let quoted: Vec<_> =
        words.split_whitespace().map(|word| format!("\"{}\"", word.replace('"', "\"\""))).collect();
    (!quoted.is_empty()).then(|| quoted.join(" ") + "*")
}

#[cfg(test)]
mod tests {
    use super::all_words;

    #[test]
    fn nothing_typed_is_taken_for_the_query_language() {
        let cases = [
            ("milk eggs", Some("\"milk\" \"eggs\"*")),
            ("a\"b OR NEAR(", Some("\"a\"\"b\" \"OR\" \"NEAR(\"*")),
            ("  ", None),
        ];
        for (typed, expected) in cases {
            assert_eq!(all_words(typed).as_deref(), expected, "{typed}");
        }
    }
}
