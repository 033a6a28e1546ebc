//! One page of an S3 listing, read from its XML. Owns the form, not whether the page can be believed.

use quick_xml::events::Event;
use serde::Deserialize;

use wasmkeep_bucket::{Page, PageObject, ReadError, Version};

#[derive(Debug, Deserialize)]
#[serde(rename = "ListBucketResult", rename_all = "PascalCase")]
struct ListBucketResult {
    #[serde(default)]
    contents: Vec<Contents>,
    is_truncated: Option<String>,
    next_continuation_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Contents {
    key: String,
    size: u64,
    #[serde(default)]
    last_modified: String,
    #[serde(rename = "ETag")]
    etag: Option<String>,
}

/// Reads a page and takes `prefix` off its names.
pub(crate) fn parse(body: &[u8], prefix: &str) -> Result<Page, ReadError> {
    let malformed = |error: &dyn std::fmt::Display| ReadError::Malformed(format!("a listing page: {error}"));
    // Every field of a page may be missing, so without this any other document would read as an empty page.
    if !is_listing(body) {
        return Err(malformed(&"the reply is another document"));
    }
    let result: ListBucketResult = quick_xml::de::from_reader(body).map_err(|error| malformed(&error))?;
    let token = result.next_continuation_token.filter(|token| !token.is_empty());
    let truncated = match result.is_truncated.as_deref().map(str::trim) {
        Some("true") => true,
        Some("false") => false,
        Some(other) => return Err(malformed(&format!("IsTruncated is {other:?}"))),
        // Left out by some servers when nothing follows; a token says that something does.
        None => token.is_some(),
    };
    let objects = result.contents.into_iter().map(|contents| {
        let name = contents.key.strip_prefix(prefix);
        let name = name.ok_or_else(|| malformed(&format!("{:?} was not asked for", contents.key)))?;
        Ok(PageObject {
            name: name.to_owned(),
            size: contents.size,
            modified_ms: modified_ms(&contents.last_modified),
            version: contents.etag.and_then(|etag| Version::new(etag).ok()),
        })
    });
    Ok(Page { objects: objects.collect::<Result<_, ReadError>>()?, truncated, token })
}

/// Whether the document's root is a listing's.
fn is_listing(body: &[u8]) -> bool {
    let mut reader = quick_xml::Reader::from_reader(body);
    loop {
        match reader.read_event() {
            Ok(Event::Start(root) | Event::Empty(root)) => {
                return root.local_name().as_ref() == b"ListBucketResult";
            }
            Ok(Event::Eof) | Err(_) => return false,
            Ok(_) => {}
        }
    }
}

/// 0 for what is no time: ages are for people and for keeping history longer, and 0 would make an object look
/// old, so callers that delete by age treat it as unknown.
fn modified_ms(text: &str) -> u64 {
    chrono::DateTime::parse_from_rfc3339(text).map_or(0, |time| time.timestamp_millis().max(0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(inner: &str) -> Result<Page, ReadError> {
        let xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>{inner}</ListBucketResult>"
        );
        parse(xml.as_bytes(), "prod/")
    }

    // case S11
    #[test]
    fn a_page_reads_as_it_was_sent() {
        let page = page(
            "<IsTruncated>true</IsTruncated><NextContinuationToken>a+b/=</NextContinuationToken>\
             <Contents><Key>prod/h/a%2Fb&amp;c</Key><LastModified>2026-11-29T21:00:00.250Z</LastModified>\
             <ETag>&quot;0123-4&quot;</ETag><Size>12</Size><StorageClass>STANDARD</StorageClass></Contents>\
             <Contents><Key>prod/h/</Key><Size>0</Size></Contents>",
        )
        .unwrap();
        assert!(page.truncated);
        assert_eq!(page.token.as_deref(), Some("a+b/="));
        let [first, second] = &page.objects[..] else { panic!("{page:?}") };
        assert_eq!((first.name.as_str(), first.size), ("h/a%2Fb&c", 12));
        assert_eq!(first.version.as_ref().unwrap().as_str(), "\"0123-4\"");
        assert_eq!(first.modified_ms, 1_795_986_000_250);
        assert_eq!((second.name.as_str(), second.modified_ms), ("h/", 0));
        assert_eq!(second.version, None);
    }

    // case S4
    #[test]
    fn what_is_no_listing_is_never_an_empty_one() {
        for body in ["", "<html></html>", "<ListBucketResult><Contents>", "{}"] {
            assert!(matches!(parse(body.as_bytes(), ""), Err(ReadError::Malformed(_))), "{body:?}");
        }
        assert!(page("<IsTruncated>perhaps</IsTruncated>").is_err());
        assert!(page("<Contents><Key>prod/a</Key></Contents>").is_err());
        assert!(page("<Contents><Key>other/a</Key><Size>1</Size></Contents>").is_err());
        assert_eq!(page("<IsTruncated>false</IsTruncated>").unwrap(), Page::default());
    }

    #[test]
    fn a_missing_truncation_flag_follows_the_token() {
        assert!(!page("").unwrap().truncated);
        assert!(page("<NextContinuationToken>t</NextContinuationToken>").unwrap().truncated);
    }
}
