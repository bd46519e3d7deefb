//! `tidegate drain`

use clap::Args;

use super::admin::{Target, sentence};
use super::{Failure, Output};
use crate::http::Method;

/// Have a running service fire all open windows, commit and end with exit code 0.
///
/// Nothing more is read. The next start goes on after the last record that was read, and records that come then for windows
/// which the drain has closed are late. So it goes before a change of windows, keys or aggregates, not before a restart: that
/// keeps windows open by itself.
#[derive(Debug, Args)]
#[command(
    after_help = "The answer says what will happen, and it does not wait for it. Other members of the group go on with \
                  the partitions of one that has drained: drain all of them. What restarts the program when it ends has to \
                  be told not to.\n\n\
                  tidegate drain --config orders.toml\n\
                  tidegate drain --url http://127.0.0.1:8082 --token-file /run/secrets/tidegate-admin"
)]
pub(super) struct Drain {
    #[command(flatten)]
    target: Target,
    /// Print all of the answer as JSON.
    #[arg(long)]
    json: bool,
}

impl Drain {
    pub(super) fn execute(self, out: &mut Output) -> Result<(), Failure> {
        let body = self.target.call(Method::POST, "/api/v1/admin/drain", None)?;
        out.line(if self.json { body } else { sentence(&body)? })?;
        Ok(())
    }
}
