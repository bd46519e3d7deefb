//! The page in a real browser: headless Chromium, driven through chromedriver, against the demo as a user runs it and
//! against a thousand partitions.
//!
//! `TIDEGATE_SCREENSHOTS=1` writes the pictures of the README to `docs/` as well, which takes some minutes.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "page/browser.rs"]
mod browser;

#[path = "page/crowd.rs"]
mod crowd;

#[path = "page/demo.rs"]
mod demo;

#[test]
fn the_vendored_files_are_those_of_the_package() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/web/vendor/uPlot");
    let sums = std::process::Command::new("sha256sum")
        .args(["--check", "--strict", "SHA256SUMS"])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(sums.status.success(), "{sums:?}");
}
