//! Somebody who notices that a case hangs: in simulated time nothing takes long, so that no timeout of the case's own
//! would ever end it.

use std::io::Write as _;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a part of a case may take, in real time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Watches as long as it lives.
pub(crate) struct Watchdog {
    leash: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Calls `bite` if it lives longer than `patience`.
    fn new(patience: Duration, bite: impl FnOnce() + Send + 'static) -> Self {
        let (leash, end) = channel();
        let thread = std::thread::spawn(move || {
            if end.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                bite();
            }
        });
        Self { leash: Some(leash), thread: Some(thread) }
    }

    /// Ends the whole process after so long, and says why.
    pub(crate) fn of(what: String, patience: Duration) -> Self {
        Self::new(patience, move || {
            let line = format!("{what}: it hangs, after {patience:?} of real time\n");
            // Past the test runner, which would keep it to itself for ever.
            drop(std::io::stderr().write_all(line.as_bytes()));
            std::process::abort();
        })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.leash.take());
        if let Some(thread) = self.thread.take() {
            // Whatever it did is done.
            drop(thread.join());
        }
    }
}

/// Runs a part of a case; ends the whole process if it hangs for a minute, and says which it was.
pub fn watched<T>(what: String, part: impl FnOnce() -> T) -> T {
    let _watchdog = Watchdog::of(what, PATIENCE);
    part()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::Watchdog;

    #[test]
    fn who_hangs_is_bitten() {
        let (bitten, bite) = channel();
        let watchdog = Watchdog::new(Duration::from_millis(1), move || {
            let _ = bitten.send("bitten");
        });
        // This is the case that hangs.
        assert_eq!(bite.recv(), Ok("bitten"));
        drop(watchdog);
    }

    #[test]
    fn who_ends_in_time_is_not_bitten() {
        let (bitten, bite) = channel();
        drop(Watchdog::new(Duration::from_secs(3_600), move || {
            let _ = bitten.send("bitten");
        }));
        assert!(bite.recv().is_err(), "nobody can bite any more");
    }
}
