//! Victim processes: starting, stopping and killing them, and reading their output.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use everturn_crash_tests::observations::{Observation, ObservationLog};

/// How long a victim may take to print a line or to exit.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// The line that a worker prints when all its instances have ended.
pub(crate) const ALL_ENDED: &str = "all ended";

/// A victim process.
pub(crate) struct VictimProcess {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    reader: Option<JoinHandle<()>>,
    progress: Arc<ProgressSignal>,
}

/// What a process has printed about its work so far.
#[derive(Default)]
struct ProgressSignal {
    progress: Mutex<VictimProgress>,
    changed: Condvar,
}

#[derive(Default)]
struct VictimProgress {
    turns: u64,
    locks_ended: u64,
    all_ended: bool,
}

impl ProgressSignal {
    fn update(&self, update: impl FnOnce(&mut VictimProgress)) {
        update(&mut self.progress.lock().unwrap());
        self.changed.notify_all();
    }
}

impl VictimProcess {
    /// Starts a victim; its observations go into the log.
    pub(crate) fn start(arguments: &[&str], log: &Arc<ObservationLog>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_everturn-crash-victim"));
        command.args(arguments);
        Self::spawn(command, log)
    }

    pub(crate) fn spawn(mut command: Command, log: &Arc<ObservationLog>) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let log = Arc::clone(log);
        let (sender, lines) = channel();
        let progress = Arc::<ProgressSignal>::default();
        let updated = Arc::clone(&progress);
        let reader = std::thread::spawn(move || {
            let mut line = String::new();
            // A line without an end was cut off by the kill; it does not count.
            while output.read_line(&mut line).is_ok() && line.ends_with('\n') {
                match serde_json::from_str::<Observation>(line.trim_end()) {
                    Ok(observation) => {
                        match observation {
                            Observation::Turn => updated.update(|progress| progress.turns += 1),
                            Observation::LockEnded => updated.update(|progress| progress.locks_ended += 1),
                            _ => {}
                        }
                        log.record(observation);
                    }
                    Err(_) => {
                        if line.trim_end() == ALL_ENDED {
                            updated.update(|progress| progress.all_ended = true);
                        }
                        // Fails when the test has dropped the process.
                        drop(sender.send(line.trim_end().to_owned()));
                    }
                }
                line.clear();
            }
        });
        Self { child, input, lines, reader: Some(reader), progress }
    }

    /// Waits for the next line that is not an observation.
    pub(crate) fn next_line(&self) -> Result<String, String> {
        self.lines.recv_timeout(ANSWER_MAX).map_err(|error| format!("a victim prints nothing: {error}"))
    }

    /// Waits for this line.
    pub(crate) fn wait_for(&self, expected: &str) -> Result<(), String> {
        match self.next_line()? {
            line if line == expected => Ok(()),
            other => Err(format!("{other:?} instead of {expected:?}")),
        }
    }

    /// Waits until it has committed this many turns; false if all its instances have ended.
    pub(crate) fn wait_for_turns(&self, turns: u64) -> Result<bool, String> {
        let is_early = |progress: &mut VictimProgress| progress.turns < turns && !progress.all_ended;
        let progress = self.progress.progress.lock().unwrap();
        let (progress, waited) =
            self.progress.changed.wait_timeout_while(progress, ANSWER_MAX, is_early).unwrap();
        if waited.timed_out() {
            return Err(format!("a victim committed {} turns, and then no more", progress.turns));
        }
        Ok(!progress.all_ended)
    }

    /// How many locks have expired while it held them.
    pub(crate) fn locks_ended(&self) -> u64 {
        self.progress.progress.lock().unwrap().locks_ended
    }

    /// Sends it a line: go on.
    pub(crate) fn send_go(&mut self) {
        // Fails when it has exited already.
        drop(self.input.write_all(b"go\n"));
    }

    /// kill -9. Returns when it has exited and all its observations are in the log.
    pub(crate) fn kill(mut self) -> Result<(), String> {
        self.child.kill().unwrap();
        self.wait_for_exit()
    }

    /// Waits until it has finished.
    pub(crate) fn end(mut self) -> Result<(), String> {
        self.wait_for("done")?;
        self.wait_for_exit()
    }

    /// Waits until it has exited and all its output is read.
    fn wait_for_exit(&mut self) -> Result<(), String> {
        let began = Instant::now();
        loop {
            match self.lines.recv_timeout(ANSWER_MAX.saturating_sub(began.elapsed())) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => return Err("a victim does not close its output".to_owned()),
            }
        }
        if let Some(reader) = self.reader.take() {
            // It has dropped its end of the channel, which is the last thing it does.
            reader.join().unwrap();
        }
        while self.child.try_wait().unwrap().is_none() {
            if began.elapsed() > ANSWER_MAX {
                return Err("a victim does not exit".to_owned());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Sends it SIGSTOP.
    pub(crate) fn stop(&self) {
        self.signal("-STOP");
    }

    /// Sends it SIGCONT.
    pub(crate) fn go_on(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success(), "kill {signal}");
    }
}

impl Drop for VictimProcess {
    fn drop(&mut self) {
        // No process is left behind when a test fails. Both calls fail if it has exited already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Writes the observations of all instances, for the next victims.
pub(crate) fn write_observations(path: &Path, log: &ObservationLog) {
    std::fs::write(path, serde_json::to_vec(&log.snapshot().instances).unwrap()).unwrap();
}
