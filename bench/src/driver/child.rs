//! One measurement in a process of its own.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use everturn_bench_protocol::{BenchResult, MeasureReply, MeasureRequest};

/// What a process may take beyond its workload: opening a store, starting a server.
const OVERHEAD_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Runs the measuring program with this request.
///
/// Fails if the process fails, says nothing that is a reply, or does not end in time.
pub(crate) fn measure(program: &Path, request: &MeasureRequest) -> BenchResult<MeasureReply> {
    // A file takes any output; a pipe would have to be read meanwhile.
    let output = tempfile::NamedTempFile::new_in(&request.folder)?;
    let errors = tempfile::NamedTempFile::new_in(&request.folder)?;
    let request = MeasureRequest { began_s: everturn_bench_protocol::since_epoch_s(), ..request.clone() };
    let mut child = Command::new(program)
        .args(request.to_arguments())
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .stdout(output.reopen()?)
        .stderr(errors.reopen()?)
        .spawn()
        .map_err(|error| format!("starting {}: {error}", program.display()))?;
    let ended = wait(&mut child, request.stop_after + OVERHEAD_MAX);
    let errors = std::fs::read_to_string(errors.path()).unwrap_or_default();
    let last_line = errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
    let last_words = last_line.split_whitespace().collect::<Vec<_>>().join(" ");
    match ended? {
        None => Err(format!("it did not end in time: {last_words}").into()),
        Some(status) if !status.success() => Err(format!("{status}: {last_words}").into()),
        Some(_) => MeasureReply::parse(&std::fs::read_to_string(output.path())?),
    }
}

/// Waits for the process and kills it when the time is up; `None` in that case.
fn wait(child: &mut Child, at_most: Duration) -> BenchResult<Option<std::process::ExitStatus>> {
    let deadline = Instant::now() + at_most;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply_of_script(script: &str, stop_after: Duration) -> BenchResult<MeasureReply> {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut request = MeasureRequest::parse(std::iter::empty()).unwrap();
        request.folder = folder.path().to_path_buf();
        request.stop_after = stop_after;
        measure(&program, &request)
    }

    #[test]
    fn the_last_line_of_the_output_is_the_reply() {
        let script = r#"echo 'some log line'; echo '{"figures":{"step_s":1},"stopped":true}'"#;
        let reply = reply_of_script(script, Duration::from_secs(1)).unwrap();
        assert!(matches!(reply, MeasureReply::Measured { stopped: true, .. }));
    }

    #[test]
    fn a_failure_is_reported_with_the_last_words() {
        let error = reply_of_script("echo 'no such table' >&2; exit 3", Duration::from_secs(1)).unwrap_err();
        assert!(error.to_string().contains("no such table"), "{error}");
    }

    #[test]
    fn a_process_that_does_not_end_is_killed() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(wait(&mut child, Duration::ZERO).unwrap().is_none());
        assert!(child.try_wait().unwrap().is_some());
    }
}
