//! The progress line.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often the line is printed if it cannot be overwritten.
const LINE_EVERY: Duration = Duration::from_secs(60);
/// How much of a line is shown.
const WIDTH: usize = 110;

/// A line that is overwritten on a terminal, and printed every minute elsewhere.
pub(crate) struct Progress {
    out: Box<dyn Write>,
    began: Instant,
    is_terminal: bool,
    printed: Option<Instant>,
}

impl Progress {
    /// On the standard output.
    pub(crate) fn new() -> Self {
        let out = std::io::stdout();
        let is_terminal = out.is_terminal();
        Self::on(Box::new(out), is_terminal)
    }

    pub(crate) fn on(out: Box<dyn Write>, is_terminal: bool) -> Self {
        Self { out, began: Instant::now(), is_terminal, printed: None }
    }

    /// The time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Shows the progress.
    pub(crate) fn show(&mut self, text: &str) {
        let seconds = self.elapsed().as_secs();
        let line = format!("[{}:{:02}] {text}", seconds / 60, seconds % 60);
        let line: String = line.chars().take(WIDTH).collect();
        if self.is_terminal {
            self.write(&format!("\r\x1b[2K{line}"));
        } else if self.printed.is_none_or(|printed| printed.elapsed() >= LINE_EVERY) {
            self.printed = Some(Instant::now());
            self.write(&format!("{line}\n"));
        }
    }

    /// Prints a line that is not overwritten.
    pub(crate) fn print(&mut self, text: &str) {
        let clear = if self.is_terminal { "\r\x1b[2K" } else { "" };
        self.write(&format!("{clear}{text}\n"));
    }

    fn write(&mut self, text: &str) {
        // The proofs go on if the output is closed.
        drop(self.out.write_all(text.as_bytes()));
        drop(self.out.flush());
    }
}
