//! The systems that are compared.

/// Where a system keeps its data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    Sqlite,
    Postgres,
    /// A server of its own.
    OwnServer,
}

/// One column of the comparison.
pub(crate) struct System {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) about: &'static str,
    /// The package in `bench/peers` that measures it; `None` for Everturn.
    pub(crate) peer: Option<&'static str>,
    /// What the measuring process is told.
    pub(crate) variant: &'static str,
    pub(crate) storage: Storage,
}

/// Everturn at its defaults.
pub(crate) const REFERENCE: &str = "everturn-full";

/// The packages in `bench/peers`.
pub(crate) const PEERS: &[&str] = &["duroxide", "durare", "dbos", "restate"];

pub(crate) const SYSTEMS: &[System] = &[
    System {
        name: REFERENCE,
        title: "Everturn",
        about: "SQLite, synchronous=FULL (its default): an acknowledged commit survives a power failure",
        peer: None,
        variant: "full",
        storage: Storage::Sqlite,
    },
    System {
        name: "everturn-normal",
        title: "Everturn NORMAL",
        about: "SQLite, synchronous=NORMAL: the last commits can be lost in a power failure",
        peer: None,
        variant: "normal",
        storage: Storage::Sqlite,
    },
    System {
        name: "duroxide",
        title: "duroxide",
        about: "duroxide 0.1.32 on SQLite, its defaults",
        peer: Some("duroxide"),
        variant: "default",
        storage: Storage::Sqlite,
    },
    System {
        name: "duroxide-tuned",
        title: "duroxide tuned",
        about: "duroxide 0.1.32 on SQLite: 2 orchestration slots, 4 workers, 2 ms poll",
        peer: Some("duroxide"),
        variant: "tuned",
        storage: Storage::Sqlite,
    },
    System {
        name: "durare-sqlite",
        title: "durare SQLite",
        about: "durare 0.5 on SQLite, which it runs at synchronous=NORMAL",
        peer: Some("durare"),
        variant: "sqlite",
        storage: Storage::Sqlite,
    },
    System {
        name: "durare-postgres",
        title: "durare PostgreSQL",
        about: "durare 0.5 on a local PostgreSQL at its defaults",
        peer: Some("durare"),
        variant: "postgres",
        storage: Storage::Postgres,
    },
    System {
        name: "dbos-postgres",
        title: "DBOS PostgreSQL",
        about: "dbos 0.5 on a local PostgreSQL at its defaults",
        peer: Some("dbos"),
        variant: "postgres",
        storage: Storage::Postgres,
    },
    System {
        name: "restate",
        title: "Restate",
        about: "restate-server and restate-sdk for Rust, a local server at its defaults",
        peer: Some("restate"),
        variant: "server",
        storage: Storage::OwnServer,
    },
];
