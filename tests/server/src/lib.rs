//! Throw-away PostgreSQL servers, reachable from this machine only, with the programs that are installed here.
//!
//! [`shared_url`] is for tests that need a database of some server; [`TestServer`] is for tests and benchmarks that need a
//! server of their own.
#![forbid(unsafe_code)]

mod account;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::account::Account;

/// The superuser of every server.
const USER: &str = "everturn";
const START_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Enough for tests that run at the same time, and for the pools of every peer of the benchmark; the default is 100.
const CONNECTIONS_MAX: u32 = 400;

/// Starts the server, and does with it what the lines of its standard input say. When that ends, which it does with the process
/// that started it, however that ends, it ends the server and removes the folder: a process that was killed leaves nothing
/// behind.
const KEEPER: &str = include_str!("keeper.sh");

/// How a server keeps its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// As installed: every commit is synced.
    Synced,
    /// Nothing is synced: nothing of it outlives the tests.
    None,
}

/// A running server. It is stopped, and its folder removed, when it is dropped or this process ends.
#[derive(Debug)]
pub struct TestServer {
    keeper: Mutex<Keeper>,
    port: u16,
    /// Removed by the keeper.
    _folder: PathBuf,
}

#[derive(Debug)]
struct Keeper {
    process: Child,
    answers: Option<BufReader<ChildStdout>>,
}

/// The URL of a database: the one that `EVERTURN_TEST_POSTGRES_URL` names, or the database of a server that this process starts
/// once.
///
/// # Panics
/// If no server can be started; the message says what to do.
pub fn shared_url() -> &'static str {
    static URL: OnceLock<(String, Option<TestServer>)> = OnceLock::new();
    let (url, _server) = URL.get_or_init(|| match std::env::var("EVERTURN_TEST_POSTGRES_URL") {
        Ok(url) => (url, None),
        Err(_) => match TestServer::start(&std::env::temp_dir(), Durability::None) {
            Ok(server) => (server.url("postgres"), Some(server)),
            Err(error) => panic!(
                "{error}: install PostgreSQL (apt-get install postgresql), or name a server with EVERTURN_TEST_POSTGRES_URL"
            ),
        },
    });
    url
}

impl TestServer {
    /// Starts a server with its data below this folder; returns when it answers.
    ///
    /// # Errors
    /// If the programs of PostgreSQL are not installed, or fail: PostgreSQL refuses to run as root, so root's servers run as
    /// `postgres` or `nobody`, who must be able to enter the folder.
    pub fn start(below: &Path, durability: Durability) -> Result<Self, String> {
        let account = Account::of_servers()?;
        let folder = made_folder(below, account)?;
        let data = folder.path().join("data");
        let mut initdb = Command::new(program("initdb"));
        initdb
            .args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--username", USER, "--pgdata"])
            .arg(&data)
            .current_dir(folder.path());
        if durability == Durability::None {
            initdb.arg("--no-sync");
        }
        account.applied_to(&mut initdb);
        let made = initdb.output().map_err(|error| format!("initdb cannot be started ({error})"))?;
        if !made.status.success() {
            let errors = String::from_utf8_lossy(&made.stderr);
            return Err(format!("initdb: {}", errors.lines().next().unwrap_or("it failed")));
        }
        Self::start_in(folder, account, durability)
    }

