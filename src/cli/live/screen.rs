//! One screenful: the sentence, the partitions, the last windows, the counts.

use ratatui::Frame;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::{LiveView, Scene};
use crate::event_time::{EventTime, WatermarkStatus};
use crate::insight::{FiredWindow, PartitionSnapshot, sentence, words};

/// Draws a scene on the whole frame; the same for the same arguments.
///
/// Partitions get the room that at most five windows leave. If they do not fit, the worst are shown: the one that holds
/// the watermark, those without a watermark, then the least watermarks.
pub fn draw(frame: &mut Frame<'_>, view: &LiveView, scene: &Scene<'_>) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    frame.render_widget(Paragraph::new(lines(view, scene, width, height)), area);
}

fn lines(view: &LiveView, scene: &Scene<'_>, width: usize, height: usize) -> Vec<Line<'static>> {
    let palette = Palette { color: view.color };
    let mut lines = vec![title(view, scene, width)];
    let said = sentence(scene.snapshot, &view.topics, scene.wall);
    lines
        .extend(wrap(&said, width, 3).into_iter().map(|line| Line::styled(line, palette.strong())));
    // Two lines at least, so that the rest does not jump up and down with its length.
    lines.resize(lines.len().max(3), Line::default());
    let footer = footer(view, scene, width);

    let (partitions, windows) = (scene.snapshot.partitions.len(), scene.snapshot.recent.len());
    // Two headings, and an empty line before each of them and before the footer.
    let room = height.saturating_sub(lines.len() + footer.len() + 5);
    let for_windows = windows.clamp(1, 5).min(room / 2);
    let for_partitions = partitions.max(1).min(room - for_windows);

    lines.push(Line::default());
    lines
        .push(Line::styled(row(&PARTITION_COLUMNS, &PARTITION_HEADINGS, width), palette.heading()));
    lines.extend(partition_rows(view, scene, for_partitions, width, &palette));
    lines.push(Line::default());
    lines.push(Line::styled(row(&WINDOW_COLUMNS, &WINDOW_HEADINGS, width), palette.heading()));
    lines.extend(window_rows(scene, room - for_partitions, width));
    lines.resize(height.saturating_sub(footer.len()), Line::default());
    lines.extend(footer);
    lines
}

fn title(view: &LiveView, scene: &Scene<'_>, width: usize) -> Line<'static> {
    let now = format!("{} UTC", words::time(scene.wall, scene.wall));
    let left = width.saturating_sub(now.chars().count() + 1);
    Line::from(fit(&format!("{} {now}", pad(&view.title, left)), width))
}

fn partition_rows(
    view: &LiveView,
    scene: &Scene<'_>,
    rows: usize,
    width: usize,
    palette: &Palette,
) -> Vec<Line<'static>> {
    let holder = scene.snapshot.holder;
    let mut partitions: Vec<_> = scene.snapshot.partitions.iter().collect();
    if partitions.is_empty() {
        return vec![Line::from("  none assigned")];
    }
    let mut shown = rows;
    if partitions.len() > rows {
        shown = rows.saturating_sub(1);
        partitions.sort_by_key(|partition| {
            let idle = partition.status == WatermarkStatus::Idle;
            (Some(partition.id) != holder, idle, partition.watermark, partition.id)
        });
    }
    let (above, rest) = partitions.split_at_checked(shown).unwrap_or_default();
    let mut lines: Vec<_> = above
        .iter()
        .map(|partition| {
            let holds = Some(partition.id) == holder;
            partition_row(view, partition, holds, scene.wall, width, palette)
        })
        .collect();
    if rows > 0 && !rest.is_empty() {
        let idle = rest.iter().filter(|p| p.status == WatermarkStatus::Idle).count();
        let more = format!("  and {} more: {} active, {idle} idle", rest.len(), rest.len() - idle);
        lines.push(Line::from(fit(&more, width)));
    }
    lines
}

fn partition_row(
    view: &LiveView,
    partition: &PartitionSnapshot,
    holds: bool,
    wall: EventTime,
    width: usize,
    palette: &Palette,
) -> Line<'static> {
    let time =
        |time: Option<EventTime>| time.map_or("-".to_owned(), |time| words::short_time(time, wall));
    let offset = |offset: Option<i64>| offset.map_or("?".to_owned(), |offset| offset.to_string());
    let mark = if holds { '>' } else { ' ' };
    let text = row(
        &PARTITION_COLUMNS,
        &[
            &format!("{mark} {}", words::partition(partition.id, &view.topics)),
            &time(partition.max_event_time),
            &time(partition.watermark),
            &partition.watermark.map_or("-".to_owned(), |watermark| lag(watermark, wall)),
            &format!("{}/{}", offset(partition.position), offset(partition.end_offset)),
            &status(partition, wall),
        ],
        width,
    );
    let style = match (holds, partition.status) {
        (true, _) => palette.strong(),
        (false, WatermarkStatus::Idle) => Palette::faint(),
        (false, WatermarkStatus::Active) => Style::default(),
    };
    Line::styled(text, style)
}

