//! A browser of the test's own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::json;
use thirtyfour::common::capabilities::chromium::ChromiumLikeCapabilities;
use thirtyfour::{DesiredCapabilities, LoggingPrefsLogLevel, WebDriver};
use tokio::sync::{Mutex, MutexGuard};

/// One browser at a time: they take turns on a small machine.
static ONE: Mutex<()> = Mutex::const_new(());

/// Headless Chromium with a profile of its own, and the program that drives it.
pub(crate) struct Browser {
    driver: Option<WebDriver>,
    chromedriver: Child,
    profile: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

/// Collects, in the page, whatever goes wrong there.
const COLLECT: &str = "
    window.faults = [];
    const note = (what) => window.faults.push(String(what));
    addEventListener('error', (event) => note(event.message ?? event.target?.src ?? 'error'), true);
    addEventListener('unhandledrejection', (event) => note(event.reason));
    document.addEventListener('securitypolicyviolation', (event) => note(`${event.violatedDirective} ${event.blockedURI}`));
    for (const name of ['error', 'warn']) {
      const before = console[name];
      console[name] = (...said) => { note(said.join(' ')); before(...said); };
    }
";

impl Browser {
    pub(crate) async fn start() -> Self {
        let turn = ONE.lock().await;
        let profile =
            std::env::temp_dir().join(format!("tidegate-chromium-{}", std::process::id()));
        std::fs::create_dir(&profile).unwrap();
        let mut chromedriver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("chromedriver: {error}; it is Debian's chromium-driver, and `tests/run` installs it")
            });
        let stdout = BufReader::new(chromedriver.stdout.take().unwrap());
        let (says, said) = std::sync::mpsc::channel();
        // Whatever it says later is read too, so that it never has to wait for that.
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if let Some((_, port)) = line.split_once("started successfully on port ") {
                    says.send(port.trim_end_matches('.').parse().unwrap()).unwrap();
                }
            }
        });
        let port: u16 = said.recv_timeout(PATIENCE).unwrap();
        let mut browser = Self { driver: None, chromedriver, profile, _turn: turn };

        let mut capabilities = DesiredCapabilities::chrome();
        let profile = format!("--user-data-dir={}", browser.profile.display());
        for argument in [
            "--headless=new",
            "--no-sandbox", // which there is none of for root
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            // Whatever it may want to look up by itself is nowhere.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--hide-scrollbars",
            "--window-size=1160,800",
            &profile,
        ] {
            capabilities.add_arg(argument).unwrap();
        }
        capabilities.set_browser_log_level(LoggingPrefsLogLevel::All).unwrap();
        let url = format!("http://127.0.0.1:{port}");
        browser.driver = Some(WebDriver::new(url, capabilities).await.unwrap());
        browser
            .devtools("Page.addScriptToEvaluateOnNewDocument", json!({ "source": COLLECT }))
            .await;
        browser
    }

    fn driver(&self) -> &WebDriver {
        self.driver.as_ref().unwrap()
    }

    /// A command of Chromium's own protocol.
    async fn devtools(&self, command: &str, parameters: serde_json::Value) -> serde_json::Value {
        self.driver().cdp().send_raw(command, parameters).await.unwrap()
    }

    pub(crate) async fn open(&self, url: &str) {
        self.driver().goto(url).await.unwrap();
    }

    /// The value of an expression in the page.
    pub(crate) async fn eval<T: DeserializeOwned>(&self, expression: &str) -> T {
        let script = format!("return ({expression});");
        self.driver().execute(script, Vec::new()).await.unwrap().convert().unwrap()
    }

    /// Waits until an expression in the page is true.
    pub(crate) async fn wait_until(&self, what: &str, expression: &str) {
        let mut turns = tokio::time::interval(TURN);
        for _ in 0..PATIENCE.as_millis() / TURN.as_millis() {
            turns.tick().await;
            if self.eval(&format!("Boolean({expression})")).await {
                return;
            }
        }
        let text: String = self.eval("document.body.innerText").await;
        panic!("not in time: {what}\n{expression}\n{text}\n{:?}", self.faults().await);
    }

    /// Presses a key where the focus is.
    pub(crate) async fn press(&self, key: thirtyfour::Key) {
        self.driver().active_element().await.unwrap().send_keys(key).await.unwrap();
    }

    /// A screen of this width, as of a phone where it is narrow; 0 is the browser's own.
    pub(crate) async fn width(&self, width: u32, height: u32) {
        let phone = width < 600;
        let metrics = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    pub(crate) async fn scheme(&self, scheme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", features).await;
    }

    /// What went wrong in the page, and what the browser says of it; but for connections that were refused while the
    /// service was away, which the browser always tells of.
    pub(crate) async fn faults(&self) -> Vec<String> {
        let mut faults: Vec<String> = self.eval("window.faults").await;
        for entry in self.driver().browser_log().await.unwrap() {
            let text = format!("{entry:?}");
            let away = [
                "ERR_CONNECTION_REFUSED",
                "ERR_CONNECTION_RESET",
                "ERR_INCOMPLETE_CHUNKED_ENCODING",
                "ERR_EMPTY_RESPONSE",
            ];
            if !away.iter().any(|name| text.contains(name)) {
                faults.push(text);
            }
        }
        faults
    }

    /// Writes a picture of what is on the screen to `docs/`, if that was asked for.
    pub(crate) async fn picture(&self, name: &str) {
        if !pictures() {
            return;
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
        std::fs::create_dir_all(&folder).unwrap();
        self.driver().screenshot(&folder.join(name)).await.unwrap();
    }

    pub(crate) async fn end(mut self) {
        self.driver.take().unwrap().quit().await.unwrap();
    }
}

/// Whether pictures were asked for.
pub(crate) fn pictures() -> bool {
    std::env::var_os("TIDEGATE_SCREENSHOTS").is_some()
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Of a test that failed: this ends the browser.
        drop(self.driver.take());
        drop(self.chromedriver.kill());
        drop(self.chromedriver.wait());
        drop(std::fs::remove_dir_all(&self.profile));
    }
}

/// How often a condition is looked at.
const TURN: Duration = Duration::from_millis(100);

/// How long a condition may take: the demo's partition falls silent every 40 s.
const PATIENCE: Duration = Duration::from_secs(90);
