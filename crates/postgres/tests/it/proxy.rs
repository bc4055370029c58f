//! A TCP proxy in front of a server: it forwards, holds bytes back, loses an answer, cuts connections, and counts answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use everturn_test_server::shared_url;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

/// Longer than anything takes that a test waits for.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// The statement as it is sent: its length and its text.
const COMMIT: &[u8] = b"\x0bCOMMIT\0";
/// What the server answers when it has executed that.
const COMMITTED: &[u8] = b"C\0\0\0\x0bCOMMIT\0";
/// What the server sends when it has executed everything that it was sent.
const READY_FOR_QUERY: &[u8] = b"Z\0\0\0\x05";

/// What the proxy does with bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Orders {
    holds_requests: bool,
    holds_answers: bool,
    /// From the next commit on, answers are held back.
    waits_for_commit: bool,
    /// The connection of the next commit ends before its answer.
    loses_commit: bool,
    /// Connections that were opened before the last cut are closed.
    cuts: u64,
}

pub(crate) struct Proxy {
    address: SocketAddr,
    orders: watch::Sender<Orders>,
    answers: Arc<AtomicUsize>,
}

/// One direction of a connection.
struct Way {
    direction: Direction,
    orders: watch::Sender<Orders>,
    /// How many cuts there were when it was opened.
    cuts: u64,
    /// The answer to its commit is lost. Both directions share it.
    is_losing: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Answers,
}

impl Proxy {
    /// A proxy that forwards to the server of the tests.
    pub(crate) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (orders, answers) = (watch::Sender::new(Orders::default()), Arc::<AtomicUsize>::default());
        let (of_ways, answers_of_ways) = (orders.clone(), Arc::clone(&answers));
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let Ok(server) = TcpStream::connect(server_host()).await else { continue };
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                let (cuts, is_losing) = (of_ways.borrow().cuts, Arc::<AtomicBool>::default());
                let way = |direction| Way {
                    direction,
                    orders: of_ways.clone(),
                    cuts,
                    is_losing: Arc::clone(&is_losing),
                    answers: Arc::clone(&answers_of_ways),
                };
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                tokio::spawn(forward(from_client, to_server, way(Direction::Requests)));
                tokio::spawn(forward(from_server, to_client, way(Direction::Answers)));
            }
        });
        Self { address, orders, answers }
    }

    /// The URL of the database, by this proxy.
    pub(crate) fn url(&self) -> String {
        url_of(&self.host())
    }

    /// Where the proxy listens, as the part of a URL.
    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    /// Connections stay open and new ones are accepted, but nothing is forwarded.
    pub(crate) fn hold(&self) {
        self.orders.send_modify(|orders| (orders.holds_requests, orders.holds_answers) = (true, true));
    }

    /// Answers are held back from the next commit on, which the server gets.
    pub(crate) fn hold_after_commit(&self) {
        self.orders.send_modify(|orders| orders.waits_for_commit = true);
    }

    /// Waits until a commit was forwarded.
    pub(crate) async fn until_held(&self) {
        let mut orders = self.orders.subscribe();
        let held = orders.wait_for(|orders| orders.holds_answers);
        timeout(WAIT_MAX, held).await.expect("a commit").expect("a proxy");
    }

    /// The server executes the next commit, and the connection ends before its answer.
    pub(crate) fn lose_next_commit(&self) {
        self.orders.send_modify(|orders| orders.loses_commit = true);
    }

    /// Whether a commit was forwarded since then.
    pub(crate) fn has_lost_it(&self) -> bool {
        !self.orders.borrow().loses_commit
    }

    /// How many times the server has answered.
    pub(crate) fn answers(&self) -> usize {
        self.answers.load(Ordering::SeqCst)
    }

    /// Closes all connections. New ones are forwarded.
    pub(crate) fn cut(&self) {
        self.orders.send_modify(|orders| *orders = Orders { cuts: orders.cuts + 1, ..Orders::default() });
    }
}

/// The host and the port of the server of the tests.
pub(crate) fn server_host() -> &'static str {
    let (_, from_host) = shared_url().split_once('@').expect("a user in the url");
    from_host.split('/').next().unwrap()
}

/// The URL of the server of the tests, with other hosts.
pub(crate) fn url_of(hosts: &str) -> String {
    shared_url().replace(server_host(), hosts)
}

fn count(chunk: &[u8], part: &[u8]) -> usize {
    chunk.windows(part.len()).filter(|window| *window == part).count()
}

/// Forwards in one direction, until one side ends or the connection is cut.
async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, way: Way) {
    let mut changes = way.orders.subscribe();
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let read = tokio::select! {
            read = from.read(&mut bytes) => read.unwrap_or(0),
            _ = changes.wait_for(|orders| orders.cuts != way.cuts) => return,
        };
        if read == 0 {
            return;
        }
        let is_held = |orders: &Orders| match way.direction {
            Direction::Requests => orders.holds_requests,
            Direction::Answers => orders.holds_answers,
        };
        let forwards = changes.wait_for(|orders| orders.cuts != way.cuts || !is_held(orders)).await;
        if !forwards.is_ok_and(|orders| orders.cuts == way.cuts) {
            return;
        }
        let chunk = &bytes[..read];
        match way.direction {
            Direction::Requests => way.note_request(chunk),
            Direction::Answers => {
                way.answers.fetch_add(count(chunk, READY_FOR_QUERY), Ordering::SeqCst);
                if way.is_losing.load(Ordering::SeqCst) {
                    if count(chunk, COMMITTED) > 0 {
                        return;
                    }
                    continue;
                }
            }
        }
        if to.write_all(chunk).await.is_err() {
            return;
        }
    }
}

impl Way {
    fn note_request(&self, chunk: &[u8]) {
        if count(chunk, COMMIT) > 0 {
            self.orders.send_if_modified(|orders| {
                orders.holds_answers |= orders.waits_for_commit;
                self.is_losing.fetch_or(std::mem::take(&mut orders.loses_commit), Ordering::SeqCst);
                std::mem::take(&mut orders.waits_for_commit)
            });
        }
    }
}
