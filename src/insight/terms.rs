//! What of the configuration those who look inside need; it grows with the topics that patterns bring.

use std::sync::{Arc, Mutex, PoisonError};

use super::{advise, explain};
use crate::config::{Config, Inputs};

/// For all topics that there are so far.
#[derive(Clone, Debug)]
pub struct JobTerms {
    /// The topics, by number.
    pub topics: Arc<[String]>,
    /// What an explanation needs.
    pub explain: Arc<explain::Terms>,
    /// What advice goes by, for each topic.
    pub advise: Arc<[advise::Terms]>,
}

impl From<&Config> for JobTerms {
    fn from(config: &Config) -> Self {
        Self {
            topics: config.sources.iter().map(|source| source.topic.clone()).collect(),
            explain: Arc::new(explain::Terms::from(config)),
            advise: config
                .sources
                .iter()
                .map(|source| advise::Terms::new(config, source))
                .collect(),
        }
    }
}

/// Reads the terms as they are now.
pub type ReadTerms = Arc<dyn Fn() -> JobTerms + Send + Sync>;

/// The terms of a job whose topics may grow; they are made anew only when these have.
pub fn read_terms(config: Config, inputs: Inputs) -> ReadTerms {
    let made = Mutex::new((config.sources.len(), JobTerms::from(&config)));
    Arc::new(move || {
        let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
        let count = inputs.count();
        if made.0 != count {
            *made = (count, JobTerms::from(&config.with_topics_of(&inputs)));
        }
        made.1.clone()
    })
}
