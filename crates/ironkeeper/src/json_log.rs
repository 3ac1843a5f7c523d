//! The log format JSON: one object per line, with `timestamp`, `level`, `target`, `message`, and
//! the fields of the event in the object `fields`.

use std::fmt::{Debug, Error, Result};

use serde::Serialize;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::log_time::UtcMillis;

/// The log format JSON, see the head of this file.
#[derive(Debug)]
pub struct JsonLines;

#[derive(Serialize)]
struct Line<'event> {
    timestamp: String,
    level: &'event str,
    target: &'event str,
    message: String,
    fields: Map<String, Value>,
}

#[derive(Default)]
struct Content {
    message: String,
    fields: Map<String, Value>,
}

impl Content {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        match (field.name(), value.into()) {
            ("message", Value::String(message)) => self.message = message,
            (name, value) => drop(self.fields.insert(name.to_owned(), value)),
        }
    }
}

impl Visit for Content {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    /// Records the milliseconds of a duration.
    fn record_u128(&mut self, field: &Field, value: u128) {
        self.put(field, u64::try_from(value).unwrap_or(u64::MAX));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
}

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> Result {
        let mut timestamp = String::new();
        UtcMillis.format_time(&mut Writer::new(&mut timestamp))?;
        let mut content = Content::default();
        event.record(&mut content);
        let metadata = event.metadata();
        let line = Line {
            timestamp,
            level: metadata.level().as_str(),
            target: metadata.target(),
            message: content.message,
            fields: content.fields,
        };
        writeln!(writer, "{}", serde_json::to_string(&line).map_err(|_| Error)?)
    }
}
