//! `/api/v1/live`: what the page shows, as server-sent events.
//!
//! One task looks at what the loops publish, and makes a frame a second while anybody watches; all viewers get the same
//! frame, and of it only the parts that are new to them. A viewer that reads slowly misses frames and holds up nobody.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, Sleep, interval, sleep};

use super::HttpState;
use super::advise::observations;
use super::page;
use crate::insight::live::{Disorder, Journal, Picture, Process};

/// What a viewer may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct ViewLimits {
    /// Viewers at a time; each has a connection, so fewer than there are of those.
    pub(super) viewers: usize,
    /// A view ends after this long, and the page asks for another one: less than a connection may last.
    pub(super) view: Duration,
}

impl ViewLimits {
    pub(super) const DEFAULT: Self = Self { viewers: 16, view: Duration::from_mins(4) };
}

/// Where viewers get their frames.
#[derive(Clone, Debug)]
pub(super) struct Feed {
    frames: watch::Receiver<Arc<Frame>>,
    slots: Arc<Semaphore>,
    wake: Arc<Notify>,
    view: Duration,
}

/// What makes the frames.
pub(super) struct Maker {
    state: HttpState,
    limits: ViewLimits,
    frames: watch::Sender<Arc<Frame>>,
    slots: Arc<Semaphore>,
    wake: Arc<Notify>,
    process: Process,
    journal: Journal,
    /// Frames made since a second began.
    made: bool,
    seconds: u32,
}

/// What is sent: each part with its number, which rises when it changes.
#[derive(Clone, Debug, Default)]
struct Frame([Option<Part>; PARTS.len()]);

#[derive(Clone, Debug)]
struct Part {
    number: u64,
    json: Arc<str>,
}

/// The names of the parts, in the order in which they are sent.
const PARTS: [&str; 5] = ["state", "events", "points", "point", "disorder"];
const STATE: usize = 0;
const EVENTS: usize = 1;
const POINTS: usize = 2;
const POINT: usize = 3;
const DISORDER: usize = 4;

pub(super) fn feed(state: HttpState, limits: ViewLimits) -> (Feed, Maker) {
    let (sender, frames) = watch::channel(Arc::default());
    let slots = Arc::new(Semaphore::new(limits.viewers));
    let wake = Arc::new(Notify::new());
    let started = (state.clock)().wall.0;
    let process =
        Process { id: format!("{}-{started}", std::process::id()), started, page: page::version() };
    let maker = Maker {
        state,
        limits,
        frames: sender,
        slots: Arc::clone(&slots),
        wake: Arc::clone(&wake),
        process,
        journal: Journal::default(),
        made: false,
        seconds: 0,
    };
    (Feed { frames, slots, wake, view: limits.view }, maker)
}

