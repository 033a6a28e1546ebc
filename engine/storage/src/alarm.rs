//! The actor's alarm, a row of the platform's own: what the guest writes of it is part of the guest's transaction.

use std::path::Path;

use wasmkeep_protocol::alarm::{Alarm, Attempt, During, Wake};

use crate::{
    connection::Connection,
    database::{Config, Database},
    error::{Error, OpenError},
    image, rows, settings,
    value::Value,
};

/// The row that holds the alarm.
const ALARM_KEY: &str = "alarm";

/// The row that holds the actor's name, for an actor whose file does not tell it.
const NAME_KEY: &str = "name";

/// What a closed database keeps of its actor's alarm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptAlarm {
    /// The alarm.
    pub alarm: Alarm,
    /// The actor's name, when its file does not tell it.
    pub name: Option<String>,
}

/// Looks for an alarm in the database at `path`, which nobody has open. Blocking. None when there is no file, or
/// no alarm in it.
///
/// # Errors
/// As [`Database::open`].
pub fn peek_alarm(path: &Path, config: &Config) -> Result<Option<KeptAlarm>, OpenError> {
    settings::start()?;
    if !image::ensure_if_there(path).map_err(|source| OpenError::of_file(path, source))? {
        return Ok(None);
    }
    let connection = Connection::closed(path, config.quota_bytes, &config.pacer);
    connection.open(false)?;
    let kept = read(&connection).and_then(|alarm| Ok((alarm, text(&connection, NAME_KEY)?)));
    let (alarm, name) = kept.map_err(|error| match error {
        Error::Sqlite(error) => OpenError::Sqlite {
            path: path.to_owned(),
            extended_code: error.extended_code,
            message: error.message,
        },
        other => OpenError::Damaged { path: path.to_owned(), message: other.to_string() },
    })?;
    Ok(alarm.wake().map(|_| KeptAlarm { alarm, name }))
}

fn text(connection: &Connection, key: &str) -> Result<Option<String>, Error> {
    Ok(match rows::read(connection, key)? {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    })
}

fn read(connection: &Connection) -> Result<Alarm, Error> {
    match text(connection, ALARM_KEY)? {
        None => Ok(Alarm::default()),
        Some(text) => text.parse().map_err(|error| Error::refused(format!("{error}: {text:?}"))),
    }
}

impl Database {
    /// Gives the actor's name, to be kept beside its alarm: for an actor whose file does not tell it.
    #[must_use]
    pub fn named(mut self, name: String) -> Self {
        self.name = Some(name);
        self
    }

    /// What is kept of the alarm, the open transaction included.
    ///
    /// # Errors
    /// What SQLite says; [`Error::Refused`] while the connection is away.
    pub fn alarm(&self) -> Result<Alarm, Error> {
        read(self.here()?)
    }

    /// The alarm that is pending for the guest.
    ///
    /// # Errors
    /// As [`Database::alarm`].
    pub fn pending_alarm(&self) -> Result<Option<u64>, Error> {
        Ok(self.alarm()?.get(self.during()))
    }

    /// Sets the alarm, in the open transaction if there is one. `announce` is told when it will want attention
    /// *before* that is written: an index outside must never be later than the database (case A1).
    ///
    /// # Errors
    /// What `announce` says, and nothing was written; else what SQLite says.
    pub fn set_alarm<E: From<Error>>(
        &self,
        due_ms: u64,
        announce: impl FnOnce(Wake) -> Result<(), E>,
    ) -> Result<(), E> {
        let connection = self.here()?;
        let mut alarm = read(connection)?;
        alarm.set(due_ms, self.during());
        if let Some(wake) = alarm.wake() {
            announce(wake)?;
        }
        Ok(self.write(connection, alarm)?)
    }

    /// Clears the alarm, in the open transaction if there is one.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn clear_alarm(&self) -> Result<(), Error> {
        let connection = self.here()?;
        let before = read(connection)?;
        let mut alarm = before;
        alarm.clear(self.during());
        if alarm == before {
            return Ok(());
        }
        self.write(connection, alarm)
    }

    /// Begins the attempt that is due, if one is: writes it down, so that it is made again if the process ends.
    ///
    /// # Errors
    /// What SQLite says; then no attempt may be made.
    pub fn begin_alarm(&self, now_ms: u64) -> Result<Option<Attempt>, Error> {
        let connection = self.here()?;
        let mut alarm = read(connection)?;
        self.alarm_touched.set(true);
        let Some(attempt) = alarm.begin(now_ms) else { return Ok(None) };
        rows::within_reserve(connection, || self.write(connection, alarm))?;
        self.in_alarm.set(true);
        Ok(Some(attempt))
    }

    /// Ends the attempt that was begun. To be called when its event has ended, outside any transaction.
    ///
    /// # Errors
    /// What SQLite says; the attempt will then be made again.
    pub fn end_alarm(&self, now_ms: u64, succeeded: bool) -> Result<(), Error> {
        self.in_alarm.set(false);
        let connection = self.here()?;
        let mut alarm = read(connection)?;
        if succeeded {
            alarm.succeeded();
        } else {
            alarm.failed(now_ms);
        }
        rows::within_reserve(connection, || self.write(connection, alarm))
    }

    /// Whether the alarm may be another than when this was last asked.
    pub fn take_alarm_touched(&self) -> bool {
        self.alarm_touched.replace(false)
    }

    fn during(&self) -> During {
        if self.in_alarm.get() { During::Attempt } else { During::Other }
    }

    fn write(&self, connection: &Connection, alarm: Alarm) -> Result<(), Error> {
        self.alarm_touched.set(true);
        if let Some(name) = &self.name {
            rows::write(connection, NAME_KEY, Value::Text(name.clone()))?;
        }
        rows::write(connection, ALARM_KEY, Value::Text(alarm.to_string()))
    }
}
