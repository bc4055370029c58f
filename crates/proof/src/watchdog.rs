//! Ends a process in which a case hangs. A case in simulated time has no timeout of its own that could.

use std::io::Write as _;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a part of a case may take, in real time.
const PART_TIME_MAX: Duration = Duration::from_secs(60);

/// Calls a function unless it is dropped in time.
pub(crate) struct Watchdog {
    ended: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Calls `expire` unless it is dropped within `time_max`.
    fn new(time_max: Duration, expire: impl FnOnce() + Send + 'static) -> Self {
        let (ended, end) = channel();
        let thread = std::thread::spawn(move || {
            if end.recv_timeout(time_max) == Err(RecvTimeoutError::Timeout) {
                expire();
            }
        });
        Self { ended: Some(ended), thread: Some(thread) }
    }

    /// Aborts the process after this time, with a message.
    pub(crate) fn of(what: String, time_max: Duration) -> Self {
        Self::new(time_max, move || {
            let line = format!("{what}: it hangs, after {time_max:?} of real time\n");
            // Past the test runner, which would capture it and never print it.
            drop(std::io::stderr().write_all(line.as_bytes()));
            std::process::abort();
        })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.ended.take());
        if let Some(thread) = self.thread.take() {
            // A panic in it is of no interest any more.
            drop(thread.join());
        }
    }
}

/// Runs a part of a case. Aborts the process with a message that contains `what` if it takes longer than a minute.
pub fn watched<T>(what: String, part: impl FnOnce() -> T) -> T {
    let _watchdog = Watchdog::of(what, PART_TIME_MAX);
    part()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::Watchdog;

    #[test]
    fn a_part_that_hangs_is_ended() {
        let (expired, expiry) = channel();
        let watchdog = Watchdog::new(Duration::from_millis(1), move || {
            expired.send("expired").unwrap();
        });
        // The part that hangs.
        assert_eq!(expiry.recv(), Ok("expired"));
        drop(watchdog);
    }

    #[test]
    fn a_part_that_ends_in_time_is_left_alone() {
        let (expired, expiry) = channel();
        drop(Watchdog::new(Duration::from_secs(3_600), move || {
            expired.send("expired").unwrap();
        }));
        assert!(expiry.recv().is_err(), "the function was dropped without a call");
    }
}
