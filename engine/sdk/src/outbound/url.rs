//! A URL in the parts that `wasi:http` wants. The host reads and checks them again.

/// Where a request goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target<'a> {
    pub(super) tls: bool,
    pub(super) authority: &'a str,
    pub(super) path_with_query: String,
}

impl Target<'_> {
    /// `None` for what is no http or https URL. A fragment is left out, as it is never sent.
    pub(super) fn of(url: &str) -> Option<Target<'_>> {
        let (scheme, rest) = url.split_once("://")?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.is_empty() {
            return None;
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        Some(Target { tls, authority, path_with_query: format!("{slash}{path}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_comes_apart_into_what_is_sent() {
        for (url, expected) in [
            ("http://a.test", Some((false, "a.test", "/"))),
            ("HTTPS://a.test:8443/b/c?d=e?f#g", Some((true, "a.test:8443", "/b/c?d=e?f"))),
            ("http://[::1]:80?q", Some((false, "[::1]:80", "/?q"))),
            ("http://a.test#only", Some((false, "a.test", "/"))),
            ("a.test/b", None),
            ("ftp://a.test/", None),
            ("http:///b", None),
            ("", None),
        ] {
            let parts = Target::of(url);
            let parts = parts.as_ref().map(|target| (target.tls, target.authority, &*target.path_with_query));
            assert_eq!(parts, expected, "{url}");
        }
    }
}
