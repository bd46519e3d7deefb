//! The view as lines: what changed since the last look.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use super::screen::after_end;
use super::{Counts, LiveView, Scene};
use crate::event_time::{EventTime, PartitionId, TimeWindow, WatermarkStatus};
use crate::insight::{FiredWindow, Phase, sentence, words};

/// Writes a line per event, each beginning with the time of day in UTC.
#[derive(Debug)]
pub struct Lines<'v, W> {
    view: &'v LiveView,
    out: W,
    said: Option<EventTime>,
    phase: Phase,
    fired: BTreeMap<TimeWindow, FiredWindow>,
    partitions: BTreeMap<PartitionId, WatermarkStatus>,
}

impl<'v, W: Write> Lines<'v, W> {
    /// Lines for this view; nothing is written yet.
    pub fn new(view: &'v LiveView, out: W) -> Self {
        Self {
            view,
            out,
            said: None,
            phase: Phase::Starting,
            fired: BTreeMap::new(),
            partitions: BTreeMap::new(),
        }
    }

    /// Writes the title, the link and the notes.
    pub fn start(&mut self) -> io::Result<()> {
        writeln!(self.out, "{}", self.view.title)?;
        for line in self.view.link.iter().chain(&self.view.notes) {
            writeln!(self.out, "{line}")?;
        }
        self.out.flush()
    }

    /// Writes what is new in this scene; the sentence every 5 s, and when the loop does something else than before.
    pub fn observe(&mut self, scene: &Scene<'_>) -> io::Result<()> {
        self.partitions(scene)?;
        self.windows(scene)?;
        // A wall clock set back must not silence it.
        let due = self
            .said
            .is_none_or(|said| said > scene.wall || said.behind(scene.wall) >= SENTENCE_EVERY);
        if due || self.phase != scene.snapshot.phase {
            let said = sentence(scene.snapshot, &self.view.topics, scene.wall);
            self.line(scene, &format!("{said}{}", scene.counts.map_or(String::new(), so_far)))?;
            self.said = Some(scene.wall);
            self.phase = scene.snapshot.phase.clone();
        }
        self.out.flush()
    }

    fn partitions(&mut self, scene: &Scene<'_>) -> io::Result<()> {
        let now: BTreeMap<_, _> = scene
            .snapshot
            .partitions
            .iter()
            .map(|partition| (partition.id, partition.status))
            .collect();
        let before = std::mem::replace(&mut self.partitions, now.clone());
        for id in before.keys().filter(|id| !now.contains_key(id)) {
            self.line(
                scene,
                &format!("{} was given away", words::partition(*id, &self.view.topics)),
            )?;
        }
        for (id, status) in &now {
            let what = match (before.get(id), status) {
                (Some(before), status) if before == status => continue,
                (None, WatermarkStatus::Active) => "was assigned",
                (None, WatermarkStatus::Idle) => "was assigned and is idle",
                (Some(_), WatermarkStatus::Active) => "is active again",
                (Some(_), WatermarkStatus::Idle) => "is idle and holds nobody back",
            };
            self.line(scene, &format!("{} {what}", words::partition(*id, &self.view.topics)))?;
        }
        Ok(())
    }

    fn windows(&mut self, scene: &Scene<'_>) -> io::Result<()> {
        let now: BTreeMap<_, _> =
            scene.snapshot.recent.iter().map(|fired| (fired.window, *fired)).collect();
        let before = std::mem::replace(&mut self.fired, now);
        for fired in &scene.snapshot.recent {
            let verb = match before.get(&fired.window) {
                Some(before) if before == fired => continue,
                Some(_) => "fired again",
                None => "fired",
            };
            let window = words::window(fired.window, scene.wall);
            let panes = match fired.late {
                0 => format!("{} panes", words::count(fired.on_time)),
                late => format!(
                    "{} panes, {} late updates",
                    words::count(fired.on_time),
                    words::count(late)
                ),
            };
            self.line(scene, &format!("window {window} {verb}: {panes}, {}", after_end(fired)))?;
        }
        Ok(())
    }

    fn line(&mut self, scene: &Scene<'_>, text: &str) -> io::Result<()> {
        writeln!(self.out, "{} {text}", words::time(scene.wall, scene.wall))
    }
}

fn so_far(counts: Counts) -> String {
    format!(
        " [{} records, {} late, {} dead letters]",
        words::count(counts.records),
        words::count(counts.late),
        words::count(counts.dead_letters)
    )
}

const SENTENCE_EVERY: Duration = Duration::from_secs(5);
