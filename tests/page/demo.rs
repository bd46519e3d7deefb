//! The demo, as a user runs it, on the page.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};

use thirtyfour::Key;

use crate::browser::{Browser, pictures};

/// `tidegate demo` on a port that stays the same when it starts again.
struct Demo {
    child: Child,
}

impl Demo {
    fn start(port: u16) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["demo", "--plain", "--for", "15m", "--listen", &format!("127.0.0.1:{port}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child }
    }

    async fn answers(&mut self, port: u16) {
        let mut turns = tokio::time::interval(std::time::Duration::from_millis(50));
        for _ in 0..600 {
            turns.tick().await;
            if tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok() {
                return;
            }
            assert_eq!(self.child.try_wait().unwrap(), None, "the demo has ended");
        }
        panic!("the demo does not answer");
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

const LIVE: &str = "document.getElementById('connection').textContent.includes('live')";

/// The facts below the sentence, by their names.
const FACTS: &str = "Object.fromEntries([...document.querySelectorAll('#facts div')].map(\
                     (fact) => [fact.children[0].textContent, fact.children[1].textContent]))";

fn lane(what: &str) -> String {
    format!("document.querySelector('[data-name=\"orders/5\"]').{what}")
}

/// Nothing is wider than the screen.
const FITS: &str = "document.documentElement.scrollWidth <= innerWidth";

/// The least contrast between a text and its card, of the texts that matter (WCAG 2.1, 1.4.3).
const CONTRAST: &str = "(() => {
    const light = (colour) => {
        const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255);
        const [r, g, b] = parts.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const card = light(getComputedStyle(document.querySelector('section')).backgroundColor);
    const texts = ['#sentence', '#facts dt', '.legend', '#open td', 'th', '#events .when', 'footer'];
    return Math.min(...texts.map((text) => {
        const own = light(getComputedStyle(document.querySelector(text)).color);
        return (Math.max(own, card) + 0.05) / (Math.min(own, card) + 0.05);
    }));
})()";

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_shows_who_holds_and_survives_a_restart() {
    let browser = Browser::start().await;
    // Free a moment ago; who else takes it in between fails the test.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let mut demo = Demo::start(port);
    demo.answers(port).await;
    browser.open(&format!("http://127.0.0.1:{port}/")).await;
    browser.wait_until("the page is live", LIVE).await;

    it_names_the_silent_partition(&browser).await;
    it_goes_on(&browser).await;
    if pictures() {
        take_pictures(&browser).await;
    }
    it_answers_keys(&browser).await;
    let before: u64 = browser.eval(RECORDS).await;
    assert!(before > 0);

    drop(demo);
    let lost = "document.getElementById('connection').textContent.includes('disconnected') \
                && document.getElementById('alarm').checkVisibility() \
                && document.getElementById('alarm').textContent.includes('Disconnected.') \
                && document.getElementById('alarm-age').textContent.endsWith(' s old.') \
                && document.title.includes('disconnected')";
    browser.wait_until("the page says that it is disconnected", lost).await;

    let mut demo = Demo::start(port);
    demo.answers(port).await;
    browser.wait_until("the page is live again by itself", LIVE).await;
    let told = "document.getElementById('notice').checkVisibility() \
                && document.getElementById('notice').textContent.startsWith('The service has restarted, at ')";
    browser.wait_until("the page tells of the restart", told).await;
    browser.wait_until("the counts begin anew", &format!("{RECORDS} < {before}")).await;
    let starts: u32 = browser
        .eval("[...document.querySelectorAll('#events .kind')].filter((kind) => kind.textContent === 'start').length")
        .await;
    assert_eq!(starts, 1);
    it_names_the_silent_partition(&browser).await;

    it_fits_a_phone(&browser).await;
    assert_eq!(browser.faults().await, [] as [String; 0]);
    browser.end().await;
}

const RECORDS: &str =
    "Number(document.getElementById('counts').rows[0].cells[1].textContent.replaceAll(',', ''))";

/// The generator keeps the last partition silent: it holds until it is idle, and does not any more then.
async fn it_names_the_silent_partition(browser: &Browser) {
    let holds = format!(
        "{FACTS}['Held by'].startsWith('orders/5') && {FACTS}['Cause'] === 'silent' \
         && document.getElementById('sentence').textContent.includes('orders/5') \
         && {} && {} && {}",
        lane("textContent.startsWith('◆ orders/5')"),
        lane("textContent.includes('holds the watermark')"),
        lane("textContent.includes('silent, idle in ')"),
    );
    browser.wait_until("orders/5 holds, since it is silent", &holds).await;
    browser.picture("page-holder.png").await;
    let idle = format!(
        "{} && !{} && !{FACTS}['Held by'].startsWith('orders/5') \
         && [...document.querySelectorAll('#events tr')].some((row) => \
            row.textContent.includes('idle') && row.textContent.includes('orders/5'))",
        lane("textContent.includes('◌ idle')"),
        lane("textContent.includes('◆')"),
    );
    browser.wait_until("orders/5 is idle and holds no longer", &idle).await;
}

/// What is shown moves, and all parts of the page have something to show.
async fn it_goes_on(browser: &Browser) {
    let watermark: String = browser.eval(&format!("{FACTS}['Watermark']")).await;
    let (moved, records) = (format!("{FACTS}['Watermark'] !== '{watermark}'"), RECORDS);
    browser.wait_until("the watermark moves", &moved).await;
    let read: u64 = browser.eval(records).await;
    browser.wait_until("more records are counted", &format!("{records} > {read}")).await;
    let fired = "document.getElementById('fired').rows.length > 0 \
                 && Number(document.getElementById('fired').rows[0].cells[1].textContent) > 0";
    browser.wait_until("windows have fired", fired).await;
    let chart = "/per 10 s: [1-9]/.test(document.getElementById('chart-results').getAttribute('aria-label'))";
    browser.wait_until("results are in the chart", chart).await;
    let drawn = "document.querySelectorAll('.charts canvas').length === 3";
    browser.wait_until("all charts are drawn", drawn).await;
    let classes = "document.getElementById('classes').rows.length > 2";
    browser.wait_until("the disorder is shown", classes).await;
    // Nothing moves as fast as the disorder's histogram is made: every 10 s.
    let spoken = "document.getElementById('spoken').textContent.startsWith('Held by orders/')";
    browser.wait_until("a screen reader is told", spoken).await;
    let dead = "/[1-9]/.test(document.getElementById('counts').rows[4].cells[1].textContent)";
    browser.wait_until("dead letters are counted", dead).await;
}

/// Another bound, the stretch of time and the pause, by the keyboard alone.
async fn it_answers_keys(browser: &Browser) {
    let _: Option<()> = browser.eval("document.getElementById('bound').focus()").await;
    browser.press(Key::Home).await;
    let none = "document.getElementById('bound-value').textContent.startsWith('0') \
                && document.getElementById('bound-said').textContent.includes('late, about')";
    browser.wait_until("without a bound so many would be late", none).await;
    browser.press(Key::End).await;
    let all = "document.getElementById('bound-value').textContent.startsWith('1 d') \
               && document.getElementById('bound-said').textContent.startsWith('It would have caught 100 %')";
    browser.wait_until("with a bound of a day none would be", all).await;

    let _: Option<()> =
        browser.eval("document.querySelector('input[value=minutes]').focus()").await;
    browser.press(Key::Right).await;
    let minutes = "document.getElementById('chart-results-title').textContent.startsWith('Results per minute')";
    browser.wait_until("the chart is per minute", minutes).await;
    browser.press(Key::Left).await;

    let _: Option<()> = browser.eval("document.getElementById('pause').focus()").await;
    browser.press(Key::Space).await;
    let paused = "document.getElementById('connection').textContent.includes('paused')";
    browser.wait_until("the page is paused", paused).await;
    browser.press(Key::Space).await;
    browser.wait_until("the page goes on", LIVE).await;
}

async fn it_fits_a_phone(browser: &Browser) {
    for (scheme, dark) in [("light", false), ("dark", true)] {
        browser.scheme(scheme).await;
        for (width, height) in [(360, 740), (1160, 800)] {
            browser.width(width, height).await;
            browser.wait_until("the width is right", &format!("innerWidth === {width}")).await;
            browser.wait_until("nothing is wider than the screen", FITS).await;
            let lanes = "[...document.querySelectorAll('.lane:not(.head) .track')].every((track) => track.clientWidth > 150)";
            browser.wait_until("the lanes have room", lanes).await;
            let charts = "[...document.querySelectorAll('.charts canvas')].every((chart) => \
                          chart.clientWidth > 150 && chart.clientWidth <= innerWidth)";
            browser.wait_until("the charts have room", charts).await;
            let is_dark: bool = browser
                .eval(
                    "/rgb\\((\\d+)/.exec(getComputedStyle(document.body).backgroundColor)[1] < 64",
                )
                .await;
            assert_eq!(is_dark, dark);
            let contrast: f64 = browser.eval(CONTRAST).await;
            assert!(contrast >= 4.5, "{scheme}: {contrast}");
        }
    }
}

/// With some minutes behind it, in daylight, in the dark and on a phone.
async fn take_pictures(browser: &Browser) {
    for records in [15_000, 30_000] {
        browser.wait_until("there is something to see", &format!("{RECORDS} > {records}")).await;
    }
    browser.wait_until("orders/5 is idle", &lane("textContent.includes('◌ idle · silent')")).await;
    for (name, scheme, width, height) in [
        ("page.png", "light", 1160, 1380),
        ("page-dark.png", "dark", 1160, 1380),
        ("page-phone.png", "dark", 360, 900),
    ] {
        browser.scheme(scheme).await;
        browser.width(width, height).await;
        browser.wait_until("the width is right", &format!("innerWidth === {width}")).await;
        browser.wait_until("drawn", FITS).await;
        browser.picture(name).await;
    }
    browser.scheme("light").await;
    browser.width(1160, 800).await;
}
