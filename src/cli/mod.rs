//! The command line: one file per subcommand.

mod admin;
mod advise;
mod check;
mod config;
mod demo;
mod drain;
mod explain;
mod export;
mod generate;
mod healthcheck;
pub mod live;
mod log_level;
mod output;
mod reconcile;
mod replay;
mod reset;
mod run;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::{ConfigFault, Loaded, Sources, host_name, load};
use output::Output;

/// Turns Kafka topics into per-window results by event time, exactly once.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, arg_required_else_help = true)]
#[command(
    after_help = "Start with `tidegate demo`, which needs no broker. `tidegate config --default` prints every key of the configuration with its meaning."
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the main job on a broker inside this process: nothing to install, nothing is kept.
    Demo(demo::Demo),
    /// Run the service until it is stopped (SIGTERM, SIGINT) or, with --until-end, to the end of the input.
    Run(run::Run),
    /// Ask a running service why a window has or has not fired.
    Explain(explain::Explain),
    /// Have a running service fire all open windows, commit and end.
    Drain(drain::Drain),
    /// Show or change which lines the log of a running service has.
    LogLevel(log_level::LogLevel),
    /// Ask the service on this machine whether it lives: exit code 0 if it does.
    Healthcheck(healthcheck::Healthcheck),
    /// Begin anew: move the group's offsets and empty the changelog, after showing what that means.
    Reset(reset::Reset),
    /// Send dead letters back to the topic they came from, after a fix, each once.
    Replay(replay::Replay),
    /// Merge late records into the rows that were published, each once.
    Reconcile(reconcile::Reconcile),
    /// Read a sample of a topic and say which bound, idle timeout and allowed lateness fit it, and what they cost.
    Advise(Box<advise::Advise>),
    /// Keep the results in a database table too, for dashboards.
    Export(export::Export),
    /// Read the configuration and say everything that is wrong with it, without connecting to anything; with --connect
    /// look at the cluster too.
    Check(check::Check),
    /// Print the configuration in effect, secrets hidden, or the reference of all keys.
    Config(config::Config),
    /// Write the demo's records, or the lines of a file, to a topic of a real broker.
    Generate(generate::Generate),
}

/// Where the configuration comes from.
#[derive(Debug, Args)]
struct Configuration {
    /// A TOML file; may be given several times, a later one wins.
    #[arg(long = "config", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A setting that wins over files and environment, such as `window.size=1m`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

impl Configuration {
    /// Whether there is any on the command line.
    fn is_given(&self) -> bool {
        !self.files.is_empty() || !self.overrides.is_empty()
    }

    fn load(&self) -> Result<Loaded, Failure> {
        let environment: std::collections::BTreeMap<_, _> = std::env::vars().collect();
        let host_name = host_name(&environment);
        let (files, overrides) = (self.files.clone(), self.overrides.clone());
        let sources = Sources { files, environment, overrides, host_name, strategies: Vec::new() };
        let loaded = load(&sources).map_err(|faults| Failure::Configuration(lines(&faults)))?;
        let mut problems = crate::kafka::check_properties(&loaded.config);
        problems.extend(crate::http::check_admin(&loaded.config));
        if problems.is_empty() { Ok(loaded) } else { Err(Failure::Configuration(problems)) }
    }
}

/// Why a command failed.
#[derive(Debug)]
enum Failure {
    /// One line per fault.
    Configuration(Vec<String>),
    Service(crate::service::ServiceError),
    Other(Box<dyn std::error::Error>),
    /// So many things could not be repaired, and were listed.
    NotRepaired(usize),
    Output(std::io::Error),
}

impl From<crate::service::ServiceError> for Failure {
    fn from(error: crate::service::ServiceError) -> Self {
        // Found before anything is connected to, and mended by a setting.
        if matches!(error, crate::service::ServiceError::EndOfSeveral(_)) {
            return Self::Configuration(vec![error.to_string()]);
        }
        Self::Service(error)
    }
}

impl From<crate::kafka::load::LoadError> for Failure {
    fn from(error: crate::kafka::load::LoadError) -> Self {
        // Found before anything is connected to, and mended by a setting.
        if matches!(error, crate::kafka::load::LoadError::NoTokens(_)) {
            return Self::Configuration(vec![error.to_string()]);
        }
        Self::Other(Box::new(error))
    }
}

impl From<crate::kafka::embedded::EmbeddedError> for Failure {
    fn from(error: crate::kafka::embedded::EmbeddedError) -> Self {
        Self::Other(Box::new(error))
    }
}

impl From<crate::kafka::reset::ResetError> for Failure {
    fn from(error: crate::kafka::reset::ResetError) -> Self {
        Self::Other(Box::new(error))
    }
}

impl From<crate::kafka::sample::SampleError> for Failure {
    fn from(error: crate::kafka::sample::SampleError) -> Self {
        Self::Other(Box::new(error))
    }
}

impl From<crate::kafka::repair::RepairError> for Failure {
    fn from(error: crate::kafka::repair::RepairError) -> Self {
        Self::Other(Box::new(error))
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Output(error)
    }
}

impl Cli {
    /// Does what the command line asks for.
    pub fn execute(self) -> ExitCode {
        let mut out = Output::stdout();
        let done = match self.command {
            Command::Demo(demo) => demo.execute(&mut out),
            Command::Run(run) => run.execute(),
            Command::Generate(generate) => generate.execute(&mut out),
            Command::Explain(explain) => explain.execute(&mut out),
            Command::Drain(drain) => drain.execute(&mut out),
            Command::LogLevel(log_level) => log_level.execute(&mut out),
            Command::Healthcheck(healthcheck) => healthcheck.execute(&mut out),
            Command::Reset(reset) => reset.execute(&mut out),
            Command::Replay(replay) => replay.execute(&mut out),
            Command::Reconcile(reconcile) => reconcile.execute(&mut out),
            Command::Advise(advise) => advise.execute(&mut out),
            Command::Export(export) => export.execute(&mut out),
            Command::Check(check) => check.execute(&mut out),
            Command::Config(config) => config.execute(&mut out),
        };
        crate::kafka::wait_for_clients(CLIENTS_END_WITHIN);
        let code = match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.report(&mut Output::stderr()),
        };
        crate::log::finish();
        code
    }
}

