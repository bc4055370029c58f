//! The thread around the writer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::mailbox::Mailbox;
use crate::writer::{BUSY_PAUSE, Inlet, Letter, Step, Writer};

/// Pause between batches while another process works on the file.
const FOREIGN_GAP: Duration = Duration::from_millis(1);

/// Works off the mailbox until it is closed and empty.
pub(crate) fn run(mut writer: Writer, mailbox: &Arc<Mailbox>) {
    let mut inlet = Window { mailbox, until: Instant::now() };
    loop {
        let arrivals = mailbox.take(writer.next_wake());
        let closed = arrivals.closed;
        if arrivals.letters.is_empty() && !closed && !writer.has_work() {
            writer.tick();
        }
        arrivals.letters.into_iter().for_each(|letter| writer.accept(letter));
        if closed {
            writer.dismiss_waiters();
        }
        match writer.step(&mut inlet) {
            Step::Done => {
                if writer.leaves_gap() {
                    std::thread::sleep(FOREIGN_GAP);
                }
            }
            Step::Busy => std::thread::sleep(BUSY_PAUSE),
            Step::Idle if closed => break,
            Step::Idle => {}
        }
    }
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
