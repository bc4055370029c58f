//! A throw-away PostgreSQL server at its defaults, on the measured disk, reachable from this machine only.

use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use everturn_bench_protocol::BenchResult;
use tempfile::TempDir;

const USER: &str = "bench";
const START_MAX: Duration = Duration::from_secs(60);
/// Enough for the pools of every peer; the default is 100.
const CONNECTIONS_MAX: u32 = 300;

/// A running server. It is stopped, and its folder removed, when it is dropped.
pub(crate) struct PostgresCluster {
    server: Child,
    port: u16,
    databases: AtomicU64,
    empty_bytes: f64,
    _folder: TempDir,
}

/// A database of the cluster. It is removed when it is dropped.
pub(crate) struct Database<'a> {
    cluster: &'a PostgresCluster,
    name: String,
}

impl PostgresCluster {
    /// Starts a server with its data below this folder.
    pub(crate) fn start(folder: &Path) -> BenchResult<Self> {
        // PostgreSQL refuses to run as root, and its user may not be able to enter the target folder.
        let account = unprivileged_account()?;
        match Self::start_in(folder, account) {
            Ok(cluster) => Ok(cluster),
            Err(_) if account.is_some() => Self::start_in(&std::env::temp_dir(), account),
            Err(error) => Err(error),
        }
    }

    fn start_in(folder: &Path, account: Option<(u32, u32)>) -> BenchResult<Self> {
        let folder = tempfile::Builder::new().prefix("postgres-").tempdir_in(folder)?;
        if let Some((user, group)) = account {
            std::os::unix::fs::chown(folder.path(), Some(user), Some(group))?;
        }
        let data = folder.path().join("data");
        let made = as_account(&program("initdb"), account)
            .current_dir(folder.path())
            .args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--username", USER, "--pgdata"])
            .arg(&data)
            .output()
            .map_err(|error| format!("initdb cannot be started: {error}"))?;
        if !made.status.success() {
            let errors = String::from_utf8_lossy(&made.stderr);
            return Err(format!("initdb: {}", errors.lines().next().unwrap_or("it failed")).into());
        }
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let server = as_account(&program("postgres"), account)
            .current_dir(folder.path())
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(folder.path())
            .args(["-c", "listen_addresses=127.0.0.1", "-c", &format!("max_connections={CONNECTIONS_MAX}")])
            .args(["-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.path().join("log"))?)
            .spawn()?;
        let databases = AtomicU64::new(0);
        let mut cluster = Self { server, port, databases, empty_bytes: 0.0, _folder: folder };
        cluster.wait_until_it_answers()?;
        let empty_bytes = cluster.new_database()?.all_bytes()?;
        cluster.empty_bytes = empty_bytes;
        Ok(cluster)
    }

    fn wait_until_it_answers(&self) -> BenchResult<()> {
        let deadline = Instant::now() + START_MAX;
        loop {
            match self.query("postgres", "SELECT 1") {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    pub(crate) fn new_database(&self) -> BenchResult<Database<'_>> {
        let name = format!("bench_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.query("postgres", &format!("CREATE DATABASE {name}"))?;
        Ok(Database { cluster: self, name })
    }

    fn query(&self, database: &str, sql: &str) -> BenchResult<String> {
        let answer = Command::new(program("psql"))
            .args(["--host=127.0.0.1", "--username", USER, "--no-psqlrc", "--tuples-only", "--no-align"])
            .args(["--port", &self.port.to_string(), "--dbname", database, "--command", sql])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("psql cannot be started: {error}"))?;
        if answer.status.success() {
            return Ok(String::from_utf8(answer.stdout)?.trim().to_owned());
        }
        Err(String::from_utf8_lossy(&answer.stderr).trim().to_owned().into())
    }
}

impl Drop for PostgresCluster {
    fn drop(&mut self) {
        // Nothing of it is kept. It may have ended already.
        drop(self.server.kill().and_then(|()| self.server.wait()));
    }
}

impl Database<'_> {
    pub(crate) fn url(&self) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{}", self.cluster.port, self.name)
    }

    /// Bytes of the database beyond those of an empty one.
    pub(crate) fn bytes(&self) -> BenchResult<f64> {
        Ok(self.all_bytes()? - self.cluster.empty_bytes)
    }

    /// Bytes that the server has written to its log so far.
    pub(crate) fn log_bytes(&self) -> BenchResult<f64> {
        Ok(self.cluster.query(&self.name, "SELECT pg_current_wal_lsn() - '0/0'")?.parse()?)
    }

    fn all_bytes(&self) -> BenchResult<f64> {
        Ok(self.cluster.query(&self.name, "SELECT pg_database_size(current_database())")?.parse()?)
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        // The whole cluster is removed at the end; this only frees the disk earlier.
        drop(self.cluster.query("postgres", &format!("DROP DATABASE {} WITH (FORCE)", self.name)));
    }
}

/// The newest program of this name where Linux distributions install PostgreSQL, or the one on the path.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        versions.map(|version| version.path().join("bin").join(name)).filter(|path| path.exists()).collect();
    found.sort();
    found.pop().unwrap_or_else(|| PathBuf::from(name))
}

fn as_account(program: &Path, account: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = account {
        command.uid(user).gid(group);
    }
    command
}

/// The user and group to run a server as, if this process is root's.
fn unprivileged_account() -> BenchResult<Option<(u32, u32)>> {
    use std::os::unix::fs::MetadataExt as _;
    if std::fs::metadata("/proc/self")?.uid() != 0 {
        return Ok(None);
    }
    let accounts = std::fs::read_to_string("/etc/passwd")?;
    let found = account_in(&accounts, "postgres").or_else(|| account_in(&accounts, "nobody"));
    found.map(Some).ok_or_else(|| "no user 'postgres' or 'nobody' to run it as".into())
}

fn account_in(accounts: &str, name: &str) -> Option<(u32, u32)> {
    let line = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_a_user_and_a_group() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\npostgres:x:101:104:a,b:/var/lib:/bin/sh\n";
        assert_eq!(account_in(accounts, "postgres"), Some((101, 104)));
        assert_eq!(account_in(accounts, "nobody"), None);
    }
}
