//! A bank that moves money between accounts, which are other actors.
//!
//! `POST /deposit` takes `{"id", "to", "amount"}`, `POST /transfer` `{"id", "from", "to", "amount"}`;
//! `GET /balance?of=NAME` asks one account. A transfer whose outcome is not known is asked for again with the same id:
//! an account books each id once.

use serde::{Deserialize, Serialize};
use wasmkeep_sdk::{CallError, CallRequest, Error, Handle, Request, Response, Result, actor, call};

const BODY_BYTES_MAX: usize = 4096;

#[derive(Deserialize)]
struct Transfer {
    id: String,
    from: Option<String>,
    to: String,
    amount: u32,
}

/// What an account takes.
#[derive(Serialize)]
struct Booking<'a> {
    transfer: &'a str,
    amount: u32,
}

struct Bank;

impl Handle for Bank {
    fn handle(mut request: Request) -> Result<Response> {
        let balance = match (request.method(), request.path()) {
            ("GET", "/balance") => {
                let of = request.query_value("of").ok_or_else(|| Error::new(400, "of= is missing"))?;
                ask(&of, CallRequest::get("/"))?
            }
            ("POST", "/deposit" | "/transfer") => transfer(&request.json(BODY_BYTES_MAX)?)?,
            _ => return Err(Error::new(404, "a bank takes /balance, /deposit and /transfer")),
        };
        Response::json(&balance)
    }
}

/// Answers what the account given to has then.
fn transfer(transfer: &Transfer) -> Result<i64> {
    let booking = Booking { transfer: &transfer.id, amount: transfer.amount };
    if let Some(from) = &transfer.from {
        ask(from, CallRequest::post("/withdraw").json(&booking)?)?;
    }
    ask(&transfer.to, CallRequest::post("/deposit").json(&booking)?)
}

/// Asks an account. Whatever keeps it from answering, the client may ask again.
fn ask(account: &str, request: CallRequest) -> Result<i64> {
    match call("account", account, request) {
        Ok(response) if response.is_success() => response.json(),
        Ok(response) => Err(Error::new(response.status(), response.text().trim_end())),
        Err(CallError::Overloaded) => Err(Error::new(503, "the account is busy; ask again")),
        Err(error) => Err(Error::new(500, format!("{error}; ask again with the same id"))),
    }
}

actor!(Bank);
