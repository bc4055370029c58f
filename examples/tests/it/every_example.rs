//! Every example ends by itself within seconds and prints its key line.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::built;

/// A line that each example must print.
const KEY_LINES: &[(&str, &str)] = &[
    ("chain", "result:    published 26 bytes"),
    ("eternal_loop", " readings, then stop: "),
    ("fan_out", "4820 words on 40 pages"),
    ("human_approval", "expense-2: a yacht: no decision in time, passed to the next manager"),
    ("order", "order-1 ended: a good book shipped with the red bicycle, parcel 2, receipt 1"),
    ("saga", "Grace stays at home: no car: sold out"),
    ("sessions_and_tags", "split in the office, all chapters on one gpu node"),
    ("sub_orchestrations", "sent: invoice for 3 floors"),
    ("versioned_upgrade", "parcel-1 ended on version 1.0.0: send a book to Lisbon"),
    ("workers", "24 films, 96 parts"),
];

const SECONDS: Duration = Duration::from_secs(15);

#[test]
fn every_example_has_a_key_line() {
    let with_key_lines: Vec<&str> = KEY_LINES.iter().map(|(name, _)| *name).collect();
    assert_eq!(built::names(), with_key_lines);
}

#[test]
fn every_example_ends_by_itself_and_prints_its_key_line() {
    for (name, key_line) in KEY_LINES {
        // A folder of its own: `order` puts its database where it is run.
        let folder = tempfile::tempdir().unwrap();
        let mut program = Command::new(built::program(name));
        let began = Instant::now();
        let output = program.current_dir(folder.path()).output().unwrap();
        let took = began.elapsed();
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let all = format!("{name}:\n{stdout}\n{stderr}");
        assert!(output.status.success(), "{}\n{all}", output.status);
        assert!(
            stdout.lines().any(|line| line.contains(key_line)),
            "'{key_line}' is missing in the output of {all}"
        );
        assert!(took < SECONDS, "took {took:?}: {all}");
    }
}

#[test]
fn workers_share_a_postgresql_database() {
    let mut program = Command::new(built::program("workers"));
    let output = program.args(["--url", everturn_test_server::shared_url()]).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}", output.status);
    assert!(stdout.contains("24 films, 96 parts"), "all parts are encoded: {stdout}\n{stderr}");
}
