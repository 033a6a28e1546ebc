//! What actors find in their environment: the lines of the `--env` files.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use wasmkeep_protocol::ActorClass;

use crate::{
    args::EnvFile,
    exit::{Failure, Status},
};

/// The values of all `--env` files. A later file wins over an earlier one, one for a class over one for all.
#[derive(Debug, Default)]
pub(crate) struct Values {
    shared: BTreeMap<String, String>,
    by_class: BTreeMap<ActorClass, BTreeMap<String, String>>,
}

impl Values {
    /// Reads the files in order.
    pub(crate) fn read(files: &[EnvFile]) -> Result<Self, Failure> {
        let mut values = Self::default();
        for EnvFile { class, file } in files {
            let failure = |why: String| {
                Failure::new(Status::Component, format!("the values in {file:?} cannot be read: {why}"))
            };
            let text = read(file).map_err(failure)?;
            let failure = |error| failure(told(&text, error));
            let into = match class {
                None => &mut values.shared,
                Some(class) => values.by_class.entry(class.clone()).or_default(),
            };
            for pair in dotenvy::from_read_iter(text.as_bytes()) {
                let (name, value) = pair.map_err(failure)?;
                into.insert(name, value);
            }
        }
        Ok(values)
    }

    /// What a class sees; what the stateless component does, without one.
    pub(crate) fn of(&self, class: Option<&ActorClass>) -> Arc<Vec<(String, String)>> {
        let mut merged = self.shared.clone();
        if let Some(own) = class.and_then(|class| self.by_class.get(class)) {
            merged.extend(own.clone());
        }
        Arc::new(merged.into_iter().collect())
    }
}

/// The text of a file, without the mark that programs of Windows put in front of it.
fn read(file: &Path) -> Result<String, String> {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    const MARKS_OF_UTF_16: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];
    let bytes = std::fs::read(file).map_err(|error| error.to_string())?;
    if MARKS_OF_UTF_16.iter().any(|mark| bytes.starts_with(mark)) {
        return Err("it is UTF-16; save it as UTF-8".to_owned());
    }
    let text = bytes.strip_prefix(MARK).unwrap_or(&bytes);
    match std::str::from_utf8(text) {
        Ok(text) => Ok(text.to_owned()),
        Err(error) => {
            let line = text[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
            Err(format!("line {line} is not UTF-8; save the file as UTF-8"))
        }
    }
}

/// Says what is wrong with the text of a file of values, and where, without a value: it may be a secret.
fn told(text: &str, error: dotenvy::Error) -> String {
    let wrong = match error {
        dotenvy::Error::LineParse(wrong, _) => wrong,
        other => return other.to_string(),
    };
    let first = wrong.lines().next().unwrap_or_default();
    // The error has the line, or its value alone.
    let place = text.lines().position(|line| line.contains(first)).map_or(0, |at| at + 1);
    format!("line {place} is not NAME=VALUE; a value with spaces or $ goes in 'single quotes'")
}

#[cfg(test)]
mod tests {
    use super::*;

    // R-FLAG-2
    #[test]
    fn a_line_that_is_no_value_is_told_by_its_number_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("values");
        for (text, line) in [
            ("A=1\nTOKEN=s3cret with spaces\n", 2),
            ("s3cret\n", 1),
            ("# a comment\n\nA='s3cret\n", 3),
            ("=s3cret\n", 1),
        ] {
            std::fs::write(&file, text).unwrap();
            let failure = Values::read(&[EnvFile { class: None, file: file.clone() }]).unwrap_err();
            let sentence = failure.to_string();
            assert!(sentence.contains(&format!("line {line} is not NAME=VALUE")), "{text:?}: {sentence}");
            assert!(!sentence.contains("s3cret") && failure.status == Status::Component, "{sentence}");
        }
        std::fs::write(&file, "export A=1\nB='pa$$word # 1'\nC=\"two\\nlines\"\nD=\n").unwrap();
        let values = Values::read(&[EnvFile { class: None, file }]).unwrap();
        let pairs: Vec<_> = values.of(None).iter().map(|(n, v)| format!("{n}={v}")).collect();
        assert_eq!(pairs, ["A=1", "B=pa$$word # 1", "C=two\nlines", "D="]);
    }

    // R-FLAG-2
    #[test]
    fn a_file_written_on_windows_gives_the_same_values_or_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("values");
        let read = |bytes: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            Values::read(&[EnvFile { class: None, file: file.clone() }])
        };
        for text in ["A=1\nB='x y'\n", "A=1\r\nB='x y'\r\n", "A=1\r\nB='x y'"] {
            for mark in ["", "\u{feff}"] {
                let values = read(format!("{mark}{text}").as_bytes()).unwrap();
                let pairs: Vec<_> = values.of(None).iter().map(|(n, v)| format!("{n}={v}")).collect();
                assert_eq!(pairs, ["A=1", "B=x y"], "{mark:?} {text:?}");
            }
        }
        let utf_16: Vec<u8> = "\u{feff}A=s3cret\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for (bytes, part) in
            [(&*utf_16, "it is UTF-16; save it as UTF-8"), (b"A=1\nB=\xe9\n", "line 2 is not UTF-8")]
        {
            let failure = read(bytes).unwrap_err();
            assert_eq!(failure.status, Status::Component);
            assert!(failure.to_string().contains(part), "{failure}");
        }
    }

    #[test]
    fn values_for_a_class_win_over_values_for_all_and_later_files_over_earlier() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let all = write("all", "A=1\nB=1\n# a comment\nC='x y'\n");
        let later = write("later", "B=2\n");
        let own = write("own", "A=3\n");
        let class: ActorClass = "counter".parse().unwrap();
        let files = [
            EnvFile { class: None, file: all },
            EnvFile { class: Some(class.clone()), file: own },
            EnvFile { class: None, file: later },
        ];
        let values = Values::read(&files).unwrap();
        let pairs = |class| values.of(class).iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>();
        assert_eq!(pairs(Some(&class)), ["A=3", "B=2", "C=x y"]);
        assert_eq!(pairs(None), ["A=1", "B=2", "C=x y"]);
        let missing = EnvFile { class: None, file: folder.path().join("missing") };
        assert_eq!(Values::read(&[missing]).unwrap_err().status, Status::Component);
    }
}
