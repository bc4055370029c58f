//! Victims as processes, and what they say.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use everturn_crash_tests::ledger::{Fact, Ledger};

/// How long a victim may take for what takes moments.
const PATIENCE: Duration = Duration::from_secs(60);

/// One process.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    reader: Option<JoinHandle<()>>,
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
        let reader = std::thread::spawn(move || {
            let mut line = String::new();
            // A line that its author did not live to end is nothing that was said.
            while output.read_line(&mut line).is_ok() && line.ends_with('\n') {
                match serde_json::from_str::<Fact>(line.trim_end()) {
                    Ok(fact) => ledger.learn(fact),
                    // Nobody may be waiting for it.
                    Err(_) => drop(sender.send(line.trim_end().to_owned())),
                }
                line.clear();
            }
        });
        Self { child, input, lines, reader: Some(reader) }
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

    /// Says something to it.
    pub(crate) fn say_go(&mut self) {
        // It may be dead already.
        drop(self.input.write_all(b"go\n"));
    }

    /// kill -9. Returns when it is dead and all it said is in the ledger.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.bury();
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Result<(), String> {
        self.wait_for("done")?;
        self.bury();
        Ok(())
    }

    fn bury(&mut self) {
        self.child.wait().unwrap();
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
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
