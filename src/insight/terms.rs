//! What of the configuration those who look inside need; it grows with the topics that patterns bring.

use std::sync::Arc;

use super::{advise, explain};
use crate::config::{Config, Inputs, of_all_topics};

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

/// The terms of a job whose topics may grow.
pub fn read_terms(config: Config, inputs: Inputs) -> ReadTerms {
    Arc::new(of_all_topics(config, inputs, |config| JobTerms::from(config)))
}
