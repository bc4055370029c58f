//! R9: a disk that is full for a while.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use everturn_crash_tests::disk::Disk;
use everturn_crash_tests::inspector::Inspector;
use everturn_crash_tests::machine::{CrashMachine, RunEnd};
use everturn_crash_tests::observations::ObservationLog;
use everturn_crash_tests::random::seeded;
use everturn_proof::{Counts, proof, watched};

use crate::case::{inspect_end, machine, require_work};
use crate::victim_process::VictimProcess;

/// How many instances run on a disk with a byte budget.
const INSTANCES: usize = 6;
/// Much less than the log of all commits takes without a checkpoint.
const SMALL_ROOM: u64 = 640 * 1024;
/// What is freed then: more than the file must grow by, and less than the log would take.
const FREED: u64 = 512 * 1024;

/// A shell that mounts a small file system and runs a command on it.
fn on_a_small_disk(command: &str) -> Command {
    let mut shell = Command::new("unshare");
    shell.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
    shell.arg(format!("mount -t tmpfs -o size=8m none \"$0\" && {command}"));
    shell
}

fn can_mount() -> bool {
    let folder = tempfile::tempdir().unwrap();
    on_a_small_disk("true").arg(folder.path()).output().is_ok_and(|output| output.status.success())
}

/// A real file system: a process fills it under load, frees it, and goes on.
fn on_tmpfs(seed: u64) -> Result<Counts, String> {
    let folder = tempfile::tempdir().unwrap();
    let mut command = on_a_small_disk("exec \"$1\" fill \"$0\" \"$2\"");
    command.arg(folder.path()).arg(env!("CARGO_BIN_EXE_everturn-crash-victim")).arg(seed.to_string());
    let process = VictimProcess::spawn(command, &Arc::new(ObservationLog::default()));
    let mut counts = Counts::default();
    loop {
        let line = process.next_line()?;
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["counts", refused, instances, finished, turns] => {
                counts.add("calls refused", refused.parse().unwrap());
                counts.add("instances", instances.parse().unwrap());
                counts.add("finished", finished.parse().unwrap());
                counts.add("turns", turns.parse().unwrap());
                counts.add("nodes", 1);
            }
            ["done"] => break,
            _ => return Err(line),
        }
    }
    counts.add("full disks", 1);
    counts.add("on tmpfs", 1);
    Ok(counts)
}

/// Makes the disk full under load, and frees it later.
async fn fill_for_a_while(disk: Arc<Disk>, full_after: Duration) {
    tokio::time::sleep(full_after).await;
    disk.set_bytes_max(Some(disk.bytes_used()));
    tokio::time::sleep(Duration::from_secs(2)).await;
    disk.set_bytes_max(None);
}

/// A disk in memory with a byte budget.
fn on_a_budget(seed: u64) -> Result<Counts, String> {
    let mut machine = machine(seed, INSTANCES, |_| {});
    let full_after = Duration::from_millis(seeded(seed).branch(9).modulo(30));
    let run = || machine.run(|disk| fill_for_a_while(disk, full_after));
    let end = watched(format!("R9, seed {seed}"), run);
    check_end(&machine, end)
}

/// Makes the disk full before the log is long enough for a checkpoint, and frees only a little later.
async fn fill_and_free_a_little(disk: Arc<Disk>, bytes_max: u64) {
    disk.set_bytes_max(Some(bytes_max));
    tokio::time::sleep(Duration::from_secs(2)).await;
    disk.set_bytes_max(Some(bytes_max + FREED));
}

fn with_little_room(seed: u64) -> Result<Counts, String> {
    let mut machine = machine(seed, 2 * INSTANCES, |setup| setup.checkpoint_every_ms = 0);
    let room = SMALL_ROOM + seeded(seed).branch(9).modulo(SMALL_ROOM);
    let bytes_max = machine.disk.bytes_used() + room;
    let run = || machine.run(|disk| fill_and_free_a_little(disk, bytes_max));
    let end = watched(format!("R9 with little room, seed {seed}"), run);
    check_end(&machine, end)
}

fn check_end(machine: &CrashMachine, end: RunEnd) -> Result<Counts, String> {
    if end != RunEnd::Finished {
        return Err(format!("{end:?}\n  {}", machine.describe()));
    }
    let mut counts = Counts::default();
    inspect_end(machine, &mut Inspector::default(), &mut counts)?;
    let refused = machine.faults_at_work();
    counts.add("writes refused at work", refused);
    counts.add("full disks", u64::from(refused > 0));
    counts.add("on a byte budget", u64::from(refused > 0));
    Ok(counts)
}

#[test]
fn r9_a_full_disk_loses_nothing_and_work_goes_on_without_a_restart() {
    let proof = proof!("R9", "r9_a_full_disk_loses_nothing_and_work_goes_on_without_a_restart", 3);
    let real = can_mount();
    let counts = proof.run("full disks", if real { on_tmpfs } else { on_a_budget });
    proof.require(&counts, "turns", counts.get("full disks") * if real { 50 } else { 1 });
}

#[test]
fn r9_a_byte_budget_does_the_same() {
    let proof = proof!("R9", "r9_a_byte_budget_does_the_same", 100);
    let counts = proof.run("full disks", on_a_budget);
    require_work(&proof, &counts, "full disks", (18, 9));
}

#[test]
fn r9_a_little_room_is_enough_to_go_on() {
    let proof = proof!("R9", "r9_a_little_room_is_enough_to_go_on", 30);
    let counts = proof.run("full disks", with_little_room);
    require_work(&proof, &counts, "full disks", (28, 15));
}
