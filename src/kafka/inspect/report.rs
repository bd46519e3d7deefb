//! What is handed to people and machines.

use std::fmt;

use serde::Serialize;

/// What a finding means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Nothing to mend, and good to know.
    Note,
    /// The service would run, and something would not be as it should.
    Warning,
    /// The service would end, or not begin.
    Fault,
    /// Nobody knows.
    NotLookedAt,
}

impl Verdict {
    /// As the list has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Fault => "fault",
            Self::NotLookedAt => "not looked at",
        }
    }
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it means.
    pub verdict: Verdict,
    /// What was looked at: one of a closed set of names.
    pub check: &'static str,
    /// Which of them, where there are several, such as the name of a topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    pub(super) fn new(verdict: Verdict, check: &'static str, found: impl Into<String>) -> Self {
        Self { verdict, check, subject: None, found: found.into(), remedy: None }
    }

    pub(super) fn of(mut self, subject: &str) -> Self {
        self.subject = Some(subject.to_owned());
        self
    }

    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<13}  {}", self.verdict.name(), self.check)?;
        if let Some(subject) = &self.subject {
            write!(f, " `{subject}`")?;
        }
        write!(f, ": {}", self.found)?;
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

/// Everything that was found, in the order in which it was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// One for each line.
    pub findings: Vec<Finding>,
}

impl Report {
    /// How many findings there are of a kind.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }

    /// Adds what a configuration says of itself.
    pub fn put_first(&mut self, warnings: &[String]) {
        let warnings =
            warnings.iter().map(|text| Finding::new(Verdict::Warning, "configuration", text));
        let first = Finding::new(Verdict::Ok, "configuration", "can be read");
        self.findings.splice(0..0, std::iter::once(first).chain(warnings));
    }
}
