//! Close codes of WebSockets (RFC 6455 section 7.4): the ones the platform uses, and who may send which.

/// The conversation is over.
pub const NORMAL: u16 = 1000;

/// The node stops.
pub const GOING_AWAY: u16 = 1001;

/// The client broke the protocol.
pub const PROTOCOL_ERROR: u16 = 1002;

/// Never sent: the client closed without saying why.
pub const NO_CODE: u16 = 1005;

/// Never sent: the client was lost.
pub const LOST: u16 = 1006;

/// A text that is not UTF-8.
pub const NOT_UTF8: u16 = 1007;

/// The client does not read what it is sent.
pub const POLICY: u16 = 1008;

/// A message over the limit.
pub const TOO_LARGE: u16 = 1009;

/// The actor cannot take the client's messages.
pub const UNABLE: u16 = 1011;

/// The actor is elsewhere; connect again.
pub const RESTART: u16 = 1012;

/// The longest reason, in bytes: what a control frame holds beside the code.
pub const REASON_BYTES_MAX: usize = 123;

/// Whether a client's close frame may carry `code`.
#[must_use]
pub fn may_come_from_client(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

/// Whether an actor may close a socket with `code`: the codes below 3000 say what only the platform knows.
#[must_use]
pub fn may_come_from_actor(code: u16) -> bool {
    matches!(code, NORMAL | 3000..=4999)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_has_its_codes() {
        // case W3
        for (code, client, actor) in [
            (0, false, false),
            (999, false, false),
            (1000, true, true),
            (1001, true, false),
            (1003, true, false),
            (1004, false, false),
            (1005, false, false),
            (1006, false, false),
            (1007, true, false),
            (1014, true, false),
            (1015, false, false),
            (1016, false, false),
            (2999, false, false),
            (3000, true, true),
            (4999, true, true),
            (5000, false, false),
            (65535, false, false),
        ] {
            assert_eq!((may_come_from_client(code), may_come_from_actor(code)), (client, actor), "{code}");
        }
    }
}
