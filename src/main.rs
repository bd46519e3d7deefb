//! The program: everything it does is in the library.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    tidegate::cli::Cli::parse().execute()
}
