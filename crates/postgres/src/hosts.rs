//! The hosts of a URL: each is tried by itself, with a time-out of its own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// How long an attempt to reach a host takes at most, the handshake included, unless the URL says something else.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);
/// How long one address of a host is tried: a name may stand for several.
const ADDRESS_MAX: Duration = Duration::from_secs(1);

/// The hosts of a URL, in the order in which they are tried.
pub(crate) struct Hosts {
    configs: Vec<Config>,
    /// The place of the host that worked last, or is tried next.
    first: AtomicUsize,
    attempt_max: Duration,
}

impl Hosts {
    /// The hosts that a URL names.
    pub(crate) fn of(config: &Config) -> Self {
        let count = config.get_hosts().len().max(config.get_hostaddrs().len());
        let given = config.get_connect_timeout().copied();
        let mut configs: Vec<Config> = (0..count).map(|nth| config_of(config, nth)).collect();
        for config in &mut configs {
            config.connect_timeout(given.unwrap_or(ADDRESS_MAX));
        }
        Self { configs, first: AtomicUsize::new(0), attempt_max: given.unwrap_or(ATTEMPT_MAX) }
    }

    /// How long an attempt to reach one host takes at most.
    pub(crate) fn attempt_max(&self) -> Duration {
        self.attempt_max
    }

    /// How long it takes at most to try all of them.
    pub(crate) fn round_max(&self) -> Duration {
        self.attempt_max.saturating_mul(u32::try_from(self.configs.len()).unwrap_or(u32::MAX))
    }

    /// All hosts once, beginning with the one that worked last, each with its place.
    pub(crate) fn round(&self) -> impl Iterator<Item = (usize, &Config)> {
        let first = self.first.load(Ordering::Relaxed);
        let (before, from) = self.configs.split_at(first.min(self.configs.len()));
        let from = from.iter().enumerate().map(move |(nth, config)| (first + nth, config));
        from.chain(before.iter().enumerate())
    }

    /// A host is being tried. Should the caller give up meanwhile, the next round begins with the host after it.
    pub(crate) fn trying(&self, place: usize) {
        let next = if place + 1 < self.configs.len() { place + 1 } else { 0 };
        self.first.store(next, Ordering::Relaxed);
    }

    /// A host works.
    pub(crate) fn works(&self, place: usize) {
        self.first.store(place, Ordering::Relaxed);
    }
}

/// The same configuration for one of its hosts.
fn config_of(all: &Config, nth: usize) -> Config {
    let mut one = Config::new();
    match all.get_hosts().get(nth) {
        Some(Host::Tcp(name)) => drop(one.host(name)),
        #[cfg(unix)]
        Some(Host::Unix(path)) => drop(one.host_path(path)),
        None => {}
    }
    if let Some(address) = all.get_hostaddrs().get(nth) {
        one.hostaddr(*address);
    }
    if let Some(port) = all.get_ports().get(nth).or_else(|| all.get_ports().first()) {
        one.port(*port);
    }
    if let Some(user) = all.get_user() {
        one.user(user);
    }
    if let Some(password) = all.get_password() {
        one.password(password);
    }
    if let Some(database) = all.get_dbname() {
        one.dbname(database);
    }
    if let Some(options) = all.get_options() {
        one.options(options);
    }
    if let Some(name) = all.get_application_name() {
        one.application_name(name);
    }
    one.ssl_negotiation(all.get_ssl_negotiation()).channel_binding(all.get_channel_binding());
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(url: &str) -> Hosts {
        Hosts::of(&url.parse().unwrap())
    }

    fn names(hosts: &Hosts) -> Vec<String> {
        let name = |config: &Config| match config.get_hosts() {
            [Host::Tcp(name)] => format!("{name}:{}", config.get_ports()[0]),
            other => panic!("{other:?}"),
        };
        hosts.round().map(|(_, config)| name(config)).collect()
    }

    #[test]
    fn a_round_begins_with_the_host_that_worked_last() {
        let hosts = hosts("postgres://u:p@a:1,b:2,c:3/db?application_name=x");
        assert_eq!(names(&hosts), ["a:1", "b:2", "c:3"]);
        hosts.works(2);
        assert_eq!(names(&hosts), ["c:3", "a:1", "b:2"]);
        assert!(hosts.round().all(|(_, config)| config.get_password() == Some(b"p".as_slice())));
    }

    #[test]
    fn a_round_that_was_given_up_goes_on_with_the_next_host() {
        let hosts = hosts("postgres://a:1,b:1/db");
        hosts.trying(0);
        assert_eq!(names(&hosts), ["b:1", "a:1"]);
        hosts.trying(1);
        assert_eq!(names(&hosts), ["a:1", "b:1"]);
    }

    #[test]
    fn the_url_says_how_long_a_host_is_tried() {
        assert_eq!(hosts("postgres://a,b/db").round_max(), ATTEMPT_MAX * 2);
        assert_eq!(hosts("postgres://a,b/db?connect_timeout=3").attempt_max(), Duration::from_secs(3));
    }
}
