//! The input topics by their number, while the service runs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::{Config, Source, SourcePattern};

/// The topics that are named, in the order of the configuration, and then those that patterns have brought, in the order
/// in which they were seen. So a number is good for this process alone; what outlives it has names.
///
/// It only grows. Clones share it.
///
/// ```
/// use tidegate::config::{Inputs, Sources, load};
///
/// let text = ["source[0].pattern=^orders-.*", "source[0].timestamp.from=record", "kafka.group_id=g", "window.size=1m"];
/// let text = text.into_iter().chain([
///     "source[0].watermark.max_out_of_orderness=5s", "key.from=message", "aggregate[0].name=n",
///     "aggregate[0].function=count", "results.topic=r", "late.topic=l", "dead_letter.topic=d",
/// ]);
/// let overrides = text.map(str::to_owned).collect();
/// let sources = Sources { overrides, host_name: Some("here".to_owned()), ..Sources::default() };
/// let config = load(&sources).unwrap().config;
/// let inputs = Inputs::new(&config);
/// inputs.admit(["orders-eu", "other", "g-orders-eu-changelog"]).unwrap();
/// assert_eq!(inputs.names(), ["orders-eu"]);
/// ```
#[derive(Clone, Debug)]
pub struct Inputs(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    patterns: Vec<SourcePattern>,
    /// What the changelogs of this group begin with.
    group: String,
    sources: RwLock<Vec<Arc<Source>>>,
    count: AtomicUsize,
}

/// A topic that two sources would read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "topic `{topic}` matches `{first}` (source[{first_place}].pattern) and `{second}` (source[{second_place}].pattern), \
     and a topic belongs to one source: make one of the patterns narrower"
)]
pub struct TwoPatterns {
    /// Which topic.
    pub topic: String,
    /// One of them.
    pub first: String,
    /// The place of its `[[source]]`.
    pub first_place: usize,
    /// The other one.
    pub second: String,
    /// The place of its `[[source]]`.
    pub second_place: usize,
}

impl Inputs {
    /// The topics that the configuration names.
    pub fn new(config: &Config) -> Self {
        let sources: Vec<_> = config.sources.iter().cloned().map(Arc::new).collect();
        Self(Arc::new(Shared {
            patterns: config.patterns.clone(),
            group: format!("{}-", config.kafka.group_id),
            count: AtomicUsize::new(sources.len()),
            sources: RwLock::new(sources),
        }))
    }

    /// Whether more of them may come.
    pub fn have_patterns(&self) -> bool {
        !self.0.patterns.is_empty()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.count.load(Ordering::Acquire)
    }

    /// All of them but the first so many.
    pub fn since(&self, known: usize) -> Vec<Arc<Source>> {
        if known >= self.count() {
            return Vec::new();
        }
        self.read(|sources| sources.iter().skip(known).cloned().collect())
    }

    /// The one of this number.
    pub fn get(&self, number: u16) -> Option<Arc<Source>> {
        self.read(|sources| sources.get(usize::from(number)).cloned())
    }

    /// The number of a topic; `None` for one that is not an input.
    pub fn number(&self, topic: &str) -> Option<u16> {
        let place = self.read(|sources| sources.iter().position(|source| source.topic == topic))?;
        u16::try_from(place).ok()
    }

    /// Their names, by number.
    pub fn names(&self) -> Vec<String> {
        self.read(|sources| sources.iter().map(|source| source.topic.clone()).collect())
    }

    /// Whether a pattern has brought it.
    pub fn is_of_pattern(&self, source: &Source) -> bool {
        is_of_one(&self.0.patterns, source)
    }

    /// Takes in those of these topics that match a pattern. How many were new.
    ///
    /// # Errors
    /// If one matches two patterns. What was taken in before it stays.
    pub fn admit<'t>(
        &self,
        topics: impl IntoIterator<Item = &'t str>,
    ) -> Result<usize, TwoPatterns> {
        let mut new = 0;
        if !self.have_patterns() {
            return Ok(new);
        }
        // In the order of their names, so that processes that see the same call them the same.
        let mut topics: Vec<_> = topics.into_iter().filter(|topic| self.may_match(topic)).collect();
        topics.sort_unstable();
        for topic in topics {
            let Some(pattern) = self.pattern_of(topic)? else { continue };
            let mut sources = self.0.sources.write().unwrap_or_else(PoisonError::into_inner);
            let is_known = sources.iter().any(|source| source.topic == topic);
            if !is_known && sources.len() < usize::from(u16::MAX) {
                sources.push(Arc::new(pattern.source_of(topic)));
                self.0.count.store(sources.len(), Ordering::Release);
                new += 1;
            }
        }
        Ok(new)
    }

    /// Neither what the brokers keep for themselves nor where the states of this group are.
    fn may_match(&self, topic: &str) -> bool {
        let is_changelog = topic.starts_with(&self.0.group) && topic.ends_with("-changelog");
        !topic.starts_with("__") && !is_changelog
    }

    /// The one pattern that matches a topic, if any does.
    fn pattern_of(&self, topic: &str) -> Result<Option<&SourcePattern>, TwoPatterns> {
        let mut matching = self.0.patterns.iter().filter(|pattern| pattern.pattern.matches(topic));
        let found = matching.next();
        let (Some(first), Some(second)) = (found, matching.next()) else { return Ok(found) };
        Err(TwoPatterns {
            topic: topic.to_owned(),
            first: first.pattern.as_str().to_owned(),
            first_place: first.source.table,
            second: second.pattern.as_str().to_owned(),
            second_place: second.source.table,
        })
    }

    fn read<R>(&self, look: impl FnOnce(&[Arc<Source>]) -> R) -> R {
        look(&self.0.sources.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Config {
    /// The same with every topic that there is by its name, as far as `inputs` has seen them.
    #[must_use]
    pub fn with_topics_of(&self, inputs: &Inputs) -> Self {
        let sources = inputs.since(0).iter().map(|source| (**source).clone()).collect();
        Self { sources, ..self.clone() }
    }

    /// The topic that is named first, whatever patterns have brought.
    pub(crate) fn first_named(&self) -> Option<&str> {
        let named = self.sources.iter().find(|source| !is_of_one(&self.patterns, source));
        named.map(|source| source.topic.as_str())
    }
}

fn is_of_one(patterns: &[SourcePattern], source: &Source) -> bool {
    patterns.iter().any(|pattern| pattern.source.table == source.table)
}

/// What is made of a configuration with all topics that there are by now; made anew only when these have grown.
pub(crate) fn of_all_topics<T: Clone>(
    config: Config,
    inputs: Inputs,
    make: impl Fn(&Config) -> T,
) -> impl Fn() -> T {
    let latest = Mutex::new((config.sources.len(), make(&config)));
    move || {
        let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
        let count = inputs.count();
        if latest.0 != count {
            *latest = (count, make(&config.with_topics_of(&inputs)));
        }
        latest.1.clone()
    }
}
