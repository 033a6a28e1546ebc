//! Output that costs its line, and not the process, when nobody reads it or the disk is full: the standard macros panic.

/// As the standard one, but for that.
#[macro_export]
macro_rules! println {
    ($($text:tt)*) => {{
        use ::std::io::Write as _;
        let _ = ::std::writeln!(::std::io::stdout(), $($text)*);
    }};
}

/// As the standard one, but for that.
#[macro_export]
macro_rules! eprintln {
    ($($text:tt)*) => {{
        use ::std::io::Write as _;
        let _ = ::std::writeln!(::std::io::stderr(), $($text)*);
    }};
}
