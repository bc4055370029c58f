//! Builds the programs that measure the systems, and starts the servers that they need.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use everturn_bench_protocol::BenchResult;

use super::postgres_cluster::{Database, PostgresCluster};
use super::repository;
use super::systems::{PEERS, SYSTEMS, Storage, System};

/// The npm package with the server of Restate.
const RESTATE_SERVER: &str = "@restatedev/restate-server@1.7.12";

/// A system, and what measures it or why nothing can.
pub(crate) struct PreparedSystem {
    pub(crate) system: &'static System,
    pub(crate) program: PathBuf,
    pub(crate) server: Option<PathBuf>,
    pub(crate) absent: Option<String>,
}

/// All systems of a run.
pub(crate) struct PreparedPeers {
    pub(crate) systems: Vec<PreparedSystem>,
    postgres: Option<PostgresCluster>,
}

impl PreparedPeers {
    pub(crate) fn present(&self) -> impl Iterator<Item = &PreparedSystem> {
        self.systems.iter().filter(|system| system.absent.is_none())
    }

    /// A new database, if the system needs one.
    pub(crate) fn database_for(&self, system: &System) -> BenchResult<Option<Database<'_>>> {
        match &self.postgres {
            Some(cluster) if system.storage == Storage::Postgres => cluster.new_database().map(Some),
            _ => Ok(None),
        }
    }
}

/// Builds these peers. What cannot be built or installed is absent, with the reason.
pub(crate) fn prepare(chosen: &[String], target: &Path) -> PreparedPeers {
    let builds: Vec<(&str, BenchResult<PathBuf>)> = PEERS
        .iter()
        .filter(|peer| chosen.iter().any(|name| name == *peer))
        .map(|&peer| (peer, build(peer, target)))
        .collect();
    let built = |name: &str| builds.iter().find(|(peer, _)| *peer == name).map(|(_, build)| build);
    let needs_postgres = SYSTEMS.iter().any(|system| {
        let peer = system.peer.and_then(built);
        system.storage == Storage::Postgres && matches!(peer, Some(Ok(_)))
    });
    let (postgres, no_postgres) = match needs_postgres.then(|| PostgresCluster::start(target)) {
        Some(Ok(cluster)) => (Some(cluster), None),
        Some(Err(error)) => (None, Some(format!("no PostgreSQL: {error}"))),
        None => (None, None),
    };
    let systems = SYSTEMS
        .iter()
        .map(|system| {
            let (program, mut absent) = match system.peer.map(built) {
                None => (std::env::current_exe().unwrap_or_default(), None),
                Some(None) => (PathBuf::new(), Some("not chosen".to_owned())),
                Some(Some(Ok(program))) => (program.clone(), None),
                Some(Some(Err(error))) => (PathBuf::new(), Some(error.to_string())),
            };
            let mut server = None;
            match system.storage {
                Storage::Postgres => absent = absent.or_else(|| no_postgres.clone()),
                Storage::OwnServer if absent.is_none() => match install_restate_server(target) {
                    Ok(program) => server = Some(program),
                    Err(error) => absent = Some(error.to_string()),
                },
                _ => {}
            }
            PreparedSystem { system, program, server, absent }
        })
        .collect();
    PreparedPeers { systems, postgres }
}

/// Builds the package of a peer; returns its program.
fn build(peer: &str, target: &Path) -> BenchResult<PathBuf> {
    eprintln!("building bench/peers/{peer}");
    let target = target.join("bench-peers");
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--locked", "--quiet", "--manifest-path"])
        .arg(repository().join("bench/peers").join(peer).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .stdin(Stdio::null())
        .output()?;
    if built.status.success() {
        return Ok(target.join("release").join(format!("bench-{peer}")));
    }
    let errors = String::from_utf8_lossy(&built.stderr);
    let reason = errors.lines().find(|line| line.starts_with("error")).unwrap_or("cargo failed");
    Err(format!("bench/peers/{peer} does not build: {reason}").into())
}

/// The program for this kind of machine: it is in a package of its own.
fn restate_program(folder: &Path) -> Option<PathBuf> {
    let packages = std::fs::read_dir(folder.join("node_modules/@restatedev")).ok()?.flatten();
    packages.map(|package| package.path().join("bin/restate-server")).find(|program| program.exists())
}

fn install_restate_server(target: &Path) -> BenchResult<PathBuf> {
    let folder = target.join("bench-peers/restate-server");
    if let Some(program) = restate_program(&folder) {
        return Ok(program);
    }
    eprintln!("installing {RESTATE_SERVER}");
    std::fs::create_dir_all(&folder)?;
    let installed = Command::new("npm")
        .args(["install", "--no-save", "--no-package-lock", "--ignore-scripts", "--prefix"])
        .arg(&folder)
        .arg(RESTATE_SERVER)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("npm cannot be started: {error}"))?;
    if let Some(program) = restate_program(&folder) {
        return Ok(program);
    }
    let errors = String::from_utf8_lossy(&installed.stderr);
    let reason = errors.lines().find(|line| line.contains("error")).unwrap_or("npm failed");
    Err(format!("{RESTATE_SERVER} does not install: {reason}").into())
}
