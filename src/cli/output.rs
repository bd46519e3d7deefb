//! What commands print.

use std::fmt;
use std::io::{self, Write};

/// Standard output or standard error, line by line.
pub(super) struct Output(Box<dyn Write>);

impl Output {
    pub(super) fn stdout() -> Self {
        Self(Box::new(io::stdout()))
    }

    pub(super) fn stderr() -> Self {
        Self(Box::new(io::stderr()))
    }

    /// Prints a line and sends it off.
    pub(super) fn line(&mut self, line: impl fmt::Display) -> io::Result<()> {
        writeln!(self.0, "{line}")?;
        self.0.flush()
    }
}
