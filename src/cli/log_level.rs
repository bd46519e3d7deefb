//! `tidegate log-level`

use clap::Args;

use super::admin::{Target, sentence};
use super::{Failure, Output};
use crate::http::Method;

/// Show or change which lines the log of a running service has.
///
/// A filter is a level (`error`, `warn`, `info`, `debug`, `trace`), also for single modules. It holds until the next change or
/// restart, or for the time given with --for, after which that of the configuration is back. What librdkafka itself says is
/// decided when it starts.
#[derive(Debug, Args)]
#[command(after_help = "tidegate log-level --config orders.toml\n\
                  tidegate log-level info,tidegate::pipeline=debug --for 10m --config orders.toml\n\
                  tidegate log-level warn --url http://127.0.0.1:8082 --token-file /run/secrets/tidegate-admin")]
pub(super) struct LogLevel {
    /// The filter; without one, the filter in force is shown.
    filter: Option<String>,
    /// How long it holds, such as `10m`.
    #[arg(long = "for", value_name = "DURATION", requires = "filter")]
    lasting: Option<String>,
    #[command(flatten)]
    target: Target,
    /// Print all of the answer as JSON.
    #[arg(long)]
    json: bool,
}

impl LogLevel {
    pub(super) fn execute(self, out: &mut Output) -> Result<(), Failure> {
        const PATH: &str = "/api/v1/admin/log-level";
        let body = match self.filter {
            None => self.target.call(Method::GET, PATH, None)?,
            Some(filter) => {
                let wanted = serde_json::json!({ "filter": filter, "for": self.lasting });
                self.target.call(Method::PUT, PATH, Some(wanted.to_string()))?
            }
        };
        out.line(if self.json { body } else { sentence(&body)? })?;
        Ok(())
    }
}
