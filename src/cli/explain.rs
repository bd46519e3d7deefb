//! `tidegate explain`

use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::{Failure, Output, ask};

/// Ask a running service why a window has or has not fired.
#[derive(Debug, Args)]
#[command(
    after_help = "Without a window it tells of the next one to fire. Times are RFC 3339, such as \
                        2026-01-31T12:03:00Z, or milliseconds since the epoch."
)]
pub(super) struct Explain {
    /// Where the service listens.
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    url: String,
    /// The window that begins at this time.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["key", "time"], allow_hyphen_values = true)]
    window_start: Option<String>,
    /// The window of this key's record, with --time.
    #[arg(long, requires = "time")]
    key: Option<String>,
    /// The event time of that record.
    #[arg(long, requires = "key", allow_hyphen_values = true)]
    time: Option<String>,
    /// Print all of the answer as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
struct Answer {
    sentence: String,
}

#[derive(Deserialize)]
struct Problem {
    detail: String,
}

impl Explain {
    pub(super) fn execute(self, out: &mut Output) -> Result<(), Failure> {
        let other = |error: String| Failure::Other(error.into());
        let (code, body) = ask(&self.url, &self.path())?;
        if code != 200 {
            let problem = serde_json::from_str::<Problem>(&body).map(|problem| problem.detail);
            return Err(other(problem.unwrap_or_else(|_| {
                format!("{} answers {code}; is it a tidegate of this version?", self.url)
            })));
        }
        if self.json {
            out.line(body)?;
            return Ok(());
        }
        let answer: Answer = serde_json::from_str(&body)
            .map_err(|_| other(format!("{} is no service that explains", self.url)))?;
        out.line(answer.sentence)?;
        Ok(())
    }

    fn path(&self) -> String {
        let asked =
            [("window_start", &self.window_start), ("key", &self.key), ("time", &self.time)];
        let values = asked.iter().filter_map(|(name, value)| {
            let value = utf8_percent_encode(value.as_deref()?, NON_ALPHANUMERIC);
            Some(format!("{name}={value}"))
        });
        format!("/api/v1/explain?{}", values.collect::<Vec<_>>().join("&"))
    }
}
