//! `wasmkeep:actor/storage`: moves values between the guest's types and the database's.

use std::rc::Rc;

use send_wrapper::SendWrapper;
use wasmkeep_storage::{self as db, Database, Offload, limits::QUERY_ROWS_MAX};
use wasmtime::component::Resource;

use crate::{
    bindings::storage::{Changes, Error, Host, HostCursor, ResultSet, SqliteError, Value},
    state::ActorState,
};

/// A cursor in the hands of the guest. The database closes its statement when the event ends; used later, it
/// answers with an error.
pub struct OpenCursor(SendWrapper<Rc<db::Cursor>>);

type Rows = Vec<Vec<Value>>;

impl ActorState {
    fn database(&self) -> Result<Rc<Database>, Error> {
        match &self.database {
            Some(database) => Ok(Rc::clone(database)),
            None => {
                self.note_asked();
                Err(Error::Refused("this component has no database".into()))
            }
        }
    }
}

impl Host for ActorState {
    async fn exec(&mut self, sql: String, params: Vec<Value>) -> wasmtime::Result<Result<Changes, Error>> {
        let run = match self.database() {
            Ok(database) => {
                let offload = Rc::clone(&self.offload);
                SendWrapper::new(async move {
                    let done = database.exec(&sql, values_in(params)).await;
                    keep_wal_short(&database, &*offload).await;
                    done
                })
            }
            Err(error) => return Ok(Err(error)),
        };
        Ok(run.await.map(changes_out).map_err(error_out))
    }

    async fn exec_durable(
        &mut self,
        sql: String,
        params: Vec<Value>,
    ) -> wasmtime::Result<Result<Changes, Error>> {
        let run = match self.database() {
            Ok(database) => {
                let offload = Rc::clone(&self.offload);
                SendWrapper::new(async move {
                    let done = database.exec_durable(&*offload, &sql, values_in(params)).await;
                    keep_wal_short(&database, &*offload).await;
                    done
                })
            }
            Err(error) => return Ok(Err(error)),
        };
        Ok(run.await.map(changes_out).map_err(error_out))
    }

    async fn query(&mut self, sql: String, params: Vec<Value>) -> wasmtime::Result<Result<ResultSet, Error>> {
        let run = match self.database() {
            Ok(database) => {
                let offload = Rc::clone(&self.offload);
                SendWrapper::new(async move {
                    // A statement that writes may give rows.
                    let done = database.query(&sql, values_in(params)).await;
                    keep_wal_short(&database, &*offload).await;
                    done
                })
            }
            Err(error) => return Ok(Err(error)),
        };
        Ok(run.await.map(result_set_out).map_err(error_out))
    }

    async fn open_cursor(
        &mut self,
        sql: String,
        params: Vec<Value>,
    ) -> wasmtime::Result<Result<Resource<OpenCursor>, Error>> {
        let run = match self.database() {
            Ok(database) => SendWrapper::new(async move {
                database
                    .open_cursor(&sql, values_in(params))
                    .await
                    .map(|cursor| SendWrapper::new(Rc::new(cursor)))
            }),
            Err(error) => return Ok(Err(error)),
        };
        match run.await {
            Ok(cursor) => Ok(Ok(self.table.push(OpenCursor(cursor))?)),
            Err(error) => Ok(Err(error_out(error))),
        }
    }

    async fn exec_script(&mut self, sql: String) -> wasmtime::Result<Result<(), Error>> {
        let run = match self.database() {
            Ok(database) => {
                let offload = Rc::clone(&self.offload);
                SendWrapper::new(async move {
                    let done = database.exec_script(&sql).await;
                    keep_wal_short(&database, &*offload).await;
                    done
                })
            }
            Err(error) => return Ok(Err(error)),
        };
        Ok(run.await.map_err(error_out))
    }

    fn size(&mut self) -> wasmtime::Result<u64> {
        Ok(self.database().map_or(0, |database| database.size_bytes()))
    }

    fn delete_self(&mut self) -> wasmtime::Result<()> {
        self.note_asked();
        if let Ok(database) = self.database() {
            database.delete_self();
        }
        Ok(())
    }
}

impl HostCursor for ActorState {
    fn columns(&mut self, handle: Resource<OpenCursor>) -> wasmtime::Result<Vec<String>> {
        Ok(self.table.get(&handle)?.0.columns().to_vec())
    }

    async fn next(
        &mut self,
        handle: Resource<OpenCursor>,
        max: u32,
    ) -> wasmtime::Result<Result<Rows, Error>> {
        if !(1..=QUERY_ROWS_MAX).contains(&(max as usize)) {
            return Ok(Err(Error::Refused(format!("a cursor gives 1 to {QUERY_ROWS_MAX} rows at a time"))));
        }
        let cursor = Rc::clone(&self.table.get(&handle)?.0);
        let rows = SendWrapper::new(async move { cursor.next(max).await }).await;
        Ok(rows.map(rows_out).map_err(error_out))
    }

    fn drop(&mut self, handle: Resource<OpenCursor>) -> wasmtime::Result<()> {
        self.table.delete(handle)?;
        Ok(())
    }
}

/// Between two statements of one event: an event that writes much must not leave a WAL as long as that. A failure
/// is no answer to the statement, which stands; the database tells the next one what it has to know.
async fn keep_wal_short(database: &Database, offload: &dyn Offload) {
    if let Err(error) = database.keep_wal_short(offload).await {
        tracing::warn!(%error, ?database, "a checkpoint within an event failed");
    }
}

fn values_in(params: Vec<Value>) -> Vec<db::Value> {
    params
        .into_iter()
        .map(|value| match value {
            Value::Null => db::Value::Null,
            Value::Integer(integer) => db::Value::Integer(integer),
            Value::Real(real) => db::Value::Real(real),
            Value::Text(text) => db::Value::Text(text),
            Value::Blob(blob) => db::Value::Blob(blob),
        })
        .collect()
}

fn rows_out(rows: Vec<Vec<db::Value>>) -> Rows {
    rows.into_iter().map(|row| row.into_iter().map(value_out).collect()).collect()
}

fn value_out(value: db::Value) -> Value {
    match value {
        db::Value::Null => Value::Null,
        db::Value::Integer(integer) => Value::Integer(integer),
        db::Value::Real(real) => Value::Real(real),
        db::Value::Text(text) => Value::Text(text),
        db::Value::Blob(blob) => Value::Blob(blob),
    }
}

fn changes_out(changes: db::Changes) -> Changes {
    Changes { rows: changes.rows, last_insert_rowid: changes.last_insert_rowid }
}

fn result_set_out(set: db::ResultSet) -> ResultSet {
    ResultSet { columns: set.columns, rows: rows_out(set.rows) }
}

fn error_out(error: db::Error) -> Error {
    match error {
        db::Error::Sqlite(sqlite) => Error::Sqlite(SqliteError {
            extended_code: sqlite.extended_code,
            message: sqlite.message,
            sql_offset: sqlite.sql_offset,
        }),
        db::Error::Refused(reason) => Error::Refused(reason),
        db::Error::Full => Error::Full,
        db::Error::Interrupted => Error::Interrupted,
        db::Error::NotDurable(reason) => Error::NotDurable(reason),
    }
}
