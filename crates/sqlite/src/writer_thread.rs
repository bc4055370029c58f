//! The thread around the writer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::mailbox::{Arrivals, Mailbox};
use crate::writer::{BUSY_PAUSE, Inlet, Letter, Step, Writer};

/// Pause between batches while another process works on the file.
const FOREIGN_GAP: Duration = Duration::from_millis(1);

/// Works off the mailbox until it is closed and empty.
pub(crate) fn run(mut writer: Writer, mailbox: &Arc<Mailbox>) {
    let mut inlet = Window { mailbox, until: Instant::now() };
    loop {
        let arrivals = mailbox.take(writer.next_wake());
        match round(&mut writer, arrivals, &mut inlet) {
            Round::Again => {}
            Round::Pause(pause) => std::thread::sleep(pause),
            Round::Over => break,
        }
    }
    close(writer);
}

/// What comes after a round.
pub(crate) enum Round {
    /// The next one.
    Again,
    /// The next one, after a pause.
    Pause(Duration),
    /// The mailbox is closed and empty.
    Over,
}

/// Takes what came and works off one batch.
pub(crate) fn round(writer: &mut Writer, arrivals: Arrivals, inlet: &mut dyn Inlet) -> Round {
    let Arrivals { letters, closed } = arrivals;
    if letters.is_empty() && !closed && !writer.has_work() {
        writer.tick();
    }
    letters.into_iter().for_each(|letter| writer.accept(letter));
    if closed {
        writer.dismiss_waiters();
    }
    match writer.step(inlet) {
        Step::Done if writer.leaves_gap() => Round::Pause(FOREIGN_GAP),
        Step::Busy => Round::Pause(BUSY_PAUSE),
        Step::Idle if closed => Round::Over,
        Step::Done | Step::Idle => Round::Again,
    }
}

/// The last round is over.
pub(crate) fn close(writer: Writer) {
    if let Err(error) = writer.close() {
        tracing::warn!(target: "everturn::providers::sqlite", %error, "the database was not closed cleanly");
    }
}

/// Letters that come while a batch is open.
struct Window<'a> {
    mailbox: &'a Mailbox,
    until: Instant,
}

impl Inlet for Window<'_> {
    fn open(&mut self, window: Duration) {
        self.until = Instant::now() + window;
    }

    fn next(&mut self) -> Option<Vec<Letter>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        let letters = self.mailbox.take(Some(left)).letters;
        (!letters.is_empty()).then_some(letters)
    }
}
