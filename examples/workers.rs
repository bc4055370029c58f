//! Several processes share the work of one database: a SQLite file, or PostgreSQL for several machines.
//!
//! `cargo run --example workers` uses a SQLite file in a temporary folder; `--url postgres://user@host/database` a server. On
//! other machines, `workers work URL NAME` starts one more process.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use everturn::providers::{Provider, open};
use everturn::runtime::Runtime;
use everturn::runtime::registry::ActivityRegistry;
use everturn::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};

const HELP: &str = "\
Several processes share the work of one database.

usage: workers [--url URL] [--processes N] [--films N]
       workers work URL NAME

  --url URL       sqlite:PATH or postgres://...   [a SQLite file in the folder for temporary files]
  --processes N   how many processes work         [3]
  --films N       how many films are encoded      [24]
  work URL NAME   be one of these processes, until the standard input ends
  --help          this text";

/// How many parts a film has.
const PARTS: u32 = 4;
const END_MAX: Duration = Duration::from_secs(60);

/// Encodes the parts of a film at the same time, in whatever processes have room. Returns who encoded them.
async fn encode_film(ctx: OrchestrationContext, film: String) -> Result<String, String> {
    let parts = (1..=PARTS).map(|part| ctx.schedule_activity("encode", format!("{film}, part {part}")));
    ctx.join(parts.collect()).await.into_iter().collect::<Result<Vec<_>, _>>().map(|by| by.join(" "))
}

/// A process that works: it has the code of the orchestration and of the activity.
async fn work(url: &str, name: &str) -> Result<(), Box<dyn Error>> {
    let store = open(url).await?;
    let name = name.to_owned();
    let activities = ActivityRegistry::builder()
        .register("encode", move |_: ActivityContext, _part: String| {
            let name = name.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                Ok(name)
            }
        })
        .build_result()?;
    let orchestrations =
        OrchestrationRegistry::builder().register("encode_film", encode_film).build_result()?;
    let runtime = Runtime::start_with_store(store, activities, orchestrations).await;
    println!("ready");
    // The standard input ends when the process that started this one wants it to stop, or has died.
    tokio::task::spawn_blocking(|| std::io::stdin().lines().for_each(drop)).await?;
    runtime.shutdown(None).await;
    Ok(())
}

/// The process that starts the others. It has no runtime: a client is enough to start instances and to wait for them.
async fn lead(store: Arc<dyn Provider>, url: &str, options: &Options) -> Result<(), Box<dyn Error>> {
    let mut workers = Vec::new();
    for number in 1..=options.processes {
        workers.push(started(url, &format!("process-{number}"))?);
    }
    println!("{} processes are at work", workers.len());
    let client = Client::new(store);
    // A second run on the same database encodes other films.
    let run = std::process::id();
    let films: Vec<String> = (1..=options.films).map(|film| format!("film-{run}-{film}")).collect();
    for film in &films {
        client.start_orchestration(film, "encode_film", film.as_str()).await?;
    }
    let mut parts_by_process = BTreeMap::<String, u32>::new();
    for film in &films {
        let by = client.wait_for_orchestration_typed::<String>(film, END_MAX).await??;
        by.split(' ').for_each(|process| *parts_by_process.entry(process.to_owned()).or_default() += 1);
    }
    for (process, parts) in &parts_by_process {
        println!("  {process} encoded {parts} parts");
    }
    println!("{} films, {} parts", films.len(), parts_by_process.values().sum::<u32>());
    for mut worker in workers {
        drop(worker.stdin.take());
        worker.wait()?;
    }
    Ok(())
}

/// Starts this program again as a worker; returns when it is ready.
fn started(url: &str, name: &str) -> Result<Child, Box<dyn Error>> {
    let mut worker = Command::new(std::env::current_exe()?)
        .args(["work", url, name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let said = worker.stdout.take().map(|output| BufReader::new(output).lines().next());
    match said {
        Some(Some(Ok(line))) if line == "ready" => Ok(worker),
        _ => Err(format!("{name} did not start").into()),
    }
}

struct Options {
    url: Option<String>,
    processes: u32,
    films: u32,
}

/// Returns `None` for `--help`.
fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options { url: None, processes: 3, films: 24 };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        let number = |text: String| match text.parse() {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(format!("{argument}: '{text}' is not a number above 0")),
        };
        match argument.as_str() {
            "--url" => options.url = Some(value()?),
            "--processes" => options.processes = number(value()?)?,
            "--films" => options.films = number(value()?)?,
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("unknown argument '{other}'")),
        }
    }
    Ok(Some(options))
}

async fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    if let Some(url) = &options.url {
        return lead(open(url).await?, url, options).await;
    }
    let folder = std::env::temp_dir().join(format!("everturn-workers-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let url = format!("sqlite:{}", folder.join("films.db").display());
    let led = lead(open(&url).await?, &url, options).await;
    std::fs::remove_dir_all(&folder)?;
    led
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = if let ["work", url, name] = arguments.as_slice() {
        work(url, name).await
    } else {
        match parse(arguments.iter().map(|&argument| argument.to_owned())) {
            Ok(Some(options)) => run(&options).await,
            Ok(None) => {
                println!("{HELP}");
                return ExitCode::SUCCESS;
            }
            Err(mistake) => {
                eprintln!("workers: {mistake}\n\n{HELP}");
                return ExitCode::from(2);
            }
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("workers: {error}");
            ExitCode::FAILURE
        }
    }
}
