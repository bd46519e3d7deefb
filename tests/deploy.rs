//! What is in `deploy/`, `Dockerfile` and `docker-compose.yml` against what the program does: rules, runbook and dashboards
//! name what there is, Prometheus takes them, and, with `real-kafka`, they work on a service that it scrapes; manifests
//! agree with the configuration, with each other, and with the tools that know their kind.
//!
//! Needs `promtool` and `prometheus` (Debian's package `prometheus`) and the tools of `deploy/requirements.txt`, which
//! `tests/run` installs. A rule has its unit tests
//! in `deploy/prometheus/tidegate.rules.test.yml`; to add one, write it, its tests, and its entry in the runbook.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]
#![cfg_attr(
    feature = "real-kafka",
    expect(clippy::print_stdout, reason = "a log is shown where a test fails")
)]

#[path = "deploy/compose.rs"]
mod compose;
#[path = "deploy/dashboards.rs"]
mod dashboards;
#[path = "deploy/documents.rs"]
mod documents;
#[path = "deploy/image.rs"]
mod image;
#[path = "deploy/job.rs"]
mod job;
#[path = "deploy/kubernetes.rs"]
mod kubernetes;
#[path = "deploy/lint.rs"]
mod lint;
#[cfg(feature = "real-kafka")]
#[path = "deploy/live.rs"]
mod live;
#[cfg(not(feature = "real-kafka"))]
#[path = "support/rights.rs"]
mod rights;
#[path = "deploy/rules.rs"]
mod rules;
#[path = "deploy/runbook.rs"]
mod runbook;
#[path = "deploy/tools.rs"]
mod tools;

#[cfg(feature = "real-kafka")]
mod support;
#[cfg(feature = "real-kafka")]
use support::rights;