impl Failure {
    fn report(&self, out: &mut Output) -> ExitCode {
        // Where even standard error is gone, the exit code is what is left.
        match self {
            Self::Configuration(faults) => {
                for fault in faults {
                    out.line(fault).unwrap_or_default();
                }
                out.line(format_args!("{} in the configuration", count(faults.len(), "fault")))
                    .unwrap_or_default();
                ExitCode::from(CONFIGURATION)
            }
            Self::Service(error) => {
                tracing::error!(error = error as &dyn std::error::Error, "the service ended");
                out.line(format_args!("tidegate: {}", chain(error))).unwrap_or_default();
                ExitCode::FAILURE
            }
            Self::Other(error) => {
                out.line(format_args!("tidegate: {}", chain(error.as_ref()))).unwrap_or_default();
                ExitCode::FAILURE
            }
            Self::NotRepaired(number) => {
                let what = count(*number, "place");
                out.line(format_args!("tidegate: {what} could not be repaired; see the list"))
                    .unwrap_or_default();
                ExitCode::from(NOT_REPAIRED)
            }
            Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                ExitCode::SUCCESS
            }
            Self::Output(error) => {
                out.line(format_args!("tidegate: {error}")).unwrap_or_default();
                ExitCode::FAILURE
            }
        }
    }
}

fn lines(faults: &[ConfigFault]) -> Vec<String> {
    faults.iter().map(ToString::to_string).collect()
}

/// An error with its causes, outermost first.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

/// Asks a running service: the status code and the body.
fn ask(url: &str, path: &str) -> Result<(u16, String), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = runtime.block_on(crate::http::client::get(url, path));
    asked.map_err(|error| Failure::Other(Box::new(error)))
}

/// Reads a duration as the configuration writes it.
fn duration(text: &str) -> Result<std::time::Duration, String> {
    let parsed = text.parse::<jiff::SignedDuration>().map_err(|error| error.to_string())?;
    std::time::Duration::try_from(parsed).map_err(|_| "a duration is not negative".to_owned())
}

/// Splits `NAME=VALUE`.
fn property(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a property is written NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A client takes a tenth of a second to end, if it ends at all.
const CLIENTS_END_WITHIN: std::time::Duration = std::time::Duration::from_secs(2);

/// Whether somebody at the terminal says yes.
fn agreed(out: &mut Output) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::Other(
            "there is nobody to ask; give --yes to do it, or --dry-run".into(),
        ));
    }
    out.line("type \"yes\" to do it:")?;
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}

/// The exit code where some late records are in no row.
const NOT_REPAIRED: u8 = 3;

/// The exit code for a wrong configuration (`EX_CONFIG` of sysexits.h).
const CONFIGURATION: u8 = 78;
