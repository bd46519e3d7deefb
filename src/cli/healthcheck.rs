//! `tidegate healthcheck`

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::Args;

use super::{Failure, Output, ask};

/// Ask the service on this machine whether it lives; the exit code tells. For images without a shell.
#[derive(Debug, Args)]
pub(super) struct Healthcheck {
    /// Where the service listens.
    #[arg(long, default_value_t = own_address(std::env::var(LISTEN).ok().as_deref()))]
    url: String,
    /// Ask whether it is ready, not only alive.
    #[arg(long)]
    ready: bool,
}

impl Healthcheck {
    pub(super) fn execute(self, out: &mut Output) -> Result<(), Failure> {
        let path = if self.ready { "/readyz" } else { "/livez" };
        let (code, body) = ask(&self.url, path)?;
        if code != 200 {
            let said = format!("{}{path} answers {code}: {}", self.url, body.trim());
            return Err(Failure::Other(said.into()));
        }
        out.line(body.trim())?;
        Ok(())
    }
}

/// Where the service listens by its environment, as one asks on its own machine.
fn own_address(listen: Option<&str>) -> String {
    let listen = listen.and_then(|listen| listen.parse::<SocketAddr>().ok());
    let mut address = listen.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)));
    if address.ip().is_unspecified() {
        let local = if address.is_ipv4() {
            IpAddr::from(Ipv4Addr::LOCALHOST)
        } else {
            IpAddr::from(std::net::Ipv6Addr::LOCALHOST)
        };
        address.set_ip(local);
    }
    format!("http://{address}")
}

/// Where the configuration's `http.listen` comes from in a container.
const LISTEN: &str = "TIDEGATE__HTTP__LISTEN";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_that_of_the_environment_and_one_can_ask_there() {
        assert_eq!(own_address(None), "http://127.0.0.1:8080");
        assert_eq!(own_address(Some("0.0.0.0:9000")), "http://127.0.0.1:9000");
        assert_eq!(own_address(Some("[::]:9000")), "http://[::1]:9000");
        assert_eq!(own_address(Some("10.0.0.7:80")), "http://10.0.0.7:80");
    }
}
