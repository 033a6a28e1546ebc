//! `on-init` as the environment asks for it, since no request reaches it.
//!
//! `INIT_SQL` is a script to run. `INIT_THEN` is what follows: `error`, `trap`, `spin` or nothing.

use std::env;

use wasmkeep_sdk::{
    bindings::init::{Guest, export_init},
    storage,
};

use crate::{Sql, limits};

impl Guest for Sql {
    fn on_init() -> Result<(), String> {
        if let Ok(sql) = env::var("INIT_SQL") {
            storage::exec_script(&sql).map_err(|error| error.to_string())?;
        }
        match env::var("INIT_THEN").as_deref() {
            Ok("error") => Err("asked to fail".to_owned()),
            Ok("trap") => limits::trap(),
            Ok("spin") => limits::spin(),
            _ => Ok(()),
        }
    }
}

export_init!(Sql);
