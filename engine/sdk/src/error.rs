//! Why an actor could not answer, and which response says so.

use std::{error, fmt};

use crate::Response;

/// What a handler or a hook returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an event failed.
///
/// Any error converts into it with `?`, and is then answered with status 500 and a body that says nothing,
/// while the error itself goes to the log. [`Error::new`] makes one whose text the client may read.
///
/// It does not implement [`std::error::Error`], which is what lets every such error convert into it.
#[derive(Debug)]
pub struct Error(Kind);

#[derive(Debug)]
enum Kind {
    /// For the client: a status and the body.
    Told { status: u16, message: String },
    /// For the log alone.
    Hidden(Box<dyn error::Error + Send + Sync>),
}

impl Error {
    /// An error whose `message` is the body of a response with `status` (400 to 599).
    #[must_use]
    pub fn new(status: u16, message: impl Into<String>) -> Error {
        Error(Kind::Told { status, message: message.into() })
    }

    /// The status of the response it becomes.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self.0 {
            Kind::Told { status, .. } => status,
            Kind::Hidden(_) => 500,
        }
    }

    /// The response the client gets. An error of the actor's own (5xx) is logged.
    pub(crate) fn into_response(self) -> Response {
        if self.status() >= 500 {
            eprintln!("error: {self}");
        }
        match self.0 {
            Kind::Told { status, message } => Response::text(message + "\n").status(status),
            Kind::Hidden(_) => Response::text("the actor failed to answer\n").status(500),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Told { message, .. } => f.write_str(message),
            Kind::Hidden(error) => error.fmt(f),
        }
    }
}

impl<E: error::Error + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Error {
        Error(Kind::Hidden(Box::new(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_actors_own_shows_the_client_nothing() {
        let error = Error::from(std::io::Error::other("the secret path /srv/key"));
        assert_eq!(error.status(), 500);
        assert!(error.to_string().contains("secret"));
        let response = error.into_response();
        assert_eq!(response.status_code(), 500);
        assert_eq!(response.bytes(), Some(&b"the actor failed to answer\n"[..]));
    }

    #[test]
    fn an_error_made_for_the_client_keeps_its_status_and_text() {
        let response = Error::new(404, "no such note").into_response();
        assert_eq!(response.status_code(), 404);
        assert_eq!(response.bytes(), Some(&b"no such note\n"[..]));
    }
}
