//! One run of a proof, with a bug or without.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use everturn_built::BuiltBinary;

use crate::trials::ProofRun;

/// A proof that takes longer counts as one that caught nothing.
const TIME_MAX: Duration = Duration::from_secs(240);
/// A proof prints this when a case has failed. What it prints after that is why.
const BROKEN: &str = ": broken by seed ";

/// How a run of a proof ended.
#[derive(Debug, Clone)]
pub struct ProofResult {
    /// Whether the proof held.
    pub held: bool,
    /// Whether it failed, and printed one of the expected texts.
    pub caught: bool,
    /// Everything it printed.
    pub output: String,
    /// How long it took.
    pub took: Duration,
}

/// Runs a proof with this bug or without any. `prints` tells whether it failed for the right reason. A proof that has printed
/// one of these texts is ended at once: it would go on and look for the smallest case that fails the same way.
///
/// # Errors
/// If it cannot be run.
pub fn run(
    binary: &BuiltBinary,
    proof: &ProofRun,
    bug: Option<&str>,
    prints: &[&str],
) -> Result<ProofResult, String> {
    let began = Instant::now();
    let scratch = tempfile::tempdir().map_err(|error| format!("no scratch folder: {error}"))?;
    let mut command = Command::new(&binary.executable);
    command.arg(proof.tests).current_dir(&binary.folder);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("EVERTURN_")) {
        command.env_remove(name);
    }
    command.env("EVERTURN_PROOF_CASES", proof.cases.to_string()).env("EVERTURN_PROOF_SEED", "1");
    command.envs(bug.map(|bug| ("EVERTURN_PLANTED_BUG", bug)));
    command.env("RUST_BACKTRACE", "0").env("TMPDIR", scratch.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn().map_err(|error| format!("{}: {error}", binary.executable.display()))?;
    let mut running = ProofProcess(child);
    let mut result = ProofResult { held: false, caught: false, output: String::new(), took: Duration::ZERO };
    let (sender, lines) = channel();
    if let (Some(stdout), Some(stderr)) = (running.0.stdout.take(), running.0.stderr.take()) {
        forward_lines(stdout, sender.clone());
        forward_lines(stderr, sender);
    }
    let mut is_broken = false;
    loop {
        match lines.recv_timeout(TIME_MAX.saturating_sub(began.elapsed())) {
            Ok(line) => {
                is_broken |= line.contains(BROKEN);
                result.caught = is_broken && prints.iter().any(|word| line.contains(word));
                result.output.push_str(&line);
            }
            Err(RecvTimeoutError::Timeout) => {
                result.output.push_str("it took too long and was ended\n");
                break;
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = running.0.wait().map_err(|error| format!("waiting for a proof: {error}"))?;
                result.held = status.success();
                result.caught = !result.held && prints.iter().any(|word| result.output.contains(word));
                break;
            }
        }
        if result.caught {
            break;
        }
    }
    drop(running);
    result.took = began.elapsed();
    Ok(result)
}

/// A proof and the processes that it has started. Dropping it ends all of them.
struct ProofProcess(Child);

impl Drop for ProofProcess {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        // They may have ended by themselves.
        drop(Command::new("kill").args(["-9", "--", &group]).stderr(Stdio::null()).status());
        drop(self.0.wait());
    }
}

fn forward_lines(output: impl Read + Send + 'static, lines: Sender<String>) {
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
