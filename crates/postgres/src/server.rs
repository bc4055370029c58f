//! Where the server is, and how it is reached.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::poll_fn;
use rustls::ClientConfig;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::ExchangeError;
use crate::hosts::Hosts;
use crate::options::PostgresOptions;
use crate::session::Purpose;
use crate::url::{ServerUrl, TlsMode};

const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_RETRIES: u32 = 3;
/// A connection whose data was not acknowledged for this long is broken.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an exchange of the hot path takes at most: longer than a statement, so that the server says what is wrong as long
/// as it can.
const EXCHANGE_MAX: Duration = Duration::from_secs(6);
/// A shorter time-out of calls does not make the exchanges shorter than this.
const EXCHANGE_MIN: Duration = Duration::from_millis(500);
/// A transaction whose process does not go on must not keep its locks: the server ends it. A batch waits for a row only so
/// long, because all that come after it wait too.
const SESSION_LIMITS: &str =
    "-c statement_timeout=5s -c lock_timeout=500ms -c idle_in_transaction_session_timeout=3s";
/// Deletions and lists of large stores take longer.
const LONG_SESSION_LIMITS: &str =
    "-c statement_timeout=60s -c lock_timeout=5s -c idle_in_transaction_session_timeout=10s";
/// A migration waits for another process that migrates, and takes as long as its tables are large.
const MIGRATION_LIMITS: &str =
    "-c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=60s";
/// The statements rely on it, whatever the default of the database or the role is. After what the URL says.
const ISOLATION: &str = "-c default_transaction_isolation=read\\ committed";
/// A queue without statistics looks like any table, and a plan that reads all of it would be kept: every hot statement has
/// an index for its rows.
const INDEX_PLANS: &str = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_bitmapscan=off \
     -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off";

/// Where the server is, and how it is reached.
pub(crate) struct Server {
    config: Config,
    hosts: Hosts,
    tls: Option<Arc<ClientConfig>>,
    schema: String,
    exchange_max: Duration,
}

impl Server {
    pub(crate) fn new(url: ServerUrl, options: &PostgresOptions) -> Self {
        let ServerUrl { mut config, tls } = url;
        if config.get_application_name().is_none() {
            config.application_name("everturn");
        }
        let (mode, tls) = match tls {
            TlsMode::Off => (SslMode::Disable, None),
            TlsMode::IfOffered(tls) => (SslMode::Prefer, Some(tls)),
            TlsMode::Required(tls) => (SslMode::Require, Some(tls)),
        };
        config.ssl_mode(mode);
        Self {
            hosts: Hosts::of(&config),
            config,
            tls,
            schema: options.quoted_schema(),
            exchange_max: options.call_timeout.clamp(EXCHANGE_MIN, EXCHANGE_MAX),
        }
    }

    /// How long an exchange of the hot path takes at most.
    pub(crate) fn exchange_max(&self) -> Duration {
        self.exchange_max
    }

    /// How long it takes at most to connect, if any of the hosts answers.
    pub(crate) fn connect_max(&self) -> Duration {
        self.hosts.round_max().saturating_add(self.exchange_max)
    }

    /// The schema as statements name it.
    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// The hosts, for messages.
    pub(crate) fn shown(&self) -> String {
        let names = self.config.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(path) => path.display().to_string(),
        });
        let addresses = self.config.get_hostaddrs().iter().map(ToString::to_string);
        let hosts: Vec<String> =
            if self.config.get_hosts().is_empty() { addresses.collect() } else { names.collect() };
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or("?");
        format!("{}/{database}", hosts.join(","))
    }

    /// What names the data in this process.
    pub(crate) fn identity(&self) -> String {
        let ports: Vec<String> = self.config.get_ports().iter().map(u16::to_string).collect();
        format!("postgres {} {} {}", self.shown(), ports.join(","), self.schema)
    }

    /// Connects to the first host that answers and takes writes.
    pub(crate) async fn connect(&self, purpose: Purpose) -> Result<(Client, OpenConnection), ExchangeError> {
        let mut failure = ExchangeError::Late;
        for (place, config) in self.hosts.round() {
            self.hosts.trying(place);
            match timeout(self.hosts.attempt_max(), self.connect_to(config, purpose)).await {
                Ok(Ok(connected)) => {
                    self.hosts.works(place);
                    return Ok(connected);
                }
                Ok(Err(error)) => failure = ExchangeError::Server(error),
                Err(_elapsed) => failure = ExchangeError::Late,
            }
        }
        Err(failure)
    }

    async fn connect_to(&self, host: &Config, purpose: Purpose) -> Result<(Client, OpenConnection), Error> {
        let mut config = host.clone();
        let given = config.get_options().unwrap_or_default().to_owned();
        let settings = match purpose {
            Purpose::HotPath => format!("{SESSION_LIMITS} {INDEX_PLANS}"),
            Purpose::Migration => format!("{MIGRATION_LIMITS} {INDEX_PLANS}"),
            Purpose::Other => format!("{LONG_SESSION_LIMITS} -c enable_bitmapscan=off -c jit=off"),
        };
        config
            .options(format!("{settings} {given} {ISOLATION}"))
            .ssl_mode(self.config.get_ssl_mode())
            .keepalives(true)
            .keepalives_idle(KEEPALIVE_IDLE)
            .keepalives_interval(KEEPALIVE_INTERVAL)
            .keepalives_retries(KEEPALIVE_RETRIES)
            .tcp_user_timeout(TCP_USER_TIMEOUT)
            // Of several hosts the one that takes writes: the others are standbys.
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        match &self.tls {
            None => connect_with(&config, NoTls).await,
            Some(tls) => connect_with(&config, MakeRustlsConnect::new(ClientConfig::clone(tls))).await,
        }
    }
}

async fn connect_with<T>(config: &Config, tls: T) -> Result<(Client, OpenConnection), Error>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let (client, connection) = config.connect(tls).await?;
    Ok((client, OpenConnection::new(connection)))
}

/// What reads and writes a connection until it is closed.
pub(crate) struct OpenConnection(Box<dyn FnOnce(MessageSink) -> ConnectionDriver + Send>);

type MessageSink = Box<dyn FnMut(AsyncMessage) + Send>;
type ConnectionDriver = Pin<Box<dyn Future<Output = ()> + Send>>;

impl OpenConnection {
    fn new<S>(mut connection: Connection<Socket, S>) -> Self
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        Self(Box::new(move |mut sink: MessageSink| {
            Box::pin(async move {
                // The end of the connection shows in every call.
                while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                    sink(message);
                }
            })
        }))
    }

    pub(crate) fn run(self, sink: impl FnMut(AsyncMessage) + Send + 'static) -> ConnectionDriver {
        (self.0)(Box::new(sink))
    }
}
