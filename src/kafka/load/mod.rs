//! A producer that writes generated records to a topic, on a thread of its own.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::panic;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::Message as _;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{
    BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext, PurgeConfig,
};
use tracing::{debug, info, warn};

use super::oauth::{Held, TokenError, Tokens};
use crate::clock::Clock;
use crate::config::OAuth;
use crate::event_time::{EventTime, MonotonicTime};
use crate::generator::{Generated, Kind, Supply};

/// How the brokers are reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Brokers {
    /// Comma-separated `host:port`.
    pub bootstrap_servers: String,
    /// librdkafka properties; they come after our own.
    pub properties: BTreeMap<String, String>,
    /// Where tokens come from, if the properties do not say that something else is shown to the brokers.
    pub oauth: Option<OAuth>,
}

impl Brokers {
    fn client(&self, clock: Clock) -> Result<(ClientConfig, Option<Arc<Tokens>>), LoadError> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap_servers);
        let mechanism =
            MECHANISM.into_iter().find_map(|name| Some((name, self.properties.get(name)?)));
        let tokens = match (mechanism, &self.oauth) {
            (None, Some(oauth)) => {
                config.set("sasl.mechanism", TOKENS);
                Some(oauth)
            }
            (Some((_, mechanism)), Some(oauth)) if mechanism == TOKENS => Some(oauth),
            (Some((name, mechanism)), None) if mechanism == TOKENS && !self.makes_tokens() => {
                return Err(LoadError::NoTokens(name));
            }
            _ => None,
        };
        Ok((config, tokens.map(|oauth| Tokens::of(oauth, clock))))
    }

    /// librdkafka then makes tokens of its own that nobody has signed.
    fn makes_tokens(&self) -> bool {
        let unsecured = self.properties.get("enable.sasl.oauthbearer.unsecure.jwt");
        unsecured.is_some_and(|value| ["true", "t", "1"].contains(&value.as_str()))
    }

    fn set_properties(&self, config: &mut ClientConfig) {
        for (property, value) in &self.properties {
            config.set(property, value);
        }
    }
}

/// Both names of the property that says what is shown to the brokers.
const MECHANISM: [&str; 2] = ["sasl.mechanism", "sasl.mechanisms"];

const TOKENS: &str = "OAUTHBEARER";

/// Where the records go, how fast and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadSettings {
    /// How it gets there.
    pub brokers: Brokers,
    /// The topic; it must have the generator's partitions.
    pub topic: String,
    /// When a record is sent.
    pub pace: Pace,
    /// Ends before the first record that is due this long after the generator's start; `None`: goes on.
    pub duration: Option<Duration>,
    /// Ends after this many records; `None`: goes on.
    pub count: Option<u64>,
}

/// How many partitions a topic has.
///
/// # Errors
/// If there is no token to show, no broker answers within 10 s, or the topic is not there.
pub fn partitions(brokers: &Brokers, topic: &str, clock: Clock) -> Result<u32, LoadError> {
    let (mut config, tokens) = brokers.client(clock)?;
    brokers.set_properties(&mut config);
    let producer: BaseProducer = config.create().map_err(LoadError::Client)?;
    let producer = Held::new(producer, tokens.as_ref());
    if let Some(tokens) = tokens {
        tokens.first()?;
    }
    // All topics, since asking for one by its name may create it.
    let metadata = producer.client().fetch_metadata(None, FLUSH_TIMEOUT).map_err(|source| {
        LoadError::Unreachable { bootstrap_servers: brokers.bootstrap_servers.clone(), source }
    })?;
    let found = metadata.topics().iter().find(|known| known.name() == topic);
    let partitions = found.map_or(0, |topic| topic.partitions().len());
    match u32::try_from(partitions) {
        Ok(partitions) if partitions > 0 => Ok(partitions),
        _ => Err(LoadError::NoTopic(topic.to_owned())),
    }
}

/// When a record is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// When it is due, counted on the monotonic clock from the moment the load was started: a wall clock that steps
    /// makes no burst and no gap.
    AsDue,
    /// As fast as the broker takes them.
    Unpaced,
}

