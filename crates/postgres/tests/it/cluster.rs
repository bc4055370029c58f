//! A PostgreSQL server for the tests: the one that `EVERTURN_TEST_POSTGRES_URL` names, or a throw-away one of this process on a
//! free port of the loopback interface.

use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const USER: &str = "everturn";
const START_MAX: Duration = Duration::from_secs(60);

/// Ends the server and removes its folder when its standard input ends, which it does with the test process.
const KEEPER: &str =
    r#""$0" "$@" & server=$!; cat > /dev/null; kill -QUIT $server; wait $server; rm -rf "$EVERTURN_FOLDER""#;

struct Cluster {
    url: String,
    /// Its standard input is open as long as this process lives.
    _keeper: Option<Child>,
}

/// The url of the server's database.
pub(crate) fn url() -> &'static str {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    &CLUSTER
        .get_or_init(|| match std::env::var("EVERTURN_TEST_POSTGRES_URL") {
            Ok(url) => Cluster { url, _keeper: None },
            Err(_) => start(),
        })
        .url
}

/// A schema that no other test uses.
pub(crate) fn new_schema() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn start() -> Cluster {
    let folder = tempfile::Builder::new().prefix("everturn-postgres-").tempdir().unwrap().keep();
    let account = unprivileged_account();
    if let Some((user, group)) = account {
        chown(&folder, Some(user), Some(group)).unwrap();
    }
    let data = folder.join("data");
    let mut initdb = Command::new(program("initdb"));
    initdb
        .args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--username", USER, "--pgdata"])
        .arg(&data);
    let made = as_account(&mut initdb, account).current_dir(&folder).output().unwrap_or_else(|error| {
        panic!("initdb cannot be started ({error}): install PostgreSQL (apt-get install postgresql), or name a server with EVERTURN_TEST_POSTGRES_URL")
    });
    assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let mut keeper = Command::new("sh");
    keeper.args(["-c", KEEPER]).arg(program("postgres")).arg("-D").arg(&data).arg("-k").arg(&folder);
    keeper.args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=400"]);
    // Nothing of it outlives the tests.
    keeper.args(["-c", "fsync=off", "-c", "full_page_writes=off"]);
    keeper.env("EVERTURN_FOLDER", &folder).stdin(Stdio::piped()).stdout(Stdio::null());
    let log = std::fs::File::create(folder.join("log")).unwrap();
    let keeper = as_account(&mut keeper, account).current_dir(&folder).stderr(log).spawn().unwrap();
    let deadline = Instant::now() + START_MAX;
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < deadline, "the server does not start: {}", shown_log(&folder));
        std::thread::sleep(Duration::from_millis(20));
    }
    Cluster { url: format!("postgres://{USER}@127.0.0.1:{port}/postgres"), _keeper: Some(keeper) }
}

fn shown_log(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("log")).unwrap_or_default()
}

/// The newest program of this name where Linux distributions install PostgreSQL, or the one on the path.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        versions.map(|version| version.path().join("bin").join(name)).filter(|path| path.exists()).collect();
    found.sort();
    found.pop().unwrap_or_else(|| PathBuf::from(name))
}

fn as_account(command: &mut Command, account: Option<(u32, u32)>) -> &mut Command {
    match account {
        Some((user, group)) => command.uid(user).gid(group),
        None => command,
    }
}

/// The user and group to run a server as, if this process is root's: the server refuses to run as root.
fn unprivileged_account() -> Option<(u32, u32)> {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return None;
    }
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap();
    let of = |name: &str| {
        let line = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    Some(of("postgres").or_else(|| of("nobody")).expect("an account to run the server as"))
}
