//! A TCP proxy in front of a server: it forwards, holds bytes back, and cuts connections.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

/// Longer than anything takes that a test waits for.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// The statement as it is sent: its length and its text.
const COMMIT: &[u8] = b"\x0bCOMMIT\0";

/// What the proxy does with bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Orders {
    holds_requests: bool,
    holds_answers: bool,
    /// From the next commit on, answers are held back.
    waits_for_commit: bool,
    /// Connections that were opened before the last cut are closed.
    cuts: u64,
}

pub(crate) struct Proxy {
    address: SocketAddr,
    orders: watch::Sender<Orders>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Answers,
}

impl Proxy {
    /// A proxy that forwards to this server.
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let orders = watch::Sender::new(Orders::default());
        let shared = orders.clone();
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let Ok(server) = TcpStream::connect(server).await else { continue };
                let cuts = shared.borrow().cuts;
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                tokio::spawn(forward(from_client, to_server, Direction::Requests, cuts, shared.clone()));
                tokio::spawn(forward(from_server, to_client, Direction::Answers, cuts, shared.clone()));
            }
        });
        Self { address, orders }
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

    /// Closes all connections. New ones are forwarded.
    pub(crate) fn cut(&self) {
        self.orders.send_modify(|orders| *orders = Orders { cuts: orders.cuts + 1, ..Orders::default() });
    }
}

async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    direction: Direction,
    cuts: u64,
    orders: watch::Sender<Orders>,
) {
    let mut changes = orders.subscribe();
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let read = tokio::select! {
            read = from.read(&mut bytes) => read.unwrap_or(0),
            _ = changes.wait_for(|orders| orders.cuts != cuts) => return,
        };
        if read == 0 {
            return;
        }
        let is_held = |orders: &Orders| match direction {
            Direction::Requests => orders.holds_requests,
            Direction::Answers => orders.holds_answers,
        };
        let forwards = changes.wait_for(|orders| orders.cuts != cuts || !is_held(orders)).await;
        if !forwards.is_ok_and(|orders| orders.cuts == cuts) {
            return;
        }
        if direction == Direction::Requests && bytes[..read].windows(COMMIT.len()).any(|part| part == COMMIT)
        {
            orders.send_if_modified(|orders| {
                orders.holds_answers |= orders.waits_for_commit;
                std::mem::take(&mut orders.waits_for_commit)
            });
        }
        if to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