/// The status in words; of a silent partition when it will be idle.
pub(super) fn status(partition: &PartitionSnapshot, wall: EventTime) -> String {
    match (partition.status, partition.idle_in) {
        (WatermarkStatus::Idle, _) => "idle".to_owned(),
        (WatermarkStatus::Active, Some(left)) if partition.is_silent(wall) => {
            format!("idle in {}", words::countdown(left))
        }
        (WatermarkStatus::Active, _) if partition.max_event_time.is_none() => {
            "no record yet".to_owned()
        }
        (WatermarkStatus::Active, _) => "active".to_owned(),
    }
}

fn window_rows(scene: &Scene<'_>, rows: usize, width: usize) -> Vec<Line<'static>> {
    if scene.snapshot.recent.is_empty() {
        return vec![Line::from("  none has fired yet")];
    }
    let newest_first = scene.snapshot.recent.iter().rev().take(rows);
    newest_first.map(|fired| Line::from(window_row(fired, scene.wall, width))).collect()
}

fn window_row(fired: &FiredWindow, wall: EventTime, width: usize) -> String {
    row(
        &WINDOW_COLUMNS,
        &[
            &format!("  {}", words::window(fired.window, wall)),
            &words::count(fired.on_time),
            &words::count(fired.late),
            &after_end(fired),
        ],
        width,
    )
}

/// How long after a window's end its last pane fired.
pub(super) fn after_end(fired: &FiredWindow) -> String {
    if fired.fired_at < fired.window.end {
        format!("{} before its end", words::span(fired.fired_at.behind(fired.window.end)))
    } else {
        format!("{} after its end", words::span(fired.window.end.behind(fired.fired_at)))
    }
}

fn footer(view: &LiveView, scene: &Scene<'_>, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let snapshot = scene.snapshot;
    let open = format!(
        "{} windows open ({} panes)",
        words::count(u64::try_from(snapshot.windows_open).unwrap_or(u64::MAX)),
        words::count(u64::try_from(snapshot.panes_open).unwrap_or(u64::MAX))
    );
    let counts = scene.counts.map_or(open.clone(), |counts| {
        format!(
            "{} records, {} late, {} dead letters, {} tombstones; {open}",
            words::count(counts.records),
            words::count(counts.late),
            words::count(counts.dead_letters),
            words::count(counts.tombstones)
        )
    });
    lines.push(Line::from(fit(&counts, width)));
    for note in &view.notes {
        lines.extend(
            wrap(note, width, 2).into_iter().map(|line| Line::styled(line, Palette::faint())),
        );
    }
    let quit = "> holds the watermark   q quits".to_owned();
    let last = view.link.as_ref().map_or(quit.clone(), |link| format!("{link}   {quit}"));
    lines.push(Line::from(fit(&last, width)));
    lines
}

/// How far a watermark is behind now; with a minus if it is ahead.
fn lag(watermark: EventTime, wall: EventTime) -> String {
    if watermark > wall {
        format!("-{}", words::span(wall.behind(watermark)))
    } else {
        words::span(watermark.behind(wall))
    }
}

/// Texts in columns of these widths with a space between them, cut to `width`; the first column gets what is wider than
/// 80, up to another 30, and the last has no width of its own.
fn row<const N: usize>(columns: &[usize; N], texts: &[&str; N], width: usize) -> String {
    let mut line = String::new();
    for (column, text) in columns.iter().zip(texts) {
        if line.is_empty() {
            line = pad(text, column + width.saturating_sub(80).min(30));
        } else {
            line.push(' ');
            line.push_str(&pad(text, *column));
        }
    }
    fit(line.trim_end(), width)
}

/// A text in exactly this many columns; a long one loses its middle, since names differ at the end.
fn pad(text: &str, columns: usize) -> String {
    let length = text.chars().count();
    if columns == 0 || length <= columns {
        return format!("{text:columns$}");
    }
    let head = (columns - 1) / 2;
    let tail = columns - 1 - head;
    let cut = text.chars().take(head).chain(['…']);
    cut.chain(text.chars().skip(length - tail)).collect()
}

/// A text cut at the end if it is wider than this.
fn fit(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).take(width).collect()
}

/// A text in lines of at most this width, broken at spaces; what needs more than `most` lines is cut.
fn wrap(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() == most;
        let Some(line) = lines.last_mut() else { break };
        let fits = line.chars().count() + 1 + word.chars().count() <= width;
        if line.is_empty() {
            line.push_str(word);
        } else if fits || last {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.iter().map(|line| fit(line, width)).collect()
}

/// Styles; without colours only bold and dim are left.
struct Palette {
    color: bool,
}

impl Palette {
    fn strong(&self) -> Style {
        self.colored(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    fn heading(&self) -> Style {
        self.colored(Color::Cyan)
    }

    fn faint() -> Style {
        Style::default().add_modifier(Modifier::DIM)
    }

    fn colored(&self, color: Color) -> Style {
        if self.color { Style::default().fg(color) } else { Style::default() }
    }
}

/// At 80 columns 17 are left for the status.
const PARTITION_COLUMNS: [usize; 6] = [14, 10, 10, 11, 13, 0];

const PARTITION_HEADINGS: [&str; 6] =
    ["  PARTITION", "NEWEST", "WATERMARK", "BEHIND", "POSITION/END", "STATUS"];

const WINDOW_COLUMNS: [usize; 4] = [26, 9, 13, 0];

const WINDOW_HEADINGS: [&str; 4] = ["  WINDOW (UTC)", "ON TIME", "LATE UPDATES", "LAST FIRED"];
