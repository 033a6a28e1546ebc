//! What a flag's text means, and the sentence when it means nothing: it says the form to write.

use std::{
    fmt::Display,
    net::{SocketAddr, ToSocketAddrs},
    path::{Path, PathBuf},
    str::FromStr,
};

use wasmkeep_protocol::{ActorClass, access::Rule, durability::Durability};

/// The rule of a class's name.
const CLASS_RULE: &str =
    "a class is a small letter, then small letters, digits and hyphens, 64 characters at most";

/// A class.
pub(super) fn class(text: &str) -> Result<ActorClass, String> {
    text.parse().map_err(|error| format!("{error}; {CLASS_RULE}"))
}

/// `--actor`
pub(super) fn actor(text: &str) -> Result<(ActorClass, PathBuf), String> {
    if !text.contains('=') {
        let file = Path::new(text);
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let example = if class(stem).is_ok() && file.extension().is_some() {
            format!("{stem}={text}")
        } else {
            "counter=counter.wasm".to_owned()
        };
        return Err(format!("it does not say the class: write CLASS=FILE.wasm, like --actor {example}"));
    }
    pair(text, "CLASS=FILE.wasm")
}

/// `--access`
pub(super) fn access(text: &str) -> Result<(ActorClass, Rule), String> {
    pair(text, "CLASS=RULE, like counter=internal")
}

/// `--durability`
pub(super) fn durability(text: &str) -> Result<(ActorClass, Durability), String> {
    pair(text, "CLASS=WHEN, like counter=gate")
}

fn pair<B: FromStr<Err: Display>>(text: &str, form: &str) -> Result<(ActorClass, B), String> {
    let (left, right) = text.split_once('=').ok_or_else(|| format!("write it as {form}"))?;
    if right.is_empty() {
        return Err("nothing follows the '='".into());
    }
    let left = class(left).map_err(|error| format!("the class '{left}' cannot be used: {error}"))?;
    let right = right.parse().map_err(|error: B::Err| error.to_string())?;
    Ok((left, right))
}

/// Where to listen. A name is looked up; of several addresses the first IPv4 one is taken, since that is where most
/// clients look.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    const FORM: &str =
        "write ADDRESS:PORT, like 127.0.0.1:8080, [::1]:8080, or 0.0.0.0:8080 for every address";
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let parts = text.rsplit_once(':').filter(|(host, _)| !host.is_empty() && !host.contains([':', '/']));
    let Some((host, Ok(port))) = parts.map(|(host, port)| (host, port.parse::<u16>())) else {
        return Err(FORM.to_owned());
    };
    let found: Vec<SocketAddr> = (host, port)
        .to_socket_addrs()
        .map_err(|error| format!("the name '{host}' is not found ({error}); {FORM}"))?
        .collect();
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    first.copied().ok_or_else(|| format!("the name '{host}' has no address; {FORM}"))
}

/// A number above 0.
pub(super) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(number) => Ok(number),
        Err(_) => Err("must be a whole number".into()),
    }
}

/// A size of a request body that may be held in memory, in KiB.
pub(super) fn kib_of_a_body(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(kib) if kib <= 64 << 10 => Ok(kib),
        Ok(_) => Err("must be at most 65536".into()),
        Err(_) => Err("must be a whole number".into()),
    }
}
