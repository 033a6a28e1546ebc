//! Chromium over WebDriver: one browser, its tabs, and what a person would do in them.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::support::agent;

/// The key under which WebDriver gives elements.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// No screen, no account, and nothing that leaves this machine.
const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
];

/// A running browser; it ends when dropped.
pub struct Browser {
    driver: Child,
    session: String,
    _profile: TempDir,
}

/// One of its tabs.
pub struct Tab<'a> {
    browser: &'a Browser,
    handle: String,
}

impl Browser {
    pub fn start() -> Browser {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver is installed: run scripts/test-browser");
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines
            .map_while(Result::ok)
            .find_map(|line| line.split_once("successfully on port ").map(|(_, port)| port.to_owned()))
            .expect("the driver says its port");
        let profile = tempfile::tempdir().unwrap();
        let mut arguments: Vec<String> = FLAGS.iter().map(ToString::to_string).collect();
        arguments.push(format!("--user-data-dir={}", profile.path().display()));
        let options = json!({ "args": arguments });
        let wanted = json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": options } } });
        let driver_url = format!("http://127.0.0.1:{}", port.trim_end_matches('.'));
        let session = call("POST", &format!("{driver_url}/session"), &wanted);
        let id = session["sessionId"].as_str().expect("a session");
        Browser { driver, session: format!("{driver_url}/session/{id}"), _profile: profile }
    }

    /// The tab the browser begins with, at `url`.
    pub fn first_tab(&self, url: &str) -> Tab<'_> {
        let handle = self.call("GET", "window", &Json::Null).as_str().unwrap().to_owned();
        self.tab(handle, url)
    }

    /// A new tab at `url`.
    pub fn new_tab(&self, url: &str) -> Tab<'_> {
        let made = self.call("POST", "window/new", &json!({ "type": "tab" }));
        self.tab(made["handle"].as_str().unwrap().to_owned(), url)
    }

    fn tab(&self, handle: String, url: &str) -> Tab<'_> {
        let tab = Tab { browser: self, handle };
        tab.call("POST", "url", &json!({ "url": url }));
        tab
    }

    fn call(&self, method: &str, path: &str, body: &Json) -> Json {
        call(method, &format!("{}/{path}", self.session), body)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = agent().delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Tab<'_> {
    /// What a script returns, as text.
    pub fn run(&self, script: &str) -> String {
        let result = self.call("POST", "execute/sync", &json!({ "script": script, "args": [] }));
        result.as_str().map_or_else(|| result.to_string(), ToOwned::to_owned)
    }

    pub fn type_into(&self, selector: &str, text: &str) {
        let how = json!({ "using": "css selector", "value": selector });
        let found = self.call("POST", "element", &how);
        let element = found[ELEMENT].as_str().unwrap();
        self.call("POST", &format!("element/{element}/value"), &json!({ "text": text }));
    }

    pub fn reload(&self) {
        self.call("POST", "refresh", &json!({}));
    }

    pub fn close(self) {
        self.call("DELETE", "window", &Json::Null);
    }

    fn call(&self, method: &str, path: &str, body: &Json) -> Json {
        self.browser.call("POST", "window", &json!({ "handle": self.handle }));
        self.browser.call(method, path, body)
    }
}

/// One command; what it gave.
fn call(method: &str, url: &str, body: &Json) -> Json {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = ureq::http::Request::builder()
        .method(method)
        .uri(url)
        .header("content-type", "application/json")
        .body(body)
        .unwrap();
    let mut answer = agent().run(request).unwrap_or_else(|error| panic!("{method} {url}: {error}"));
    let text = answer.body_mut().read_to_string().unwrap();
    assert_eq!(answer.status(), 200, "{method} {url}: {text}");
    serde_json::from_str::<Json>(&text).unwrap()["value"].take()
}
