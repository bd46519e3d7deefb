//! tidegate turns Kafka topics into per-window results by event time.

pub mod event_time;

pub mod codec;

pub mod clock;

pub mod insight;

pub mod config;

pub mod generator;

pub mod kafka;

pub mod cli;
