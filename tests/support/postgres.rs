//! A real PostgreSQL for a test: a cluster of its own in a folder of its own, on a free port.
//!
//! The server is the child of a small shell, its *keeper*, whose standard input is a pipe from the test process: when the
//! pipe closes, however that comes, the keeper ends the server and removes its data. Every process of the server holds the
//! keeper's standard output, so its end is the end of all of them. PostgreSQL refuses to run as root; then it runs as
//! `nobody`.

#![allow(clippy::allow_attributes, dead_code, reason = "no target uses all of it")]

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// A server of the test's own. Dropping it ends it and removes its data.
#[derive(Debug)]
pub(crate) struct Postgres {
    folder: PathBuf,
    pub(crate) port: u16,
    settings: Vec<String>,
    keeper: Option<Child>,
}

/// The password of [`USER`], who owns everything.
pub(crate) const PASSWORD: &str = "correct horse 'battery\\ staple";
pub(crate) const USER: &str = "tidegate";
pub(crate) const DATABASE: &str = "tidegate";

impl Postgres {
    /// Makes a cluster with an empty database, starts it and waits until it answers.
    pub(crate) fn start() -> Self {
        let mut postgres = Self::make();
        postgres.start_again();
        postgres.run_in("postgres", &format!("CREATE DATABASE {DATABASE}"));
        postgres
    }

    /// Makes a cluster and does not start it.
    pub(crate) fn make() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-postgres-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("password"), PASSWORD).unwrap();
        if is_root() {
            std::os::unix::fs::chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let made = as_nobody(&mut Command::new(program("initdb")))
            .args(["--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync"])
            .args(["--username", USER, "--pwfile=password", "--pgdata=data"])
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        // Free a moment ago; who else takes it in between fails the test, which shows the server's log.
        let port =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        Self { folder, port, settings: Vec::new(), keeper: None }
    }

    /// Sets a parameter of the server from its next start on.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.settings.push(format!("{name}={value}"));
    }

    /// Puts a file where the server alone can read it, and tells where.
    pub(crate) fn put(&self, name: &str, text: &[u8]) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        if is_root() {
            std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        path
    }

    /// Starts it, with the same port and data, and waits until it answers.
    pub(crate) fn start_again(&mut self) {
        assert!(self.keeper.is_none(), "it runs");
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "keeper"]).arg(&self.folder).arg(program("postgres"));
        command.args([
            "-D",
            "data",
            "-k",
            "",
            "-c",
            "fsync=off",
            "-c",
            "listen_addresses=127.0.0.1",
        ]);
        command.args(["-p", &self.port.to_string()]);
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        let keeper = as_nobody(&mut command)
            .current_dir(&self.folder)
            // Ctrl-C at the terminal ends the test process; the keeper then still has its work to do.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        self.keeper = Some(keeper);
        for _ in 0..600 {
            if self.try_run_in("postgres", "SELECT 1").is_ok() {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(100));
        }
        panic!("PostgreSQL does not answer:\n{}", self.log());
    }

    /// Kills the server's first process (SIGKILL), and waits until the others have noticed.
    pub(crate) fn kill(&mut self) {
        self.end("KILL");
    }

    /// Ends it in good order, with whoever is connected.
    pub(crate) fn stop(&mut self) {
        self.end("INT");
    }

    fn end(&mut self, signal: &str) {
        let mut keeper = self.keeper.take().unwrap();
        writeln!(keeper.stdin.as_ref().unwrap(), "{signal}").unwrap();
        let mut nothing = Vec::new();
        keeper.stdout.take().unwrap().read_to_end(&mut nothing).unwrap();
        assert!(
            keeper.wait().unwrap().success(),
            "no server to send SIG{signal} to:\n{}",
            self.log()
        );
    }

    /// What the server has written.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Carries out statements in the database of the test.
    pub(crate) fn run(&self, sql: &str) {
        self.run_in(DATABASE, sql);
    }

    fn run_in(&self, database: &str, sql: &str) {
        self.try_run_in(database, sql).unwrap_or_else(|error| panic!("{sql}\n{error:?}"));
    }

    /// The rows of a query, every value as text.
    pub(crate) fn query(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        self.try_query(sql).unwrap_or_else(|error| panic!("{sql}\n{error:?}"))
    }

    /// The same where there may be nothing to ask yet.
    pub(crate) fn try_query(
        &self,
        sql: &str,
    ) -> Result<Vec<Vec<Option<String>>>, tokio_postgres::Error> {
        self.try_run_in(DATABASE, sql)
    }

    /// The one number that a query returns; `None` if there is none yet.
    pub(crate) fn number(&self, sql: &str) -> Option<i64> {
        self.try_query(sql).ok()?.first()?.first()?.as_ref()?.parse().ok()
    }

    fn try_run_in(
        &self,
        database: &str,
        sql: &str,
    ) -> Result<Vec<Vec<Option<String>>>, tokio_postgres::Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = self.connect(database).await?;
            let mut rows = Vec::new();
            for message in client.simple_query(sql).await? {
                if let SimpleQueryMessage::Row(row) = message {
                    let value = |place| row.get(place).map(str::to_owned);
                    rows.push((0..row.len()).map(value).collect());
                }
            }
            Ok(rows)
        })
    }

    async fn connect(&self, database: &str) -> Result<Client, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::Config::new()
            .host("127.0.0.1")
            .port(self.port)
            .user(USER)
            .password(PASSWORD)
            .dbname(database)
            .connect_timeout(Duration::from_secs(5))
            .connect(NoTls)
            .await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// What the export has to be told to reach it, as TOML.
    pub(crate) fn config(&self, table: &str) -> String {
        let mut text = String::from("[export.postgres]\n");
        let values = [("table", table), ("host", "127.0.0.1"), ("user", USER)];
        let secret = [("database", DATABASE), ("password", PASSWORD)];
        for (name, value) in values.into_iter().chain(secret) {
            writeln!(text, "{name} = {}", serde_json::Value::from(value)).unwrap();
        }
        writeln!(text, "port = {}", self.port).unwrap();
        text
    }
}

impl Drop for Postgres {
    /// Closes the pipe, which is the keeper's order to end the server and to clean up.
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the log of PostgreSQL:\n{}", self.log());
        }
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            drop(keeper.wait());
        }
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// `$1` is the folder, the rest the command.
const KEEPER: &str = r#"
dir=$1
shift
"$@" </dev/null 2>>"$dir/log" &
pid=$!
exec >/dev/null
if read -r order; then
  kill -s "$order" "$pid" || exit
  wait "$pid"
  exit 0
fi
kill -s QUIT "$pid"
wait "$pid"
cd / && rm -rf "$dir"
"#;

fn is_root() -> bool {
    let owner = fs::metadata("/proc/self").unwrap();
    std::os::unix::fs::MetadataExt::uid(&owner) == 0
}

/// Who has no rights.
const NOBODY: u32 = 65_534;

fn as_nobody(command: &mut Command) -> &mut Command {
    if is_root() { command.uid(NOBODY).gid(NOBODY) } else { command }
}

/// A program of the server: on the path, or where Debian has it, which leaves it off the path.
fn program(name: &str) -> PathBuf {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&paths).map(|folder| folder.join(name));
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut debian: Vec<_> =
        versions.map(|version| version.unwrap().path().join("bin").join(name)).collect();
    debian.sort();
    let found = on_path.chain(debian.into_iter().rev()).find(|path| Path::is_file(path));
    found.unwrap_or_else(|| {
        panic!("no {name}: PostgreSQL's server is missing; it is Debian's package postgresql, and `tests/run` installs it")
    })
}
