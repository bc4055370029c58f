//! Commands for people who work on Everturn. `cargo xtask --help` lists them.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "commands print their results")]

mod api;
mod catalogue;
mod command_line;
mod date;
mod mutants;
mod page;
mod progress;
mod proof;
mod record;
mod scratch;
mod table;
mod test_binary;
mod test_run;
mod type_names;
mod walk;

use std::process::ExitCode;

use command_line::{USAGE, XtaskCommand};

fn main() -> ExitCode {
    let done = match command_line::parse(std::env::args().skip(1)) {
        Ok(XtaskCommand::Help) => {
            println!("{USAGE}");
            Ok(true)
        }
        Ok(XtaskCommand::Proof(order)) => proof::run(&order),
        Ok(XtaskCommand::Mutants(order)) => mutants::run(&order),
        Ok(XtaskCommand::Api { is_update }) => proof::root().and_then(|root| api::run(&root, is_update)),
        Ok(XtaskCommand::TypeNames) => proof::root().and_then(|root| type_names::run(&root)),
        Ok(XtaskCommand::Walk(order)) => proof::root().and_then(|root| walk::run(&root, &order)),
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
