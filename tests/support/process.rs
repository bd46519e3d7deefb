//! The service as its users run it: a process with a configuration file.

#![allow(clippy::allow_attributes, dead_code, reason = "no target uses all of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use tidegate::clock::Clock;

/// A running service.
pub(crate) struct Tidegate {
    child: Child,
    /// The lines of its log, as JSON.
    lines: mpsc::Receiver<String>,
    seen: Vec<String>,
    config: PathBuf,
    address: Option<String>,
}

impl Tidegate {
    /// Starts `tidegate run` with this configuration; it listens on a port of its own.
    pub(crate) fn run(config: &str, arguments: &[&str]) -> Self {
        Self::command(&["run"], config, arguments)
    }

    /// Starts `tidegate export postgres` with this configuration.
    pub(crate) fn export(config: &str, arguments: &[&str]) -> Self {
        Self::command(&["export", "postgres"], config, arguments)
    }

    /// Starts a command of the program that ends by itself, to be killed on the way.
    pub(crate) fn start(command: &str, config: &str, arguments: &[&str]) -> Self {
        Self::command(&[command], config, arguments)
    }

    fn command(command: &[&str], config: &str, arguments: &[&str]) -> Self {
        let path = write_config(config);
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(command)
            .arg("--config")
            .arg(&path)
            .args(["--set", "http.listen=127.0.0.1:0", "--set", "log.format=json"])
            .args(arguments)
            .env_remove("TIDEGATE_SEED")
            .env_remove("TIDEGATE_CHAOS_FAULTS")
            .env_remove("TIDEGATE_SOAK_SECONDS")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = child.stderr.take().unwrap();
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines, seen: Vec::new(), config: path, address: None }
    }

    /// Waits for a log line with this text.
    pub(crate) fn wait_for_line(&mut self, text: &str) -> String {
        if let Some(line) = self.seen.iter().find(|line| line.contains(text)) {
            return line.clone();
        }
        let clock = Clock::start();
        loop {
            let passed = clock.monotonic().0;
            let line = self.lines.recv_timeout(PATIENCE.saturating_sub(passed));
            let Some(line) = line.ok().filter(|_| passed < PATIENCE) else {
                panic!("no line with {text:?} in the log:\n{}", self.seen.join("\n"));
            };
            self.seen.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Everything logged so far.
    pub(crate) fn log(&mut self) -> String {
        self.seen.extend(self.lines.try_iter());
        self.seen.join("\n")
    }

    /// Waits until a condition on the answers of the service holds.
    pub(crate) fn wait_until(&mut self, what: &str, mut condition: impl FnMut(&mut Self) -> bool) {
        // Lines that come fast do not shorten it.
        let clock = Clock::start();
        while clock.monotonic().0 < PATIENCE {
            if condition(self) {
                return;
            }
            std::thread::park_timeout(POLL);
            self.seen.extend(self.lines.try_iter());
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the service ended ({status}) before {what}:\n{}", self.log());
            }
        }
        panic!("not in time: {what}\n{}", self.log());
    }

    /// Where it listens.
    pub(crate) fn address(&mut self) -> String {
        if let Some(address) = &self.address {
            return address.clone();
        }
        let line: serde_json::Value =
            serde_json::from_str(&self.wait_for_line("\"listening\"")).unwrap();
        let address = line["address"].as_str().unwrap().to_owned();
        self.address = Some(address.clone());
        address
    }

    /// The status code and body of a GET.
    pub(crate) fn get(&mut self, path: &str) -> (u16, String) {
        let address = self.address();
        let mut stream = match TcpStream::connect(&address) {
            Ok(stream) => stream,
            Err(error) => panic!("nobody answers: {error}\n{}", self.log()),
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        if let Err(error) = stream.read_to_string(&mut answer) {
            panic!("no answer: {error}\n{}", self.log());
        }
        let code = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let body = answer.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned());
        (code, body)
    }

    /// The body of a GET; `None` if there is no answer in time, whatever the reason.
    pub(crate) fn try_get(&mut self, path: &str, patience: Duration) -> Option<String> {
        self.try_request(path, patience).map(|(_, body)| body)
    }

    /// The status code and body of a GET; `None` if there is no answer in time, whatever the reason.
    pub(crate) fn try_request(&mut self, path: &str, patience: Duration) -> Option<(u16, String)> {
        let mut answer = String::new();
        self.try_connect(path, patience, "close")?.read_to_string(&mut answer).ok()?;
        let code = answer.split(' ').nth(1)?.parse().ok()?;
        answer.split_once("\r\n\r\n").map(|(_, body)| (code, body.to_owned()))
    }

    /// A connection on which a GET was sent, to be closed (`close`) after its answer or not (`keep-alive`).
    pub(crate) fn try_connect(
        &mut self,
        path: &str,
        patience: Duration,
        then: &str,
    ) -> Option<TcpStream> {
        self.log();
        if self.address.is_none() && !self.seen.iter().any(|line| line.contains("\"listening\"")) {
            return None;
        }
        let address = self.address();
        let mut stream = TcpStream::connect_timeout(&address.parse().unwrap(), patience).ok()?;
        stream.set_read_timeout(Some(patience)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: {then}\r\n\r\n")
            .ok()?;
        Some(stream)
    }

    /// Its exit status, once it has ended.
    pub(crate) fn try_wait(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// The value of a metric whose series begins with this text; `None` if there is none.
    pub(crate) fn metric(&mut self, series: &str) -> Option<f64> {
        let (_, body) = self.get("/metrics");
        let line = body.lines().find(|line| line.starts_with(series))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    /// The sum over all series of a family with this in their labels.
    pub(crate) fn metric_sum(&mut self, family: &str, labels: &str) -> f64 {
        let (_, body) = self.get("/metrics");
        let series = series(&body, family).filter(|(held, _)| held.contains(labels));
        series.map(|(_, value)| value).sum()
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What its threads are at, for people who look for one that stands still: their names and where in the kernel they
    /// wait, and their stacks where there is a debugger.
    pub(crate) fn threads(&self) -> String {
        let tasks = format!("/proc/{}/task", self.id());
        let read = |task: &std::path::Path, file| {
            std::fs::read_to_string(task.join(file)).unwrap_or_default().trim().to_owned()
        };
        let tasks = std::fs::read_dir(tasks).into_iter().flatten().flatten();
        let threads = tasks.map(|task| {
            format!("{} waits in {}", read(&task.path(), "comm"), read(&task.path(), "wchan"))
        });
        let threads: Vec<_> = threads.collect();
        let id = self.id().to_string();
        let stacks = Command::new("gdb")
            .args(["-p", &id, "-batch", "-ex", "thread apply all backtrace 15"])
            .output()
            .map(|gdb| String::from_utf8_lossy(&gdb.stdout).into_owned());
        format!("{}\n{}", threads.join(", "), stacks.unwrap_or_default())
    }

    /// Kills it (SIGKILL) once the condition holds, if it has not ended by then. Whether it was killed.
    pub(crate) fn kill_when(mut self, mut condition: impl FnMut() -> bool) -> bool {
        let clock = Clock::start();
        while clock.monotonic().0 < PATIENCE {
            if let Some(status) = self.try_wait() {
                assert!(status.success(), "{status}:\n{}", self.log());
                return false;
            }
            if condition() {
                return true;
            }
            std::thread::park_timeout(Duration::from_millis(2));
        }
        panic!("neither has it ended nor was it time to kill it:\n{}", self.log());
    }

    /// Sends a signal, by the process's own id.
    pub(crate) fn signal(&self, name: &str) {
        // The shell's own `kill`: a bare system has no program of that name.
        let status = Command::new("sh")
            .args(["-c", &format!("kill -{name} {}", self.child.id())])
            .status()
            .unwrap();
        assert!(status.success());
    }

    /// Waits for its end, however much it has to say. Its log ends when it does.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let clock = Clock::start();
        loop {
            let passed = clock.monotonic().0;
            match self.lines.recv_timeout(PATIENCE.saturating_sub(passed)) {
                Ok(line) if passed < PATIENCE => self.seen.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => return self.child.wait().unwrap(),
                Ok(_) | Err(mpsc::RecvTimeoutError::Timeout) => {
                    panic!("the service did not end:\n{}", self.log());
                }
            }
        }
    }

    /// Stops it cleanly and checks that it said so.
    pub(crate) fn stop(mut self) -> String {
        self.signal("TERM");
        let status = self.wait();
        assert!(status.success(), "{status}:\n{}", self.log());
        self.log()
    }
}

impl Drop for Tidegate {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            println!("the log of process {}:\n{}", self.child.id(), self.log());
        }
        drop(std::fs::remove_file(&self.config));
    }
}

/// The series of a family in the text of a scrape: labels and value.
pub(crate) fn series<'a>(scrape: &'a str, family: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
    scrape.lines().filter_map(move |line| {
        let rest = line.strip_prefix(family)?;
        let (labels, value) = rest.rsplit_once(' ')?;
        let is_its = labels.is_empty() || labels.starts_with('{');
        Some((labels, value.parse().ok()?)).filter(|_| is_its)
    })
}

/// Runs a command of the program that ends by itself, with this configuration and without a terminal.
pub(crate) fn tidegate(command: &str, config: &str, arguments: &[&str]) -> Output {
    let path = write_config(config);
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg(command)
        .arg("--config")
        .arg(&path)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    std::fs::remove_file(&path).unwrap();
    output
}

fn write_config(config: &str) -> PathBuf {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path =
        std::env::temp_dir().join(format!("tidegate-test-{}-{number}.toml", std::process::id()));
    std::fs::write(&path, config).unwrap();
    path
}

/// A machine that builds something else meanwhile takes several times as long as usual.
const PATIENCE: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(50);