impl Maker {
    /// Works for as long as the server does; its end ends all views.
    pub(super) async fn run(mut self) {
        let mut looks = interval(LOOK);
        let mut seconds = interval(FRAME);
        for ticks in [&mut looks, &mut seconds] {
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        let mut asked = JoinSet::new();
        let wake = Arc::clone(&self.wake);
        loop {
            tokio::select! {
                _ = looks.tick() => self.look(),
                () = wake.notified() => self.on_viewer(&mut asked),
                _ = seconds.tick() => self.on_second(&mut asked),
                Some(made) = asked.join_next() => self.take_disorder(made.ok().flatten()),
            }
        }
    }

    fn look(&mut self) {
        let topics = &(self.state.terms)().topics;
        let (overview, outcomes) = (self.state.watches.overview(), self.state.metrics.outcomes());
        self.journal.look(&overview, topics, outcomes, (self.state.clock)());
    }

    /// Somebody has come: there is a frame at once, though no more than one a second.
    fn on_viewer(&mut self, asked: &mut JoinSet<Option<Disorder>>) {
        if !self.made {
            self.ask_disorder(asked);
            self.make();
        }
    }

    fn on_second(&mut self, asked: &mut JoinSet<Option<Disorder>>) {
        self.made = false;
        if self.slots.available_permits() == self.limits.viewers {
            // What nobody sees would be old for who comes next.
            self.frames.send_if_modified(|frame| {
                let had = frame.0.iter().any(Option::is_some);
                *frame = Arc::default();
                had
            });
            self.seconds = 0;
            return;
        }
        self.seconds += 1;
        if self.seconds.is_multiple_of(DISORDER_SECONDS) {
            self.ask_disorder(asked);
        }
        self.make();
    }

    fn make(&mut self) {
        self.look();
        self.made = true;
        let HttpState { watches, metrics, terms, clock } = &self.state;
        let terms = terms();
        let overview = watches.overview();
        let process = self.process.clone();
        let picture = Picture::new(&overview, &terms.explain, metrics.outcomes(), process, clock());
        let (events, mut points): (Vec<_>, Vec<_>) =
            (self.journal.events().collect(), self.journal.points().collect());
        // The last one changes each time, the others never.
        let point = points.pop();
        self.frames.send_modify(|frame| {
            let mut next = Frame::clone(frame);
            next.put(STATE, &picture);
            next.put(EVENTS, &events);
            next.put(POINTS, &points);
            next.put(POINT, &point);
            *frame = Arc::new(next);
        });
    }

    /// Asks the loops for what they have observed: each copies it once.
    fn ask_disorder(&self, asked: &mut JoinSet<Option<Disorder>>) {
        if !asked.is_empty() {
            return;
        }
        let state = self.state.clone();
        asked.spawn(async move {
            let observed = observations(&state).await?;
            let (terms, overview) = ((state.terms)().advise, state.watches.overview());
            let work = move || Disorder::new(&observed, &terms, &overview);
            tokio::task::spawn_blocking(work).await.ok()
        });
    }

    fn take_disorder(&mut self, made: Option<Disorder>) {
        let Some(disorder) = made else { return };
        self.frames.send_modify(|frame| {
            let mut next = Frame::clone(frame);
            next.put(DISORDER, &disorder);
            *frame = Arc::new(next);
        });
    }
}

impl Frame {
    fn put(&mut self, part: usize, content: &impl Serialize) {
        let Some(held) = self.0.get_mut(part) else { return };
        // Nothing in it can fail to be written: no maps with keys that are no texts.
        let Ok(json) = serde_json::to_string(content) else { return };
        if held.as_ref().is_none_or(|held| *held.json != *json) {
            let number = held.as_ref().map_or(1, |held| held.number + 1);
            *held = Some(Part { number, json: json.into() });
        }
    }
}

/// One who watches.
struct Viewer {
    frames: watch::Receiver<Arc<Frame>>,
    /// The frame that is being sent, and the part that comes next.
    sending: Option<(Arc<Frame>, usize)>,
    /// The number of each part that was sent last.
    sent: [u64; PARTS.len()],
    begun: bool,
    end: Pin<Box<Sleep>>,
    _slot: OwnedSemaphorePermit,
}

pub(super) async fn live(State(feed): State<Feed>) -> Response {
    let Ok(slot) = Arc::clone(&feed.slots).try_acquire_owned() else {
        let again = [(header::RETRY_AFTER, "5")];
        let said = "as many pages are open as this service serves; close one, or wait\n";
        return (StatusCode::SERVICE_UNAVAILABLE, again, said).into_response();
    };
    let mut frames = feed.frames.clone();
    let frame = Arc::clone(&frames.borrow_and_update());
    feed.wake.notify_one();
    let viewer = Viewer {
        frames,
        sending: Some((frame, 0)),
        sent: [0; PARTS.len()],
        begun: false,
        end: Box::pin(sleep(feed.view)),
        _slot: slot,
    };
    let events = stream::unfold(viewer, |mut viewer| async move {
        let event = viewer.next().await?;
        Some((Ok::<_, Infallible>(event), viewer))
    });
    let events = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    ([(header::CACHE_CONTROL, "no-store")], events).into_response()
}

impl Viewer {
    /// The next part that is new to this one; `None` when the view or the service ends.
    async fn next(&mut self) -> Option<Event> {
        if !std::mem::replace(&mut self.begun, true) {
            return Some(Event::default().retry(RETRY));
        }
        loop {
            if let Some(event) = self.next_part() {
                return Some(event);
            }
            tokio::select! {
                changed = self.frames.changed() => changed.ok()?,
                () = self.end.as_mut() => return None,
            }
            let frame = Arc::clone(&self.frames.borrow_and_update());
            self.sending = Some((frame, 0));
        }
    }

    fn next_part(&mut self) -> Option<Event> {
        let (frame, next) = self.sending.as_mut()?;
        while let (Some(part), Some(sent), Some(name)) =
            (frame.0.get(*next), self.sent.get_mut(*next), PARTS.get(*next))
        {
            *next += 1;
            if let Some(part) = part.as_ref().filter(|part| part.number != *sent) {
                *sent = part.number;
                return Some(Event::default().event(*name).data(&*part.json));
            }
        }
        None
    }
}

/// How often it is looked for what has changed.
const LOOK: Duration = Duration::from_millis(250);

/// How often a frame is made.
const FRAME: Duration = Duration::from_secs(1);

/// After how many frames the loops are asked again for what they have observed.
const DISORDER_SECONDS: u32 = 10;

/// How long nothing is sent at most: only ever while the service cannot make frames.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// After this long a page asks again when it was cut off.
const RETRY: Duration = Duration::from_secs(1);
