//! An account that other actors book on. Serve it with `--access account=internal`, so that nobody else can.
//!
//! `POST /deposit` and `POST /withdraw` take `{"transfer": ID, "amount": N}` and answer the balance, as `GET /` does.
//! Each half of a transfer is booked once, however often it is asked for.

use serde::Deserialize;
use wasmkeep_sdk::{Error, Handle, Init, Request, Response, Result, actor, context, params, storage};

const BODY_BYTES_MAX: usize = 4096;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS booking (
        transfer TEXT NOT NULL,
        kind TEXT NOT NULL,
        amount INTEGER NOT NULL,
        booked_by TEXT NOT NULL,
        PRIMARY KEY (transfer, kind)
    )";

#[derive(Deserialize)]
struct Booking {
    transfer: String,
    amount: u32,
}

struct Account;

impl Init for Account {
    fn init() -> Result<()> {
        storage::exec(SCHEMA, params![])?;
        Ok(())
    }
}

impl Handle for Account {
    fn handle(mut request: Request) -> Result<Response> {
        let balance = match (request.method(), request.path()) {
            ("GET", "/") => balance()?,
            ("POST", "/deposit") => book("deposit", 1, &request.json(BODY_BYTES_MAX)?)?,
            ("POST", "/withdraw") => book("withdraw", -1, &request.json(BODY_BYTES_MAX)?)?,
            _ => return Err(Error::new(404, "an account takes GET /, POST /deposit and POST /withdraw")),
        };
        Response::json(&balance)
    }
}

fn balance() -> Result<i64> {
    Ok(storage::query_one("SELECT coalesce(sum(amount), 0) FROM booking", params![])?)
}

fn book(kind: &str, sign: i64, booking: &Booking) -> Result<i64> {
    let Some((_, bank)) = context::caller() else {
        return Err(Error::new(403, "only another actor books here"));
    };
    storage::transaction(|| {
        storage::exec(
            "INSERT INTO booking VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            params![&booking.transfer, kind, sign * i64::from(booking.amount), &bank],
        )?;
        match balance()? {
            balance @ 0.. => Ok(balance),
            _ => Err(Error::new(409, "there is not enough on the account")),
        }
    })
}

actor!(Account, init);
