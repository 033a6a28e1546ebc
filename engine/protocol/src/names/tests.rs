use proptest::prelude::*;

use super::*;

fn segment(text: &str) -> Result<String, NameError> {
    ActorName::from_path_segment(text).map(|name| name.as_str().to_owned())
}

#[test]
fn a_path_segment_is_decoded_exactly_once() {
    assert_eq!(segment("a%2Fb"), Ok("a/b".into()));
    assert_eq!(segment("%252f"), Ok("%2f".into()));
    assert_eq!(segment("%61"), segment("a"));
    assert_eq!(segment("a+b"), Ok("a+b".into()));
    assert_eq!(segment("a%3Fb%23c"), Ok("a?b#c".into()));
    assert_eq!(segment("x.db"), Ok("x.db".into()));
    assert_ne!(segment("%C3%A9"), segment("e%CC%81"), "NFC and NFD are two names");
}

#[test]
fn names_that_could_hurt_are_refused() {
    for (text, error) in [
        ("", NameError::Empty),
        (".", NameError::Dots),
        ("..", NameError::Dots),
        ("%2e%2e", NameError::Dots),
        ("%00", NameError::Character('\0')),
        ("a%0Ab", NameError::Character('\n')),
        ("%zz", NameError::PercentEncoding),
        ("%4", NameError::PercentEncoding),
        ("100%", NameError::PercentEncoding),
        ("%+1", NameError::PercentEncoding),
        ("%ff", NameError::NotUtf8),
    ] {
        assert_eq!(segment(text), Err(error), "{text}");
    }
    assert_eq!(segment(&"x".repeat(257)), Err(NameError::TooLong(256)));
    assert!(segment(&"x".repeat(256)).is_ok());
}

#[test]
fn labels_follow_the_rule_of_classes() {
    for good in ["a", "counter", "a-1", &"a".repeat(64)] {
        assert!(good.parse::<ActorClass>().is_ok(), "{good}");
    }
    for bad in ["", "1a", "-a", "A", "a_b", "a/b", "a.b", "é", &"a".repeat(65)] {
        assert!(bad.parse::<ActorClass>().is_err(), "{bad}");
    }
    // R-FLAG-3
    assert!("1-node".parse::<NodeId>().is_ok() && "Node".parse::<NodeId>().is_err());
}

#[test]
fn file_stems_are_plain() {
    let stem = |text: &str| text.parse::<ActorName>().unwrap().file_stem();
    assert_eq!(stem("alice"), "alice");
    assert_eq!(stem("Alice"), "%41lice");
    assert_eq!(stem("a/../b"), "a%2F%2E%2E%2Fb");
    assert_eq!(stem("x.db"), "x%2Edb");
    assert_eq!(stem(&"x".repeat(256)).len(), 200);
}

proptest! {
    #[test]
    fn no_two_names_share_a_file(a in "\\PC{1,120}", b in "\\PC{1,120}") {
        let (Ok(a), Ok(b)) = (a.parse::<ActorName>(), b.parse::<ActorName>()) else { return Ok(()) };
        prop_assert_eq!(a == b, a.file_stem() == b.file_stem());
        prop_assert!(a.file_stem().len() <= 200);
        let told = ActorName::from_file_stem(&a.file_stem());
        prop_assert_eq!(told, (!a.file_stem().contains('~')).then_some(a.clone()));
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit()
            || matches!(c, '-' | '_' | '%' | '~' | 'A'..='F');
        prop_assert!(a.file_stem().chars().all(plain));
    }

    #[test]
    fn decoding_never_panics(text in "\\PC*") {
        let _ = ActorName::from_path_segment(&text);
    }
}