/// Why no load was started.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// librdkafka refused the properties.
    #[error("creating the producer of generated records")]
    Client(#[source] KafkaError),
    /// The brokers are to be shown tokens, and nobody says where they come from.
    #[error(
        "{0}=OAUTHBEARER needs to know where tokens come from; give --config with a configuration that has [kafka.oauth]"
    )]
    NoTokens(&'static str),
    /// No token to show to the brokers.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// No broker answers.
    #[error("no broker answers at {bootstrap_servers}")]
    Unreachable {
        /// Where.
        bootstrap_servers: String,
        /// What the client says.
        source: KafkaError,
    },
    /// The topic is not there.
    #[error("there is no topic `{0}`; create it first")]
    NoTopic(String),
    /// The system has no thread to spare.
    #[error("starting the thread of generated records")]
    Thread(#[source] io::Error),
}

/// What has been sent so far, or was in all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Records made, whatever became of them.
    pub records: u64,
    /// Acknowledged by the broker.
    pub delivered: u64,
    /// Given up, by the client or when it ended.
    pub failed: u64,
    /// Why the last of those failed.
    pub last_failure: Option<String>,
    /// Of the records, those made late.
    pub late: u64,
    /// Of the records, those made broken.
    pub broken: u64,
    /// Of the records, tombstones.
    pub tombstones: u64,
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} records ({} late, {} broken, {} tombstones), {} delivered",
            self.records, self.late, self.broken, self.tombstones, self.delivered
        )?;
        match (&self.last_failure, self.failed) {
            (_, 0) => Ok(()),
            (Some(why), failed) => write!(f, ", {failed} FAILED (the last: {why})"),
            (None, failed) => write!(f, ", {failed} FAILED"),
        }
    }
}

/// A load on its thread. Dropping it asks the thread to end, [`RunningLoad::join`] waits for it.
#[derive(Debug)]
pub struct RunningLoad {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl RunningLoad {
    /// Starts sending; the supply's records are due from now on.
    ///
    /// A broker that is away is no error, nor is a token that does not come: a warning tells so, it is tried again, and records wait for up to
    /// `message.timeout.ms` (5 min). What was not delivered by then is counted as failed.
    pub fn start(
        settings: LoadSettings,
        supply: impl Supply + 'static,
        clock: Clock,
    ) -> Result<Self, LoadError> {
        let (mut config, tokens) = settings.brokers.client(clock)?;
        config
            .set("client.id", "tidegate-generator")
            .set("enable.idempotence", "true")
            .set("linger.ms", "5");
        settings.brokers.set_properties(&mut config);
        let shared = Arc::new(Shared::default());
        let producer: BaseProducer<_> =
            config.create_with_context(Context(Arc::clone(&shared))).map_err(LoadError::Client)?;
        let begun = clock.monotonic();
        let load = Load {
            settings,
            supply: Box::new(supply),
            clock,
            begun,
            producer: Held::new(producer, tokens.as_ref()),
            shared: Arc::clone(&shared),
        };
        let thread = thread::Builder::new()
            .name("generator".to_owned())
            .spawn(move || load.run())
            .map_err(LoadError::Thread)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// What has been sent so far.
    pub fn report(&self) -> LoadReport {
        self.shared.report()
    }

    /// Whether the load has come to its end.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Asks the thread to end; what was sent is still waited for, up to 10 s.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
    }

    /// Waits for the end.
    pub fn join(mut self) -> LoadReport {
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            panic::resume_unwind(panic);
        }
        self.shared.report()
    }
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the thread, librdkafka's callbacks and the owner share.
#[derive(Debug, Default)]
struct Shared {
    stopped: AtomicBool,
    brokers_away: AtomicBool,
    records: AtomicU64,
    delivered: AtomicU64,
    failed: AtomicU64,
    last_failure: Mutex<Option<String>>,
    late: AtomicU64,
    broken: AtomicU64,
    tombstones: AtomicU64,
}

impl Shared {
    fn count(&self, kind: Kind) {
        self.records.fetch_add(1, Ordering::Relaxed);
        match kind {
            Kind::Ordinary | Kind::Delayed => 0,
            Kind::Late => self.late.fetch_add(1, Ordering::Relaxed),
            Kind::Broken(_) => self.broken.fetch_add(1, Ordering::Relaxed),
            Kind::Tombstone => self.tombstones.fetch_add(1, Ordering::Relaxed),
        };
    }

