//! The `AWS_*` variables, each read once and with one meaning.

use std::collections::BTreeMap;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use reqwest::Url;

use crate::OpenS3Error;
use crate::credentials::{ContainerToken, Source};

/// The names an endpoint goes by, the one that counts first.
const ENDPOINT_NAMES: [&str; 3] = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];

/// Where containers find their credentials when only a path is given.
const CONTAINER_HOST: &str = "http://169.254.170.2";

/// Where instances find theirs.
const METADATA_ENDPOINT: &str = "http://169.254.169.254";

/// The variables that are set, by name. One that is empty counts as not set.
#[derive(Debug)]
pub(crate) struct Settings(BTreeMap<String, String>);

impl Settings {
    pub(crate) fn new(environment: impl IntoIterator<Item = (String, String)>) -> Self {
        let ours = |(name, value): &(String, String)| name.starts_with("AWS_") && !value.is_empty();
        Self(environment.into_iter().filter(ours).collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Whether endpoints may be plain HTTP. The words are those of the client library.
    pub(crate) fn allows_http(&self) -> Result<bool, OpenS3Error> {
        self.flag("AWS_ALLOW_HTTP")
    }

    fn flag(&self, name: &'static str) -> Result<bool, OpenS3Error> {
        let Some(value) = self.get(name) else { return Ok(false) };
        match value.to_ascii_lowercase().as_str() {
            "1" | "true" | "on" | "yes" | "y" => Ok(true),
            "0" | "false" | "off" | "no" | "n" => Ok(false),
            _ => Err(OpenS3Error::Flag { name, value: value.to_owned() }),
        }
    }

    /// The endpoint without a slash at its end; `None` for AWS itself.
    pub(crate) fn endpoint(&self) -> Result<Option<String>, OpenS3Error> {
        let Some((name, value)) =
            ENDPOINT_NAMES.into_iter().find_map(|name| self.get(name).map(|value| (name, value)))
        else {
            return Ok(None);
        };
        let wrong = || OpenS3Error::Endpoint { name, value: value.to_owned() };
        let url = Url::parse(value).map_err(|_| wrong())?;
        let is_bare = url.query().is_none() && url.fragment().is_none();
        let has_user = !url.username().is_empty() || url.password().is_some();
        if !url.has_host() || !is_bare || has_user {
            return Err(wrong());
        }
        match url.scheme() {
            "https" => {}
            "http" if self.allows_http()? => {}
            "http" => return Err(OpenS3Error::PlainHttp { name, value: value.to_owned() }),
            _ => return Err(wrong()),
        }
        Ok(Some(url.as_str().trim_end_matches('/').to_owned()))
    }

    /// The client library's settings.
    pub(crate) fn builder(&self) -> Result<AmazonS3Builder, OpenS3Error> {
        let mut builder = AmazonS3Builder::new();
        for (name, value) in &self.0 {
            if let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>()
                && !matches!(key, AmazonS3ConfigKey::Endpoint | AmazonS3ConfigKey::S3Endpoint)
            {
                builder = builder.with_config(key, value);
            }
        }
        Ok(match self.endpoint()? {
            Some(endpoint) => builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint),
            None => builder,
        })
    }

    /// Who gives out credentials, unless they stand in the variables themselves or none are used.
    pub(crate) fn source(&self) -> Result<Option<Source>, OpenS3Error> {
        let stands_here = self.get("AWS_ACCESS_KEY_ID").or(self.get("AWS_SECRET_ACCESS_KEY")).is_some();
        if stands_here || self.flag("AWS_SKIP_SIGNATURE")? {
            return Ok(None);
        }
        if let (Some(token_file), Some(role)) =
            (self.get("AWS_WEB_IDENTITY_TOKEN_FILE"), self.get("AWS_ROLE_ARN"))
        {
            return Ok(Some(Source::WebIdentity {
                token_file: token_file.into(),
                role: role.to_owned(),
                session: self.get("AWS_ROLE_SESSION_NAME").unwrap_or("wasmkeep").to_owned(),
                endpoint: self.sts_endpoint()?,
            }));
        }
        let relative = self.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        let url = match (relative, self.get("AWS_CONTAINER_CREDENTIALS_FULL_URI")) {
            (Some(path), _) => Some(format!("{CONTAINER_HOST}{path}")),
            (None, full) => full.map(str::to_owned),
        };
        if let Some(url) = url {
            let file = self.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
            let text = self.get("AWS_CONTAINER_AUTHORIZATION_TOKEN");
            let token = match (file, text) {
                (Some(file), _) => ContainerToken::File(file.into()),
                (None, Some(text)) => ContainerToken::Text(text.to_owned()),
                (None, None) => ContainerToken::None,
            };
            return Ok(Some(Source::Container { url, token }));
        }
        let endpoint = self.get("AWS_METADATA_ENDPOINT").unwrap_or(METADATA_ENDPOINT);
        Ok(Some(Source::Instance {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            falls_back: self.flag("AWS_IMDSV1_FALLBACK")?,
        }))
    }

    /// The identity token goes there, so it has to be encrypted as the bucket's own requests have.
    fn sts_endpoint(&self) -> Result<String, OpenS3Error> {
        const NAME: &str = "AWS_ENDPOINT_URL_STS";
        let Some(value) = self.get(NAME) else {
            let region = self.get("AWS_REGION").or(self.get("AWS_DEFAULT_REGION")).unwrap_or("us-east-1");
            return Ok(format!("https://sts.{region}.amazonaws.com"));
        };
        match Url::parse(value) {
            Ok(url) if url.scheme() == "https" || (url.scheme() == "http" && self.allows_http()?) => {
                Ok(value.to_owned())
            }
            Ok(url) if url.scheme() == "http" => {
                Err(OpenS3Error::PlainHttp { name: NAME, value: value.to_owned() })
            }
            _ => Err(OpenS3Error::Endpoint { name: NAME, value: value.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        Settings::new(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    // R-FLAG-4
    #[test]
    fn every_form_of_an_endpoint_means_one_thing() {
        for (name, value, wanted) in [
            ("AWS_ENDPOINT", "https://s3.example.com", "https://s3.example.com"),
            ("AWS_ENDPOINT", "https://s3.example.com/", "https://s3.example.com"),
            ("AWS_ENDPOINT_URL", "https://s3.example.com:9000", "https://s3.example.com:9000"),
            (
                "AWS_ENDPOINT_URL_S3",
                "https://h.example.com/storage/v1/s3/",
                "https://h.example.com/storage/v1/s3",
            ),
            ("AWS_ENDPOINT", "HTTPS://S3.Example.com//", "https://s3.example.com"),
            ("AWS_ENDPOINT", "https://[::1]:9000/", "https://[::1]:9000"),
        ] {
            assert_eq!(
                settings(&[(name, value)]).endpoint().unwrap().as_deref(),
                Some(wanted),
                "{name}={value}"
            );
        }
        assert_eq!(settings(&[("AWS_ENDPOINT", "")]).endpoint().unwrap(), None);
        let both = [("AWS_ENDPOINT", "https://a.example"), ("AWS_ENDPOINT_URL_S3", "https://b.example")];
        assert_eq!(settings(&both).endpoint().unwrap().as_deref(), Some("https://b.example"));
    }

    // R-FLAG-4
    #[test]
    fn plain_http_is_allowed_by_every_word_the_client_library_takes() {
        let endpoint = ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9000/");
        for word in ["true", "TRUE", "True", "1", "yes", "on", "y"] {
            let url = settings(&[endpoint, ("AWS_ALLOW_HTTP", word)]).endpoint().unwrap();
            assert_eq!(url.as_deref(), Some("http://127.0.0.1:9000"), "{word}");
        }
        for word in ["false", "0", "no", ""] {
            let error = settings(&[endpoint, ("AWS_ALLOW_HTTP", word)]).endpoint().unwrap_err().to_string();
            assert!(
                error.contains("AWS_ENDPOINT_URL_S3") && error.contains("AWS_ALLOW_HTTP=true"),
                "{error}"
            );
        }
        let error = settings(&[endpoint, ("AWS_ALLOW_HTTP", "maybe")]).endpoint().unwrap_err().to_string();
        assert!(error.contains("\"maybe\"") && error.contains("true or false"), "{error}");
    }

    #[test]
    fn what_is_no_endpoint_is_refused_with_the_variable_it_came_from() {
        for value in [
            "minio:9000",
            "localhost",
            "ftp://h",
            "https://",
            "https://h/?x=1",
            "https://h/#x",
            "https://u:p@h",
        ] {
            let error = settings(&[("AWS_ENDPOINT_URL", value)]).endpoint().unwrap_err().to_string();
            assert!(
                error.contains("AWS_ENDPOINT_URL is") && error.contains("https://HOST"),
                "{value}: {error}"
            );
        }
    }

    // R-FLAG-4
    #[test]
    fn credentials_come_from_the_first_source_that_is_set() {
        let keys = ("AWS_ACCESS_KEY_ID", "k");
        let web = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/t"), ("AWS_ROLE_ARN", "arn:r")];
        let full = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1/c");
        assert!(settings(&[keys, full]).source().unwrap().is_none());
        assert!(settings(&[("AWS_SKIP_SIGNATURE", "true")]).source().unwrap().is_none());
        let source = settings(&[web[0], web[1], full, ("AWS_REGION", "eu-west-1")]).source().unwrap();
        assert!(
            matches!(&source, Some(Source::WebIdentity { endpoint, .. }) if endpoint == "https://sts.eu-west-1.amazonaws.com"),
            "{source:?}"
        );
        let plain = ("AWS_ENDPOINT_URL_STS", "http://sts.local");
        assert!(
            settings(&[web[0], web[1], plain])
                .source()
                .unwrap_err()
                .to_string()
                .contains("AWS_ENDPOINT_URL_STS")
        );
        let source = settings(&[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/x")]).source().unwrap();
        assert!(
            matches!(&source, Some(Source::Container { url, token: ContainerToken::None }) if url == "http://169.254.170.2/v2/x"),
            "{source:?}"
        );
        assert!(matches!(settings(&[full]).source().unwrap(), Some(Source::Container { .. })));
        assert!(matches!(settings(&[]).source().unwrap(), Some(Source::Instance { falls_back: false, .. })));
    }
}
