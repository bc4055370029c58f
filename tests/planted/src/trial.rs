//! One run of a proof, with a bug or without.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use everturn_core::Bug;

use crate::binaries::Binary;
use crate::catalogue::Proof;

/// No proof takes longer; one that does has not caught anything.
const PATIENCE: Duration = Duration::from_secs(90);
/// How a proof begins to say that a case failed. What it says after that is why.
const BROKEN: &str = ": broken by seed ";

/// What a run of a proof came to.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Whether the proof held.
    pub held: bool,
    /// Whether it failed, and said one of the words it was to say.
    pub caught: bool,
    /// Everything it said.
    pub output: String,
    /// How long it took.
    pub took: Duration,
}

/// Runs a proof with this bug in it, or without any. `says` is what tells that it failed for the right reason; a proof
/// that has said so is not waited for: it would look for the smallest case that fails the same way.
///
/// # Errors
/// If it cannot be run.
pub fn try_out(binary: &Binary, proof: &Proof, bug: Option<Bug>, says: &[&str]) -> Result<Trial, String> {
    let began = Instant::now();
    let scratch = tempfile::tempdir().map_err(|error| format!("no scratch folder: {error}"))?;
    let mut command = Command::new(&binary.executable);
    command.arg(proof.tests).current_dir(&binary.folder);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("EVERTURN_")) {
        command.env_remove(name);
    }
    command.env("EVERTURN_PROOF_CASES", proof.cases.to_string()).env("EVERTURN_PROOF_SEED", "1");
    command.envs(bug.map(|bug| ("EVERTURN_PLANTED_BUG", bug.name())));
    command.env("RUST_BACKTRACE", "0").env("TMPDIR", scratch.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn().map_err(|error| format!("{}: {error}", binary.executable.display()))?;
    let mut running = Running(child);
    let mut trial = Trial { held: false, caught: false, output: String::new(), took: Duration::ZERO };
    let (sender, lines) = channel();
    if let (Some(stdout), Some(stderr)) = (running.0.stdout.take(), running.0.stderr.take()) {
        pass_on(stdout, sender.clone());
        pass_on(stderr, sender);
    }
    let mut is_broken = false;
    loop {
        match lines.recv_timeout(PATIENCE.saturating_sub(began.elapsed())) {
            Ok(line) => {
                is_broken |= line.contains(BROKEN);
                trial.caught = is_broken && says.iter().any(|word| line.contains(word));
                trial.output.push_str(&line);
            }
            Err(RecvTimeoutError::Timeout) => {
                trial.output.push_str("it took too long and was ended\n");
                break;
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = running.0.wait().map_err(|error| format!("waiting for a proof: {error}"))?;
                trial.held = status.success();
                trial.caught = !trial.held && says.iter().any(|word| trial.output.contains(word));
                break;
            }
        }
        if trial.caught {
            break;
        }
    }
    drop(running);
    trial.took = began.elapsed();
    Ok(trial)
}

/// A proof and the processes it started; none of them is left behind.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        // They may have ended by themselves.
        drop(Command::new("kill").args(["-9", "--", &group]).stderr(Stdio::null()).status());
        drop(self.0.wait());
    }
}

fn pass_on(output: impl Read + Send + 'static, lines: Sender<String>) {
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            if lines.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
            line.clear();
        }
    });
}
