//! Captures the log lines of this thread with their fields.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// One log line.
#[derive(Debug, Clone)]
pub(crate) struct LogLine {
    pub(crate) level: Level,
    pub(crate) target: String,
    pub(crate) message: String,
    pub(crate) fields: BTreeMap<String, String>,
}

impl LogLine {
    /// The names of the fields, without the message.
    pub(crate) fn field_names(&self) -> Vec<&str> {
        self.fields.keys().map(String::as_str).collect()
    }

    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).unwrap_or_else(|| panic!("no field {name} in {self:?}"))
    }
}

/// Collects log lines while the guard exists. On a single-threaded test it captures everything the runtime logs.
#[derive(Clone, Default)]
pub(crate) struct LogLines(Arc<Mutex<Vec<LogLine>>>);

/// While there is only one subscriber, `tracing` asks the thread that first reaches a log line whether it is wanted, and
/// keeps the answer for all: another test, which captures nothing, would switch the line off. A second one prevents that.
static SECOND_SUBSCRIBER: LazyLock<Dispatch> =
    LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));

impl LogLines {
    pub(crate) fn capture() -> (Self, DefaultGuard) {
        LazyLock::force(&SECOND_SUBSCRIBER);
        let lines = Self::default();
        let subscriber = tracing_subscriber::registry().with(lines.clone());
        (lines, tracing::subscriber::set_default(subscriber))
    }

    pub(crate) fn all(&self) -> Vec<LogLine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The lines whose message contains this text.
    pub(crate) fn containing(&self, text: &str) -> Vec<LogLine> {
        self.all().into_iter().filter(|line| line.message.contains(text)).collect()
    }

    /// The only line whose message is this text.
    pub(crate) fn only(&self, message: &str) -> LogLine {
        let mut lines = self.containing(message);
        lines.retain(|line| line.message == message);
        assert_eq!(lines.len(), 1, "'{message}' in {:#?}", self.all());
        lines.remove(0)
    }
}

impl<S: Subscriber> Layer<S> for LogLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = LineFields::default();
        event.record(&mut fields);
        let message = fields.0.remove("message").unwrap_or_default();
        let metadata = event.metadata();
        let line = LogLine {
            level: *metadata.level(),
            target: metadata.target().to_owned(),
            message,
            fields: fields.0,
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

#[derive(Default)]
struct LineFields(BTreeMap<String, String>);

impl Visit for LineFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}
