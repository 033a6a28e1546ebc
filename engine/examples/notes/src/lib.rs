//! Notes with tags and full-text search, as a JSON API.
//!
//! | request | answer |
//! |---|---|
//! | `POST /notes` `{"title", "body", "tags"}` | 201 and the note |
//! | `GET /notes` | the newest 50; `?q=WORDS` those that have all the words, `?tag=TAG` those with the tag |
//! | `GET /notes/ID`, `DELETE /notes/ID` | the note, 204 |
//! | `GET /tags` | how many notes each tag has |

mod search;

use serde::{Deserialize, Serialize};
use wasmkeep_sdk::{Error, Handle, Init, Request, Response, Result, actor, params, storage};

const BODY_BYTES_MAX: usize = 1 << 20;
const NOTES_LISTED_MAX: i64 = 50;

/// The index holds no text of its own: it reads that of the table, and the triggers keep the two alike.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS note (
        id INTEGER PRIMARY KEY,
        title TEXT NOT NULL,
        body TEXT NOT NULL,
        tags TEXT NOT NULL CHECK (json_type(tags) = 'array')
    );
    CREATE VIRTUAL TABLE IF NOT EXISTS note_words USING fts5 (title, body, content = 'note', content_rowid = 'id');
    CREATE TRIGGER IF NOT EXISTS note_added AFTER INSERT ON note BEGIN
        INSERT INTO note_words (rowid, title, body) VALUES (new.id, new.title, new.body);
    END;
    CREATE TRIGGER IF NOT EXISTS note_removed AFTER DELETE ON note BEGIN
        INSERT INTO note_words (note_words, rowid, title, body) VALUES ('delete', old.id, old.title, old.body);
    END;";

const LIST: &str = "
    SELECT id, title, body, tags FROM note
    WHERE (?1 IS NULL OR id IN (SELECT rowid FROM note_words WHERE note_words MATCH ?1))
      AND (?2 IS NULL OR EXISTS (SELECT 1 FROM json_each(note.tags) WHERE value = ?2))
    ORDER BY id DESC LIMIT ?3";

#[derive(Deserialize)]
struct Draft {
    title: String,
    #[serde(default)]
    body: String,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Serialize)]
struct Note {
    id: i64,
    title: String,
    body: String,
    tags: Vec<String>,
}

#[derive(Serialize)]
struct Tag {
    tag: String,
    notes: i64,
}

struct Notes;

impl Init for Notes {
    fn init() -> Result<()> {
        Ok(storage::exec_script(SCHEMA)?)
    }
}

impl Handle for Notes {
    fn handle(mut request: Request) -> Result<Response> {
        let (method, path) = (request.method().to_owned(), request.path().to_owned());
        match (method.as_str(), path.as_str(), path.strip_prefix("/notes/")) {
            ("POST", "/notes", _) => add(request.json(BODY_BYTES_MAX)?),
            ("GET", "/notes", _) => list(&request),
            ("GET", "/tags", _) => tags(),
            ("GET", _, Some(id)) => read(number(id)?),
            ("DELETE", _, Some(id)) => remove(number(id)?),
            _ => Err(Error::new(404, "there are /notes, /notes/ID and /tags")),
        }
    }
}

fn add(draft: Draft) -> Result<Response> {
    if draft.title.trim().is_empty() {
        return Err(Error::new(400, "a note needs a title"));
    }
    let tags = serde_json::to_string(&draft.tags)?;
    let id = storage::query_one(
        "INSERT INTO note (title, body, tags) VALUES (?, ?, ?) RETURNING id",
        params![&draft.title, &draft.body, tags],
    )?;
    let note = Note { id, title: draft.title, body: draft.body, tags: draft.tags };
    Ok(Response::json(&note)?.status(201))
}

fn list(request: &Request) -> Result<Response> {
    let words = request.query_value("q").and_then(|words| search::all_words(&words));
    let tag = request.query_value("tag");
    let rows = storage::query(LIST, params![words, tag, NOTES_LISTED_MAX])?;
    let notes = rows.into_iter().map(note).collect::<Result<Vec<_>>>()?;
    Response::json(&notes)
}

fn read(id: i64) -> Result<Response> {
    let row = storage::query_optional("SELECT id, title, body, tags FROM note WHERE id = ?", params![id])?;
    Response::json(&note(row.ok_or_else(no_such_note)?)?)
}

fn remove(id: i64) -> Result<Response> {
    match storage::exec("DELETE FROM note WHERE id = ?", params![id])?.rows {
        0 => Err(no_such_note()),
        _ => Ok(Response::default().status(204)),
    }
}

fn tags() -> Result<Response> {
    let rows = storage::query(
        "SELECT value, count(*) FROM note, json_each(note.tags) GROUP BY value ORDER BY value",
        params![],
    )?;
    let tags: Vec<_> = rows.into_iter().map(|(tag, notes)| Tag { tag, notes }).collect();
    Response::json(&tags)
}

fn note((id, title, body, tags): (i64, String, String, String)) -> Result<Note> {
    Ok(Note { id, title, body, tags: serde_json::from_str(&tags)? })
}

fn number(id: &str) -> Result<i64> {
    id.parse().map_err(|_| no_such_note())
}

fn no_such_note() -> Error {
    Error::new(404, "there is no such note")
}

actor!(Notes, init);