    fn fail(&self, topic: &str, error: &KafkaError) {
        let first = self.failed.fetch_add(1, Ordering::Relaxed) == 0;
        if first {
            warn!(topic, %error, "generated record was not delivered; more of them are only counted");
        }
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
    }

    fn report(&self) -> LoadReport {
        LoadReport {
            records: self.records.load(Ordering::Relaxed),
            delivered: self.delivered.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            last_failure: self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            late: self.late.load(Ordering::Relaxed),
            broken: self.broken.load(Ordering::Relaxed),
            tombstones: self.tombstones.load(Ordering::Relaxed),
        }
    }
}

/// librdkafka's callbacks; they run on the load's thread, when it polls.
struct Context(Arc<Shared>);

impl ClientContext for Context {
    fn error(&self, error: KafkaError, reason: &str) {
        let away = error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown);
        if away && !self.0.brokers_away.swap(true, Ordering::Relaxed) {
            warn!(
                reason,
                "no broker can be reached; generated records wait, the client tries again"
            );
        } else {
            debug!(%error, reason, "client of generated records");
        }
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = ();

    fn delivery(&self, delivery: &DeliveryResult<'_>, (): ()) {
        match delivery {
            Ok(_) => {
                self.0.delivered.fetch_add(1, Ordering::Relaxed);
                if self.0.brokers_away.swap(false, Ordering::Relaxed) {
                    info!("brokers take generated records again");
                }
            }
            Err((error, message)) => self.0.fail(message.topic(), error),
        }
    }
}

/// The thread.
struct Load {
    settings: LoadSettings,
    supply: Box<dyn Supply>,
    clock: Clock,
    begun: MonotonicTime,
    producer: Held<BaseProducer<Context>>,
    shared: Arc<Shared>,
}

impl Load {
    fn run(mut self) {
        let start = self.supply.start();
        let end = self.settings.duration.map_or(EventTime::MAX, |duration| start + duration);
        let mut left = self.settings.count.unwrap_or(u64::MAX);
        while left > 0 && !self.is_stopped() {
            let now = match self.settings.pace {
                Pace::AsDue => start + self.clock.monotonic().since(self.begun),
                Pace::Unpaced => EventTime::MAX,
            };
            while left > 0
                && !self.is_stopped()
                && let Some(record) = self.supply.next_due(now.min(end))
            {
                self.send(&record);
                left -= 1;
            }
            if now >= end || self.supply.is_exhausted() {
                break;
            }
            self.producer.poll(TURN);
        }
        self.finish();
    }

    fn is_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::Relaxed)
    }

    /// Hands a record to librdkafka, waiting while its queue is full.
    fn send(&self, generated: &Generated) {
        self.shared.count(generated.kind);
        let mut record = BaseRecord::<str, [u8]>::to(&self.settings.topic)
            .partition(generated.partition)
            .timestamp(generated.due.0);
        if let Some(key) = &generated.key {
            record = record.key(key);
        }
        if let Some(payload) = &generated.payload {
            record = record.payload(payload);
        }
        while let Err((error, refused)) = self.producer.send(record) {
            let full = error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull);
            if !full || self.is_stopped() {
                self.shared.fail(&self.settings.topic, &error);
                return;
            }
            self.producer.poll(TURN);
            record = refused;
        }
    }

    /// Waits for what is under way, and gives up what the broker has not taken in time, which counts as failed.
    fn finish(self) {
        if let Err(error) = self.producer.flush(FLUSH_TIMEOUT) {
            warn!(
                topic = self.settings.topic,
                %error,
                in_flight = self.producer.in_flight_count(),
                "gives up the generated records that no broker took",
            );
            self.producer.purge(PurgeConfig::default().queue().inflight());
            // The reports of what was purged.
            for _ in 0..100 {
                if self.producer.in_flight_count() == 0 {
                    break;
                }
                self.producer.poll(TURN);
            }
        }
    }
}

/// How long the thread waits at a time.
const TURN: Duration = Duration::from_millis(10);

const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);
