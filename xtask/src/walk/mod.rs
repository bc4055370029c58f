//! The walk of one chained step: which functions of this repository it enters.
//!
//! `tests/walk` is the program that is walked. It is built so that every function calls a recorder first, which costs next
//! to nothing: no timeout fires that would not fire otherwise. gdb reads from the debug information which functions have
//! their source below `crates/`; only these count. Closures and the state machines of async functions count as the function they are written in, all
//! instances of a generic function as one, and derived functions not at all.
//!
//! A *hop* is a call into a function that leads on, that is, calls another function of this repository. A function that
//! returns to its caller without such a call is no hop; it is listed, indented, and counted in the last line but one.

mod recording;
mod source;
mod trace;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use everturn_built as built;

use recording::Symbols;
use source::Sources;
use trace::{Trace, files};

/// What `--check` allows.
const HOPS_MAX: usize = 60;
const FILES_MAX: usize = 40;

/// The package whose program is walked.
const PACKAGE: &str = "everturn-walk";
/// The functions between whose calls the program is recorded.
const BEGIN: &str = "everturn_walk::recording_begins";
const END: &str = "everturn_walk::recording_ends";
/// What gdb runs.
const LISTER: &str = include_str!("functions.py");
/// What the program runs at the start of each function.
const RECORDER: &str = include_str!("recorder.c");

/// How to walk.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct WalkOrder {
    /// Whether the program is built as users build it: then functions that the compiler inlines are no calls.
    pub(crate) is_optimised: bool,
    /// Whether more hops or files than allowed are a failure.
    pub(crate) is_check: bool,
    /// Whether each call is listed, with its caller.
    pub(crate) shows_calls: bool,
}

/// Prints the walk. False if it is too long and was to be checked.
pub(crate) fn run(root: &Path, order: &WalkOrder) -> Result<bool, String> {
    require_tools()?;
    let program = build(root, if order.is_optimised { "walk-optimised" } else { "walk" })?;
    let scratch = tempfile::tempdir().map_err(|error| format!("no scratch folder: {error}"))?;
    let symbols = symbols(root, &program, scratch.path())?;
    let recording = record(&program, &symbols, scratch.path())?;
    let trace = Trace::of(&recording::entries(&recording, &symbols), &mut Sources::of(root))?;
    if trace.functions.is_empty() {
        return Err("no call was recorded".to_owned());
    }
    let path = trace.path();
    for function in &trace.functions {
        println!("{}{function}", if path.contains(&function.as_str()) { "" } else { "    " });
    }
    if order.shows_calls {
        println!();
        trace.calls.iter().for_each(|(caller, called)| println!("{caller} -> {called}"));
    }
    println!();
    for (name, functions) in trace.by_crate() {
        println!("{name}: {functions} functions");
    }
    let all_files = files(trace.functions.iter().map(String::as_str)).len();
    println!(
        "{} functions in {all_files} files, {} calls between them",
        trace.functions.len(),
        trace.calls.len()
    );
    let (hops, files) = (path.len(), files(path.iter().copied()).len());
    println!("{hops} hops in {files} files");
    let is_short = hops <= HOPS_MAX && files <= FILES_MAX;
    if order.is_check && !is_short {
        eprintln!("xtask: at most {HOPS_MAX} hops in {FILES_MAX} files are allowed");
    }
    Ok(is_short || !order.is_check)
}

/// The recording needs a C compiler, and reading the debug information needs gdb.
fn require_tools() -> Result<(), String> {
    for (tool, arguments, answer, package) in [
        ("gdb", &["-batch", "-nx", "-ex", "python print('has python')"][..], "has python", "gdb"),
        ("cc", &["--version"][..], "", "gcc"),
    ] {
        let needed = format!("`cargo xtask walk` needs {tool}, e.g. apt-get install {package}");
        let output = Command::new(tool).args(arguments).output();
        let output = output.map_err(|error| format!("{needed} (running it: {error})"))?;
        if !output.status.success() || !String::from_utf8_lossy(&output.stdout).contains(answer) {
            return Err(format!("{needed}; this one fails or was built without Python"));
        }
    }
    Ok(())
}

/// Builds the program with a call of `mcount` at the start of each function.
fn build(root: &Path, profile: &str) -> Result<PathBuf, String> {
    let mut build = built::cargo(root);
    build.args(["build", "--locked", "--package", PACKAGE, "--profile", profile]);
    build.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zinstrument-mcount -Cforce-frame-pointers=yes");
    let binaries = built::build(build)?;
    let program = binaries.into_iter().find(|binary| binary.target == PACKAGE);
    program.map(|binary| binary.executable).ok_or_else(|| "cargo built no program".to_owned())
}

/// The functions of the program, read from its debug information.
fn symbols(root: &Path, program: &Path, scratch: &Path) -> Result<Symbols, String> {
    let (script, list) = (scratch.join("functions.py"), scratch.join("functions"));
    std::fs::write(&script, LISTER)
        .map_err(|error| format!("{} cannot be written: {error}", script.display()))?;
    let mut gdb = Command::new("gdb");
    gdb.args(["-batch", "-nx", "-x"]).arg(&script).arg(program).current_dir(root).env("WALK_OUTPUT", &list);
    succeed(gdb)?;
    let list = std::fs::read_to_string(&list).map_err(|error| format!("gdb listed no functions: {error}"))?;
    Symbols::read(&list)
}

/// Runs the program with the recorder and returns what that wrote.
fn record(program: &Path, symbols: &Symbols, scratch: &Path) -> Result<Vec<u8>, String> {
    let (source, library, output) =
        (scratch.join("recorder.c"), scratch.join("recorder.so"), scratch.join("recording"));
    std::fs::write(&source, RECORDER)
        .map_err(|error| format!("{} cannot be written: {error}", source.display()))?;
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-fPIC", "-shared", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-o"]);
    succeed({
        cc.arg(&library).arg(&source);
        cc
    })?;
    let mark = |name: &str| {
        let (start, end) =
            symbols.range(name).ok_or_else(|| format!("the program has no function {name}"))?;
        Ok::<_, String>(format!("{start}-{end}"))
    };
    let mut walk = Command::new(program);
    walk.env("LD_PRELOAD", &library).env("WALK_OUTPUT", &output);
    walk.env("WALK_BEGIN", mark(BEGIN)?).env("WALK_END", mark(END)?);
    succeed(walk)?;
    std::fs::read(&output).map_err(|error| format!("nothing was recorded: {error}"))
}

fn succeed(mut command: Command) -> Result<(), String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{command:?} cannot be run: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr))),
    }
}
