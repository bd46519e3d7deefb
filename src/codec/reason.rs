//! Why a record became a dead letter.

/// The closed set of reasons; each is a label of the dead-letter counter and a header of the dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Not JSON.
    BadJson,
    /// Not UTF-8.
    BadUtf8,
    /// Zero bytes (a missing payload is a tombstone instead).
    EmptyPayload,
    /// JSON, but not an object.
    NotObject,
    /// Nested in more than 127 levels.
    TooDeep,
    /// A field that is read stands there twice.
    DuplicateField,
    /// No timestamp.
    TsMissing,
    /// A timestamp that is no number or no date.
    TsInvalid,
    /// A timestamp before `guard.min_timestamp`.
    TsPast,
    /// A timestamp further past the wall clock than `guard.max_future`.
    TsFuture,
    /// A timestamp, or its window, outside of what 64 bits of milliseconds hold.
    TsOutOfRange,
    /// No key.
    KeyMissing,
    /// A key that is no text, integer or boolean.
    KeyType,
    /// One key more than the limits allow.
    KeyLimit,
    /// No value for an aggregate that needs one.
    ValueMissing,
    /// A value that is no number of the wanted type.
    ValueType,
    /// A number too large to be held.
    ValueOutOfRange,
    /// A result larger than its topic takes.
    ResultTooLarge,
}

impl Reason {
    /// All reasons, for counters that exist before anything happened.
    pub const ALL: [Self; 18] = [
        Self::BadJson,
        Self::BadUtf8,
        Self::EmptyPayload,
        Self::NotObject,
        Self::TooDeep,
        Self::DuplicateField,
        Self::TsMissing,
        Self::TsInvalid,
        Self::TsPast,
        Self::TsFuture,
        Self::TsOutOfRange,
        Self::KeyMissing,
        Self::KeyType,
        Self::KeyLimit,
        Self::ValueMissing,
        Self::ValueType,
        Self::ValueOutOfRange,
        Self::ResultTooLarge,
    ];

    /// The word used in headers and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::BadJson => "bad_json",
            Self::BadUtf8 => "bad_utf8",
            Self::EmptyPayload => "empty_payload",
            Self::NotObject => "not_object",
            Self::TooDeep => "too_deep",
            Self::DuplicateField => "duplicate_field",
            Self::TsMissing => "ts_missing",
            Self::TsInvalid => "ts_invalid",
            Self::TsPast => "ts_past",
            Self::TsFuture => "ts_future",
            Self::TsOutOfRange => "ts_out_of_range",
            Self::KeyMissing => "key_missing",
            Self::KeyType => "key_type",
            Self::KeyLimit => "key_limit",
            Self::ValueMissing => "value_missing",
            Self::ValueType => "value_type",
            Self::ValueOutOfRange => "value_out_of_range",
            Self::ResultTooLarge => "result_too_large",
        }
    }
}
