//! A chat room. Each actor is a room; a WebSocket at `/?name=NAME` enters it, text sent on it is said to all, and
//! the room sleeps while nobody speaks. `GET /` answers what was said last.
//!
//! The room sends JSON: `{"said": {"who", "text"}}` and, whenever someone comes or goes, `{"here": [NAME, …]}`.

use serde_json::{Value as Json, json};
use wasmkeep_sdk::{
    Handle, Init, Request, Response, Result, WebSocketClose, WebSocketMessage, WebSocketOpen, actor,
    actors::Headers,
    params, query_value, storage,
    websockets::{self, Acceptance, Message, SocketId},
};

/// What a newcomer is told of the past.
const LINES_SHOWN: i64 = 50;

const NAME_BYTES_MAX: usize = 40;

struct Room;

actor!(Room, init, websocket_open, websocket_message, websocket_close);

impl Init for Room {
    fn init() -> Result<()> {
        storage::exec(
            "CREATE TABLE IF NOT EXISTS line (id INTEGER PRIMARY KEY, who TEXT NOT NULL, text TEXT NOT NULL)",
            params![],
        )?;
        Ok(())
    }
}

impl Handle for Room {
    fn handle(_: Request) -> Result<Response> {
        Response::json(&last_lines()?)
    }
}

fn last_lines() -> Result<Vec<Json>> {
    let rows: Vec<(String, String)> = storage::query(
        "SELECT who, text FROM (SELECT * FROM line ORDER BY id DESC LIMIT ?) ORDER BY id",
        params![LINES_SHOWN],
    )?;
    Ok(rows.into_iter().map(|(who, text)| said(&who, &text)).collect())
}

fn said(who: &str, text: &str) -> Json {
    json!({ "said": { "who": who, "text": text } })
}

impl WebSocketOpen for Room {
    fn websocket_open(socket: SocketId, path_with_query: String, _: Headers) -> Result<Acceptance, u16> {
        let name = query_value(&path_with_query, "name").unwrap_or_default();
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(400);
        }
        // Leaves when the socket is open, before anything else.
        for line in last_lines().map_err(|_| 500u16)? {
            let _ = websockets::send(socket, &line.to_string().into());
        }
        let _ = websockets::send(socket, &who_is_here(Some(&name)));
        let _ = websockets::broadcast(None, &who_is_here(Some(&name)));
        Ok(Acceptance { attachment: name.into(), ..Acceptance::default() })
    }
}

impl WebSocketMessage for Room {
    fn websocket_message(socket: SocketId, message: Message) {
        let Message::Text(text) = message else { return };
        let Some(who) = name_of(socket) else { return };
        storage::exec("INSERT INTO line (who, text) VALUES (?, ?)", params![&who, &text])
            .expect("what was said can be kept");
        let _ = websockets::broadcast(None, &said(&who, &text).to_string().into());
    }
}

impl WebSocketClose for Room {
    fn websocket_close(_: SocketId, _: u16, _: String) {
        let _ = websockets::broadcast(None, &who_is_here(None));
    }
}

fn name_of(socket: SocketId) -> Option<String> {
    let all = websockets::connections(None).ok()?;
    let own = all.into_iter().find(|connection| connection.id == socket)?;
    String::from_utf8(own.attachment).ok()
}

/// The names on the open sockets, and that of one who is about to enter.
fn who_is_here(entering: Option<&str>) -> Message {
    let all = websockets::connections(None).unwrap_or_default();
    let here = all.into_iter().filter_map(|connection| String::from_utf8(connection.attachment).ok());
    let names: Vec<String> = here.chain(entering.map(Into::into)).collect();
    json!({ "here": names }).to_string().into()
}
