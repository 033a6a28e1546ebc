//! Where a bucket is. Owns the two URL forms and the sentences that say what is wrong with another one.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::Key;

/// Longest prefix of an S3 URL, in bytes: with `/` and the longest [`Key`] it makes S3's 1,024.
const PREFIX_BYTES_MAX: usize = 1024 - 1 - crate::KEY_BYTES_MAX;

/// A parsed `--bucket` value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketUrl {
    /// `s3://BUCKET[/PREFIX]`: an S3-compatible server.
    S3 {
        /// Bucket name.
        bucket: String,
        /// Prefix of every key, without a slash at either end.
        prefix: Option<Key>,
    },
    /// `file:///DIR`: a directory shared by processes of one machine.
    File(PathBuf),
}

/// Why a text names no bucket, and what would.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketUrlError {
    /// Neither of the two schemes.
    #[error("{0:?} is no bucket: write s3://BUCKET[/PREFIX], or file:///DIR for processes of one machine")]
    Scheme(String),
    /// No bucket name, or one S3 does not allow.
    #[error(
        "{0:?} is no bucket name: it has 3 to 63 lower-case letters, digits, dots and hyphens, as in s3://BUCKET[/PREFIX]"
    )]
    BucketName(String),
    /// A prefix no key can begin with.
    #[error(
        "{0:?} is no prefix for a bucket: use at most {PREFIX_BYTES_MAX} letters, digits and `._~%=+@,-`, with single slashes between"
    )]
    Prefix(String),
    /// A directory that depends on where the process runs.
    #[error(
        "file://{0} is not absolute: write three slashes and the whole path, as in file:///var/lib/bucket"
    )]
    NotAbsolute(String),
}

impl FromStr for BucketUrl {
    type Err = BucketUrlError;

    fn from_str(text: &str) -> Result<Self, BucketUrlError> {
        if let Some(rest) = text.strip_prefix("s3://") {
            return s3(rest);
        }
        match text.strip_prefix("file://") {
            Some(dir) if dir.starts_with('/') => Ok(Self::File(PathBuf::from(dir))),
            Some(dir) => Err(BucketUrlError::NotAbsolute(dir.to_owned())),
            None => Err(BucketUrlError::Scheme(text.to_owned())),
        }
    }
}

fn s3(rest: &str) -> Result<BucketUrl, BucketUrlError> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
    let ends = |name: &str| name.starts_with(['.', '-']) || name.ends_with(['.', '-']);
    if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(allowed) || ends(bucket) {
        return Err(BucketUrlError::BucketName(bucket.to_owned()));
    }
    // A slash at the end is how people mark a folder: it means the same prefix.
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    let parsed = match prefix {
        "" => None,
        _ => Some(prefix.parse().map_err(|_| BucketUrlError::Prefix(prefix.to_owned()))?),
    };
    if prefix.len() > PREFIX_BYTES_MAX {
        return Err(BucketUrlError::Prefix(prefix.to_owned()));
    }
    Ok(BucketUrl::S3 { bucket: bucket.to_owned(), prefix: parsed })
}

impl fmt::Display for BucketUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::S3 { bucket, prefix: None } => write!(f, "s3://{bucket}"),
            Self::S3 { bucket, prefix: Some(prefix) } => write!(f, "s3://{bucket}/{prefix}"),
            Self::File(dir) => write!(f, "file://{}", dir.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // R-FLAG-3
    #[test]
    fn the_documented_forms_are_read_and_written_back() {
        for (text, back) in [
            ("s3://wasmkeep-demo", "s3://wasmkeep-demo"),
            ("s3://wasmkeep-demo/", "s3://wasmkeep-demo"),
            ("s3://acme/prod/eu", "s3://acme/prod/eu"),
            ("s3://acme/prod/", "s3://acme/prod"),
            ("file:///var/lib/bucket", "file:///var/lib/bucket"),
        ] {
            assert_eq!(text.parse::<BucketUrl>().unwrap().to_string(), back);
        }
    }

    #[test]
    fn every_other_text_is_refused_in_one_sentence_that_says_what_to_write() {
        let long = format!("s3://acme/{}", "p".repeat(PREFIX_BYTES_MAX + 1));
        for (text, hint) in [
            ("", "s3://BUCKET"),
            ("acme", "s3://BUCKET"),
            ("gs://acme", "s3://BUCKET"),
            ("s3://", "bucket name"),
            ("s3:///prefix", "bucket name"),
            ("s3://Acme", "bucket name"),
            ("s3://-acme", "bucket name"),
            ("s3://acme//x", "prefix"),
            ("s3://acme/a/../b", "prefix"),
            ("s3://acme/a b", "prefix"),
            (&long, "prefix"),
            ("file://dir", "three slashes"),
            ("file://", "three slashes"),
        ] {
            let error = text.parse::<BucketUrl>().unwrap_err().to_string();
            assert!(error.contains(hint), "{text:?}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
