//! An actor that does with its WebSockets what requests and messages ask for, so that tests can see everything the
//! contract promises of them.
//!
//! | request | does |
//! |---|---|
//! | `GET /connections?tag=T` | lists them |
//! | `GET /log` | what the hooks saw, in order |
//! | `GET /made` | events this instance has seen: 1 is a new instance |
//! | `POST /send?socket=S`, `POST /broadcast?tag=T` | sends the request's body as text, or `bytes=N` zeros |
//! | `POST /attach?socket=S` | the body becomes the attachment |
//! | `POST /close?socket=S&code=C&reason=R` | closes |
//! | `POST /sleep?ms=N`, `POST /delete` | waits, deletes the actor |
//!
//! A socket is opened at any path: `?tags=a,b&note=N&protocol=P` say how it is let in, `/refuse?status=N` refuses
//! it, `/trap` traps, `/slow?ms=N` waits first, `/greet` sends two messages before it is let in. A message comes
//! back as it was, unless it is a command: `!log TEXT`, `!trap`, `!sleep MS`, `!note`, `!close CODE REASON`.

use std::{cell::Cell, thread, time::Duration};

use serde_json::{Value as Json, json};
use wasmkeep_sdk::{
    Error, Handle, Init, Request, Response, Result, WebSocketClose, WebSocketMessage, WebSocketOpen, actor,
    actors::Headers,
    params, query_value, storage,
    websockets::{self, Acceptance, Connection, Message, SocketId},
};

const BODY_BYTES_MAX: usize = 2 << 20;

thread_local! {
    static SEEN: Cell<u32> = const { Cell::new(0) };
}

struct Sockets;

actor!(Sockets, init, websocket_open, websocket_message, websocket_close);

impl Init for Sockets {
    fn init() -> Result<()> {
        storage::exec("CREATE TABLE IF NOT EXISTS seen (id INTEGER PRIMARY KEY, what TEXT)", params![])?;
        Ok(())
    }
}

fn note(what: String) {
    SEEN.set(SEEN.get() + 1);
    storage::exec("INSERT INTO seen (what) VALUES (?)", params![what]).expect("the log can be written");
}

impl Handle for Sockets {
    fn handle(mut request: Request) -> Result<Response> {
        SEEN.set(SEEN.get() + 1);
        let text = |name| request.query_value(name);
        let number = |name| text(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        let (socket, tag, bytes) = (number("socket"), text("tag"), number("bytes"));
        let (code, reason) = (number("code") as u16, text("reason").unwrap_or_default());
        let wait = Duration::from_millis(number("ms"));
        let (method, path) = (request.method().to_owned(), request.path().to_owned());
        let body = request.text(BODY_BYTES_MAX)?;
        let message = || match bytes {
            0 => Message::Text(body.clone()),
            bytes => Message::Binary(vec![0; bytes as usize]),
        };
        let answer = match (&*method, &*path) {
            ("GET", "/connections") => outcome(
                websockets::connections(tag.as_deref()).map(|all| all.iter().map(about).collect::<Vec<_>>()),
            ),
            ("GET", "/log") => {
                json!(storage::query::<String>("SELECT what FROM seen ORDER BY id", params![])?)
            }
            ("GET", "/made") => json!(SEEN.get()),
            ("POST", "/send") => outcome(websockets::send(socket, &message())),
            ("POST", "/broadcast") => outcome(websockets::broadcast(tag.as_deref(), &message())),
            ("POST", "/attach") => outcome(websockets::set_attachment(socket, body.as_bytes())),
            ("POST", "/close") => outcome(websockets::close(socket, code, &reason)),
            ("POST", "/sleep") => {
                thread::sleep(wait);
                Json::Null
            }
            ("POST", "/delete") => {
                storage::delete_self();
                Json::Null
            }
            _ => return Err(Error::new(404, "see the head of this actor's source")),
        };
        Response::json(&answer)
    }
}

fn about(connection: &Connection) -> Json {
    json!({
        "id": connection.id,
        "tags": connection.tags,
        "attachment": String::from_utf8_lossy(&connection.attachment),
        "opened_ms": connection.opened_ms,
    })
}

/// `{"ok": …}` or `{"error": …}`, the error as the contract names it.
fn outcome<T: Into<Json>>(result: std::result::Result<T, websockets::Error>) -> Json {
    match result {
        Ok(value) => json!({ "ok": value.into() }),
        Err(error) => json!({ "error": format!("{error:?}") }),
    }
}

impl WebSocketOpen for Sockets {
    fn websocket_open(
        socket: SocketId,
        path_with_query: String,
        headers: Headers,
    ) -> Result<Acceptance, u16> {
        let path = path_with_query.split('?').next().unwrap_or_default();
        let value = |name: &str| query_value(&path_with_query, name);
        match path {
            "/trap" => panic!("asked to"),
            "/refuse" => return Err(value("status").and_then(|status| status.parse().ok()).unwrap_or(403)),
            "/slow" => {
                thread::sleep(Duration::from_millis(value("ms").and_then(|ms| ms.parse().ok()).unwrap_or(0)))
            }
            "/greet" => {
                for greeting in ["one", "two"] {
                    websockets::send(socket, &greeting.into()).expect("it can be sent to");
                }
            }
            "/headers" => {
                for (name, value) in &headers {
                    note(format!("header {name}: {}", String::from_utf8_lossy(value)));
                }
            }
            _ => {}
        }
        note(format!("open {socket} {path_with_query}"));
        let tags = value("tags");
        Ok(Acceptance {
            tags: tags.iter().flat_map(|tags| tags.split(',')).map(Into::into).collect(),
            attachment: value("note").unwrap_or_default().into(),
            protocol: value("protocol"),
        })
    }
}

impl WebSocketMessage for Sockets {
    fn websocket_message(socket: SocketId, message: Message) {
        SEEN.set(SEEN.get() + 1);
        let Message::Text(text) = &message else {
            let _ = websockets::send(socket, &message);
            return;
        };
        match text.split_once(' ').unwrap_or((text, "")) {
            ("!log", text) => note(format!("message {socket} {text}")),
            ("!trap", _) => panic!("asked to"),
            ("!sleep", ms) => {
                thread::sleep(Duration::from_millis(ms.parse().unwrap_or(0)));
                let _ = websockets::send(socket, &message);
            }
            ("!note", _) => {
                let all = websockets::connections(None).unwrap_or_default();
                let own = all.iter().find(|connection| connection.id == socket).map(about);
                let _ = websockets::send(socket, &Message::Text(json!([own, SEEN.get()]).to_string()));
            }
            ("!close", how) => {
                let (code, reason) = how.split_once(' ').unwrap_or((how, ""));
                let _ = websockets::close(socket, code.parse().unwrap_or(0), reason);
            }
            _ => {
                // Gone, when the client left meanwhile.
                let _ = websockets::send(socket, &message);
            }
        }
    }
}

impl WebSocketClose for Sockets {
    fn websocket_close(socket: SocketId, code: u16, reason: String) {
        note(format!("close {socket} {code} {reason}"));
        if reason == "!trap" {
            panic!("asked to");
        }
    }
}
