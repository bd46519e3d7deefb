//! The core against real Flink: recorded scenarios, each with what Flink 2.3.0 did at every step.
//!
//! The scenarios lie in `tests/flink`: `named/*.json`, each made to show one thing, and `random.jsonl.gz`;
//! `tests/flink/README.md` tells their format. To add one, put a file with its recorded trace there: all `*.json`,
//! `*.jsonl` and `*.jsonl.gz` are run. Where tidegate means to differ, the difference is a [`Rule`], and no comparison leaves
//! out anything else. `TIDEGATE_FLINK_TRACES=FOLDER` runs the scenarios of another folder instead; those with several
//! subtasks or restarts are passed over, since tidegate's subtasks do not wait for each other and its clocks survive.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use replay::compare;
use trace::scenarios;

#[path = "flink/replay.rs"]
mod replay;
#[path = "flink/trace.rs"]
mod trace;

/// Where tidegate differs from Flink on purpose. Rules in brackets are Flink's, as the README beside the scenarios counts
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    /// A status announced downstream until the watermark rises (S3) is not tidegate's: nobody waits for it.
    /// Statuses of partitions are compared.
    AnnouncedStatus,
    /// Flink loses the open windows of a source that ends while idle (E2); a drain fires them all, and that it does is
    /// compared.
    EndWhileIdle,
    /// After a drain the clock is the greatest end - 1 that was fired and not the greatest time: the watermark, that of
    /// the last panes, and what is still held for lateness are not Flink's. The clock is compared with this rule.
    ClockAfterDrain,
    /// A record at the least time, or one whose window leaves the range of time, is refused: Flink fails (W4) or loses
    /// it (W5). The comparison ends there.
    TimestampOutOfRange,
}

/// All that [`Rule::TimestampOutOfRange`] cuts short in the project's own scenarios.
const CUT_SHORT: [&str; 4] = [
    "bottom-of-time",
    "timestamp-min-is-fatal",
    "top-of-time-before-any-watermark",
    "top-of-time-lost",
];

#[test]
fn every_recorded_scenario_goes_as_it_went_in_flink() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/flink");
    if let Some(folder) = std::env::var_os("TIDEGATE_FLINK_TRACES") {
        check(&PathBuf::from(folder));
    } else {
        let mut cut_short = check(&own.join("named"));
        cut_short.extend(check(&own));
        assert_eq!(cut_short, CUT_SHORT);
    }
}

/// Compares all scenarios of a folder and prints the figures; the names of those that were cut short.
fn check(folder: &Path) -> Vec<String> {
    let (mut ran, mut steps, mut passed_over) = (0, 0, 0);
    let mut by_feature = BTreeMap::<String, u32>::new();
    let mut by_rule = BTreeMap::<Rule, u32>::new();
    let mut cut_short = Vec::new();
    let mut faults = Vec::new();
    for scenario in scenarios(folder) {
        let has = |feature: &str| scenario.features.iter().any(|own| own == feature);
        if has("multi_subtask") || has("restart") {
            passed_over += 1;
            continue;
        }
        ran += 1;
        for feature in &scenario.features {
            *by_feature.entry(feature.clone()).or_default() += 1;
        }
        match compare(&scenario) {
            Err(fault) => faults.push(fault),
            Ok(compared) => {
                steps += compared.steps;
                if compared.rules.contains(&Rule::TimestampOutOfRange) {
                    cut_short.push(scenario.name.clone());
                }
                for rule in compared.rules {
                    *by_rule.entry(rule).or_default() += 1;
                }
            }
        }
    }
    // Not captured, unlike what `println!` writes: the figures are shown when all is well, too.
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "\n{}: {ran} scenarios, {steps} steps compared, {passed_over} passed over\n  by feature: {by_feature:?}\n  \
         rules that applied: {by_rule:?}; cut short: {cut_short:?}",
        folder.display()
    )
    .unwrap_or_default();
    assert!(ran > 0, "no scenario was run");
    let shown = faults.iter().take(5).cloned().collect::<Vec<_>>().join("\n");
    assert!(faults.is_empty(), "{} of {ran} scenarios differ:\n{shown}", faults.len());
    cut_short
}
