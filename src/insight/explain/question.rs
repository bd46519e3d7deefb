//! Which window is asked about, and what is wrong with a question.

use crate::event_time::{EventTime, TimeWindow, TumblingWindows};

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Question {
    /// The next window to fire.
    #[default]
    Next,
    /// The window that begins at this time.
    WindowStart(EventTime),
    /// The window of a key's record of this time.
    KeyAndTime(String, EventTime),
}

/// What is wrong with a question, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuestionError {
    /// Not a parameter.
    #[error("`{0}` is no parameter; ask with window_start, or with key and time, or with neither")]
    Unknown(String),
    /// A parameter that is there twice.
    #[error("`{0}` is given twice")]
    Twice(String),
    /// Two questions at once.
    #[error("window_start and key with time are two questions; ask one of them")]
    Both,
    /// Half a question.
    #[error("`{0}` needs `{1}` beside it, as in ?key=berlin-3&time=2026-01-31T12:03:46Z")]
    Half(&'static str, &'static str),
    /// Not a time.
    #[error(
        "{name}: `{text}` is no time; write milliseconds since the epoch, or RFC 3339 such as 2026-01-31T12:03:00Z"
    )]
    NoTime {
        /// The parameter.
        name: &'static str,
        /// What was written.
        text: String,
    },
    /// No window begins there.
    #[error("no window begins at {asked}; windows near it begin at {before} and {after}")]
    NoWindow {
        /// What was asked for.
        asked: String,
        /// The start of the window that it lies in.
        before: String,
        /// The start of the next.
        after: String,
    },
    /// Beyond the range of time.
    #[error("{0} ms is out of range: its window would end beyond 64 bits of milliseconds")]
    OutOfRange(EventTime),
}

impl Question {
    /// Reads a question out of named values.
    ///
    /// ```
    /// use tidegate::event_time::EventTime;
    /// use tidegate::insight::explain::Question;
    ///
    /// let asked = Question::read([("window_start", "1970-01-01T00:01:00Z")].map(|(n, v)| (n.to_owned(), v.to_owned())));
    /// assert_eq!(asked, Ok(Question::WindowStart(EventTime(60_000))));
    /// ```
    ///
    /// # Errors
    /// See [`QuestionError`].
    pub fn read(values: impl IntoIterator<Item = (String, String)>) -> Result<Self, QuestionError> {
        let (mut start, mut key, mut time) = (None, None, None);
        for (name, value) in values {
            let place = match name.as_str() {
                "window_start" => &mut start,
                "key" => &mut key,
                "time" => &mut time,
                _ => return Err(QuestionError::Unknown(name)),
            };
            if place.replace(value).is_some() {
                return Err(QuestionError::Twice(name));
            }
        }
        match (start, key, time) {
            (None, None, None) => Ok(Self::Next),
            (Some(start), None, None) => Ok(Self::WindowStart(read_time("window_start", &start)?)),
            (None, Some(key), Some(time)) => Ok(Self::KeyAndTime(key, read_time("time", &time)?)),
            (None, Some(_), None) => Err(QuestionError::Half("key", "time")),
            (None, None, Some(_)) => Err(QuestionError::Half("time", "key")),
            (Some(_), ..) => Err(QuestionError::Both),
        }
    }

    /// The window asked about; `None`: the next to fire.
    pub(super) fn window(
        &self,
        windows: TumblingWindows,
    ) -> Result<Option<TimeWindow>, QuestionError> {
        let of = |time: EventTime| windows.assign(time).ok_or(QuestionError::OutOfRange(time));
        match self {
            Self::Next => Ok(None),
            Self::KeyAndTime(_, time) => of(*time).map(Some),
            Self::WindowStart(start) => {
                let window = of(*start)?;
                if window.start == *start {
                    return Ok(Some(window));
                }
                let [asked, before, after] = [*start, window.start, window.end].map(text);
                Err(QuestionError::NoWindow { asked, before, after })
            }
        }
    }
}

fn read_time(name: &'static str, text: &str) -> Result<EventTime, QuestionError> {
    if let Ok(ms) = text.parse() {
        return Ok(EventTime(ms));
    }
    let read = text.parse::<jiff::Timestamp>();
    let time = read.map_err(|_| QuestionError::NoTime { name, text: text.to_owned() })?;
    Ok(EventTime(time.as_millisecond()))
}

fn text(time: EventTime) -> String {
    jiff::Timestamp::from_millisecond(time.0)
        .map_or_else(|_| time.to_string(), |timestamp| timestamp.to_string())
}