    fn start_in(folder: TempDir, account: Account, durability: Durability) -> Result<Self, String> {
        let io = |error: std::io::Error| format!("starting a PostgreSQL server: {error}");
        let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|free| free.local_addr()).map_err(io)?.port();
        let log = std::fs::File::create(folder.path().join("log")).map_err(io)?;
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER]).arg(program("postgres")).arg("-D").arg(folder.path().join("data"));
        keeper.arg("-k").arg(folder.path()).args([
            "-p",
            &port.to_string(),
            "-c",
            "listen_addresses=127.0.0.1",
        ]);
        keeper.args(["-c", &format!("max_connections={CONNECTIONS_MAX}")]);
        if durability == Durability::None {
            keeper.args(["-c", "fsync=off", "-c", "full_page_writes=off"]);
        }
        keeper.current_dir(folder.path()).env("EVERTURN_FOLDER", folder.path());
        keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        account.applied_to(&mut keeper);
        let mut keeper = keeper.spawn().map_err(io)?;
        let answers = keeper.stdout.take().map(BufReader::new);
        let keeper = Mutex::new(Keeper { process: keeper, answers });
        let server = Self { keeper, port, _folder: folder.keep() };
        server.wait_until_it_answers()?;
        Ok(server)
    }

    fn wait_until_it_answers(&self) -> Result<(), String> {
        let began = Instant::now();
        loop {
            let answer = match TcpStream::connect(("127.0.0.1", self.port)) {
                Ok(_) => self.query("postgres", "SELECT 1").map(drop),
                Err(error) => Err(error.to_string()),
            };
            match answer {
                Ok(()) => return Ok(()),
                Err(error) if began.elapsed() > START_MAX => {
                    return Err(format!("the PostgreSQL server does not answer ({error})"));
                }
                Err(_) => std::thread::sleep(LOOK_EVERY),
            }
        }
    }

    /// The URL of a database of this server. There is always one named `postgres`.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port)
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Ends the server as a crash would: its connections are lost, and the next start recovers.
    ///
    /// # Errors
    /// If its keeper is gone.
    pub fn crash(&self) -> Result<(), String> {
        self.ask("crash")
    }

    /// Starts the server again after a crash, with the same data on the same port; returns when it answers.
    ///
    /// # Errors
    /// If it does not answer in time.
    pub fn start_again(&self) -> Result<(), String> {
        self.ask("start")?;
        self.wait_until_it_answers()
    }

    /// Stops all processes of the server: its connections stay open, but nothing answers.
    ///
    /// # Errors
    /// If its keeper is gone.
    pub fn pause(&self) -> Result<(), String> {
        self.ask("pause")
    }

    /// Continues all processes of the server.
    ///
    /// # Errors
    /// If its keeper is gone.
    pub fn resume(&self) -> Result<(), String> {
        self.ask("resume")
    }

    /// Has the keeper do something, and waits until it is done.
    fn ask(&self, what: &str) -> Result<(), String> {
        let io = |error: std::io::Error| format!("asking the keeper of the server to {what}: {error}");
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        let Keeper { process, answers } = &mut *keeper;
        let (Some(input), Some(answers)) = (&mut process.stdin, answers) else {
            return Err("the server has no keeper".to_owned());
        };
        writeln!(input, "{what}").map_err(io)?;
        let mut answer = String::new();
        answers.read_line(&mut answer).map_err(io)?;
        if answer.trim() == what { Ok(()) } else { Err(format!("the keeper did not {what} the server")) }
    }

    /// What `psql` prints when it runs a statement.
    ///
    /// # Errors
    /// What `psql` says of its failure.
    pub fn query(&self, database: &str, sql: &str) -> Result<String, String> {
        let answer = Command::new(program("psql"))
            .args(["--no-psqlrc", "--tuples-only", "--no-align", "--command", sql, "--dbname"])
            .arg(self.url(database))
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("psql cannot be started: {error}"))?;
        let said = if answer.status.success() { &answer.stdout } else { &answer.stderr };
        let said = String::from_utf8_lossy(said).trim().to_owned();
        if answer.status.success() { Ok(said) } else { Err(said) }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // The keeper ends the server when its input ends. It may have ended already.
        let keeper = self.keeper.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(keeper.process.stdin.take());
        drop(keeper.process.wait());
    }
}

/// A folder that the account can use: below `wanted`, or, where the account cannot enter that, below the folder for temporary
/// files.
fn made_folder(wanted: &Path, account: Account) -> Result<TempDir, String> {
    let mut failure = String::new();
    for below in [wanted, &std::env::temp_dir()] {
        let made = tempfile::Builder::new().prefix("everturn-postgres-").tempdir_in(below);
        match made.map_err(|error| error.to_string()).and_then(|folder| {
            account.owns(folder.path())?;
            Ok(folder)
        }) {
            Ok(folder) => return Ok(folder),
            Err(error) => {
                failure = format!("no folder for a PostgreSQL server in {}: {error}", below.display())
            }
        }
    }
    Err(failure)
}

/// The newest program of this name where Linux distributions install PostgreSQL, or the one on the path.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|version| {
            Some((version.file_name().to_str()?.parse().ok()?, version.path().join("bin").join(name)))
        })
        .filter(|(_, path): &(u32, PathBuf)| path.exists())
        .collect();
    found.sort();
    found.pop().map_or_else(|| PathBuf::from(name), |(_, path)| path)
}
