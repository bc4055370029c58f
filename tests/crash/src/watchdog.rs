//! Somebody who notices that a case hangs: in simulated time nothing takes long, so that no timeout of the machine's own
//! would ever end it.

use std::io::Write as _;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a case may take, in real time.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Watches as long as it lives.
pub struct Watchdog {
    leash: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Calls `bite` with what is watched if it takes longer than `patience`.
    pub fn new(what: String, patience: Duration, bite: impl FnOnce(&str) + Send + 'static) -> Self {
        let (leash, end) = channel();
        let thread = std::thread::spawn(move || {
            if end.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                bite(&what);
            }
        });
        Self { leash: Some(leash), thread: Some(thread) }
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

/// Runs a case; ends the whole process if it hangs, and says which it was.
pub fn watched<T>(what: String, case: impl FnOnce() -> T) -> T {
    let _watchdog = Watchdog::new(what, PATIENCE, |what| {
        let line = format!("{what}: it hangs, after {PATIENCE:?} of real time\n");
        // Past the test runner, which would keep it to itself for ever.
        drop(std::io::stderr().write_all(line.as_bytes()));
        std::process::abort();
    });
    case()
}
