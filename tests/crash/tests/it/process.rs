//! Victims as processes, and what they say.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use everturn_crash_tests::ledger::{Fact, Ledger};

/// How long a victim may take for what takes moments.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a worker says when all its instances have ended.
pub(crate) const SEEN_THROUGH: &str = "all seen through";

/// One process.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    reader: Option<JoinHandle<()>>,
    deeds: Arc<Deeds>,
}

/// What a process has done so far, as far as it has told.
#[derive(Default)]
struct Deeds {
    done: Mutex<Done>,
    more: Condvar,
}

#[derive(Default)]
struct Done {
    turns: u64,
    locks_ended: u64,
    all_seen_through: bool,
}

impl Deeds {
    fn add(&self, add: impl FnOnce(&mut Done)) {
        add(&mut self.done.lock().unwrap());
        self.more.notify_all();
    }
}

impl Process {
    /// Starts a victim; the facts it tells go into the ledger.
    pub(crate) fn start(arguments: &[&str], ledger: &Arc<Ledger>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_everturn-crash-victim"));
        command.args(arguments);
        Self::spawn(command, ledger)
    }

    pub(crate) fn spawn(mut command: Command, ledger: &Arc<Ledger>) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let ledger = Arc::clone(ledger);
        let (sender, lines) = channel();
        let deeds = Arc::<Deeds>::default();
        let noted = Arc::clone(&deeds);
        let reader = std::thread::spawn(move || {
            let mut line = String::new();
            // A line that its author did not live to end is nothing that was said.
            while output.read_line(&mut line).is_ok() && line.ends_with('\n') {
                match serde_json::from_str::<Fact>(line.trim_end()) {
                    Ok(fact) => {
                        match fact {
                            Fact::Turn => noted.add(|done| done.turns += 1),
                            Fact::LockEnded => noted.add(|done| done.locks_ended += 1),
                            _ => {}
                        }
                        ledger.learn(fact);
                    }
                    Err(_) => {
                        if line.trim_end() == SEEN_THROUGH {
                            noted.add(|done| done.all_seen_through = true);
                        }
                        // Nobody may be waiting for it.
                        drop(sender.send(line.trim_end().to_owned()));
                    }
                }
                line.clear();
            }
        });
        Self { child, input, lines, reader: Some(reader), deeds }
    }

    /// Waits for the next thing it says that is not a fact.
    pub(crate) fn heard(&self) -> Result<String, String> {
        self.lines.recv_timeout(PATIENCE).map_err(|error| format!("a victim says nothing: {error}"))
    }

    /// Waits until it says this.
    pub(crate) fn wait_for(&self, expected: &str) -> Result<(), String> {
        match self.heard()? {
            line if line == expected => Ok(()),
            other => Err(format!("{other:?} instead of {expected:?}")),
        }
    }

    /// Waits until it has committed so many turns; false if it has come to the end of its work.
    pub(crate) fn has_done(&self, turns: u64) -> Result<bool, String> {
        let is_early = |done: &mut Done| done.turns < turns && !done.all_seen_through;
        let done = self.deeds.done.lock().unwrap();
        let (done, waited) = self.deeds.more.wait_timeout_while(done, PATIENCE, is_early).unwrap();
        if waited.timed_out() {
            return Err(format!("{} turns of a victim, and no more", done.turns));
        }
        Ok(!done.all_seen_through)
    }

    /// How many locks have ended in its hands.
    pub(crate) fn locks_ended(&self) -> u64 {
        self.deeds.done.lock().unwrap().locks_ended
    }

    /// Says something to it.
    pub(crate) fn say_go(&mut self) {
        // It may be dead already.
        drop(self.input.write_all(b"go\n"));
    }

    /// kill -9. Returns when it is dead and all it said is in the ledger.
    pub(crate) fn kill(mut self) -> Result<(), String> {
        self.child.kill().unwrap();
        self.bury()
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Result<(), String> {
        self.wait_for("done")?;
        self.bury()
    }

    /// Waits until it is dead and all it said is heard.
    fn bury(&mut self) -> Result<(), String> {
        let began = Instant::now();
        loop {
            match self.lines.recv_timeout(PATIENCE.saturating_sub(began.elapsed())) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => return Err("a victim does not fall silent".to_owned()),
            }
        }
        if let Some(reader) = self.reader.take() {
            // It let go of its end of the lines, which is the last thing it does.
            reader.join().unwrap();
        }
        while self.child.try_wait().unwrap().is_none() {
            if began.elapsed() > PATIENCE {
                return Err("a victim does not end".to_owned());
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

impl Drop for Process {
    fn drop(&mut self) {
        // Whatever failed, nobody stays behind. It may be dead already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Writes down what the outside world knows, for the next victims.
pub(crate) fn write_told(path: &Path, ledger: &Ledger) {
    std::fs::write(path, serde_json::to_vec(&ledger.known().instances).unwrap()).unwrap();
}
