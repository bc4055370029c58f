//! Commands for people who work on Everturn. `cargo xtask --help` lists them.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "commands talk to people")]

mod catalogue;
mod command_line;
mod date;
mod page;
mod progress;
mod proof;
mod record;
mod table;
mod test_binary;
mod test_run;
mod walk;

use std::process::ExitCode;

use command_line::{Command, USAGE};

fn main() -> ExitCode {
    let done = match command_line::parse(std::env::args().skip(1)) {
        Ok(Command::Help) => {
            println!("{USAGE}");
            Ok(true)
        }
        Ok(Command::Proof(order)) => proof::run(&order),
        Ok(Command::Walk(order)) => proof::root().and_then(|root| walk::run(&root, &order)),
        Err(wrong) => Err(format!("{wrong}\n\n{USAGE}")),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(wrong) => {
            eprintln!("xtask: {wrong}");
            ExitCode::from(2)
        }
    }
}
