//! The thread that drives the writer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::command_queue::{Command, CommandQueue, CommandSource, ReceivedCommands};
use crate::writer::connection::BUSY_PAUSE;
use crate::writer::{Writer, WriterStep};

/// Pause between batches while another process works on the file.
const FOREIGN_GAP: Duration = Duration::from_millis(1);

/// Executes commands until the queue is closed and empty.
pub(crate) fn run(mut writer: Writer, commands: &Arc<CommandQueue>) {
    let mut window = Window { commands, until: Instant::now() };
    // Commands come in bursts. After a wake-up without one, none is expected.
    let mut expected = true;
    loop {
        let received = commands.take(writer.next_wake(), expected);
        expected = !received.commands.is_empty();
        match round(&mut writer, received, &mut window) {
            AfterRound::Again => {}
            AfterRound::Pause(pause) => std::thread::sleep(pause),
            AfterRound::Over => break,
        }
    }
    close(writer);
}

/// What follows a round.
pub(crate) enum AfterRound {
    /// The next one.
    Again,
    /// The next one, after a pause.
    Pause(Duration),
    /// Nothing: the queue is closed and empty.
    Over,
}

/// Takes what was received and executes one batch.
pub(crate) fn round(
    writer: &mut Writer,
    received: ReceivedCommands,
    source: &mut dyn CommandSource,
) -> AfterRound {
    let ReceivedCommands { commands, closed } = received;
    if commands.is_empty() && !closed && !writer.has_work() {
        writer.tick();
    }
    commands.into_iter().for_each(|command| writer.accept(command));
    if closed {
        writer.dismiss_fetches();
    }
    match writer.step(source) {
        WriterStep::Done if writer.leaves_gap() => AfterRound::Pause(FOREIGN_GAP),
        WriterStep::Busy => AfterRound::Pause(BUSY_PAUSE),
        WriterStep::Idle if closed => AfterRound::Over,
        WriterStep::Done | WriterStep::Idle => AfterRound::Again,
    }
}

/// Closes the database after the last round.
pub(crate) fn close(writer: Writer) {
    if let Err(error) = writer.close() {
        tracing::warn!(target: "everturn::providers::sqlite", %error,
            "the database was not closed cleanly; what was committed is safe, the next opening recovers the file");
    }
}

/// Commands that arrive while a batch is open.
struct Window<'a> {
    commands: &'a CommandQueue,
    until: Instant,
}

impl CommandSource for Window<'_> {
    fn open(&mut self, window: Duration) {
        self.until = Instant::now() + window;
    }

    fn next(&mut self) -> Option<Vec<Command>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        let commands = self.commands.take(Some(left), true).commands;
        (!commands.is_empty()).then_some(commands)
    }

    fn arrived_within(&mut self, wait: Duration) -> Vec<Command> {
        if wait.is_zero() && !self.commands.has_commands() {
            return Vec::new();
        }
        self.commands.take(Some(wait), true).commands
    }
}
