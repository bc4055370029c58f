//! A link to the server that loses the answer to a commit, or counts round trips.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use everturn_test_server::shared_url;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// What the server sends when it has executed everything that it was sent.
const READY_FOR_QUERY: &[u8] = b"Z\0\0\0\x05";

/// A link to the server of the tests.
pub(crate) struct LossyLink {
    url: String,
    state: Arc<LinkState>,
}

#[derive(Default)]
struct LinkState {
    loses_next_commit: AtomicBool,
    answers: AtomicUsize,
}

impl LossyLink {
    pub(crate) async fn open() -> Self {
        let config: Config = shared_url().parse().unwrap();
        let Some(Host::Tcp(host)) = config.get_hosts().first() else { panic!("a host: {config:?}") };
        let server = format!("{host}:{}", config.get_ports().first().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = shared_url().replace(&server, &listener.local_addr().unwrap().to_string());
        assert_ne!(url, shared_url(), "the url names the port");
        let state: Arc<LinkState> = Arc::default();
        let of_link = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(pass_on(client, server, Arc::clone(&of_link)));
            }
        });
        Self { url, state }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The server executes the next commit, and the connection ends before its answer.
    pub(crate) fn lose_next_commit(&self) {
        self.state.loses_next_commit.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_lost_it(&self) -> bool {
        !self.state.loses_next_commit.load(Ordering::SeqCst)
    }

    /// How many times the server has answered.
    pub(crate) fn answers(&self) -> usize {
        self.state.answers.load(Ordering::SeqCst)
    }
}

fn count(chunk: &[u8], text: &[u8]) -> usize {
    chunk.windows(text.len()).filter(|window| *window == text).count()
}

/// Passes on what client and server send, until one of them ends.
async fn pass_on(mut client: TcpStream, mut server: TcpStream, state: Arc<LinkState>) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (mut sent, mut answered) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut is_losing = false;
    loop {
        tokio::select! {
            biased;
            length = client.read(&mut sent) => {
                let chunk = match length {
                    Ok(1..) => &sent[..length.unwrap()],
                    _ => return,
                };
                is_losing |= count(chunk, b"COMMIT\0") > 0 && state.loses_next_commit.swap(false, Ordering::SeqCst);
                if server.write_all(chunk).await.is_err() {
                    return;
                }
            }
            length = server.read(&mut answered) => {
                let chunk = match length {
                    Ok(1..) => &answered[..length.unwrap()],
                    _ => return,
                };
                state.answers.fetch_add(count(chunk, READY_FOR_QUERY), Ordering::SeqCst);
                if is_losing && count(chunk, b"COMMIT\0") > 0 {
                    return;
                }
                if !is_losing && client.write_all(chunk).await.is_err() {
                    return;
                }
            }
        }
    }
}
