//! Measures Restate: its server, and a service of its Rust SDK in this process.
//!
//! An instance is a call of a handler. Messages go to a virtual object, which handles one after the other.

mod server;
mod services;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use everturn_bench_harness::{Peer, probe};
use everturn_bench_protocol::{BenchResult, MeasureRequest};
use futures::future::try_join_all;
use restate_sdk::ingress::ReqwestClient;

use server::RestateServer;
use services::{BenchIngressClient, InboxIngressClient, WaiterIngressClient};

/// Enough for each of the 24 partitions to get some.
const WARM_UP_CALLS: usize = 300;

#[derive(Clone)]
struct Restate {
    client: ReqwestClient,
    server: Arc<RestateServer>,
}

/// A call that was sent.
enum Sent {
    /// Its result.
    Call(Pin<Box<dyn Future<Output = BenchResult<()>> + Send>>),
    /// Nothing to wait for but this many messages.
    Messages(u64),
}

fn main() -> BenchResult<()> {
    everturn_bench_harness::run(open)
}

async fn open(request: MeasureRequest) -> BenchResult<Restate> {
    let program = request.server.ok_or("restate needs its server")?;
    let server = Arc::new(RestateServer::start(&program, &request.folder)?);
    services::serve(server.service_port).await?;
    server.register_service().await?;
    let client = ReqwestClient::connect(server.ingress_url().parse()?)?;
    if request.workload != "cold-start" {
        warm_up(&client).await?;
    }
    Ok(Restate { client, server })
}

/// Calls until every partition of a new server has answered: its first calls wait for that.
async fn warm_up(client: &ReqwestClient) -> BenchResult<()> {
    let call = || BenchIngressClient::from_client(client.clone()).child(String::new()).call();
    try_join_all((0..WARM_UP_CALLS).map(|_| call())).await?;
    probe().reset();
    Ok(())
}

impl Peer for Restate {
    type Started = Sent;

    async fn start(&self, workflow: &'static str, id: String, input: String) -> BenchResult<Sent> {
        if workflow == "inbox" {
            // The object exists when its first message comes.
            return Ok(Sent::Messages(input.parse()?));
        }
        let bench = BenchIngressClient::from_client(self.client.clone());
        let request = match workflow {
            "greet" => bench.greet(input),
            "waiter" => WaiterIngressClient::from_client(self.client.clone()).wait(input),
            other => return Err(format!("{other} is called, not sent").into()),
        };
        let sent = request.idempotency_key(id).send().await?;
        Ok(Sent::Call(Box::pin(async move {
            sent.invocation_handle().attach().await?;
            Ok(())
        })))
    }

    async fn wait(&self, started: Sent) -> BenchResult<()> {
        match started {
            Sent::Call(result) => result.await?,
            Sent::Messages(messages) => {
                while probe().steps() < messages {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
        Ok(())
    }

    async fn run(&self, workflow: &'static str, _: String, input: String) -> BenchResult<()> {
        let bench = BenchIngressClient::from_client(self.client.clone());
        let request = match workflow {
            "chain" => bench.chain(input),
            "steps" => bench.steps(input),
            "fan_out" => bench.fan_out(input),
            "greet" => bench.greet(input),
            "sleeper" => bench.sleeper(input),
            "parent" => bench.parent(input),
            other => return Err(format!("no workflow '{other}'").into()),
        };
        request.call().await?.into_body()?;
        Ok(())
    }

    async fn send(&self, id: &str, message: String) -> BenchResult<()> {
        InboxIngressClient::from_client(self.client.clone(), id).add(message).send().await?;
        Ok(())
    }

    fn server_process(&self) -> Option<u32> {
        Some(self.server.process())
    }
}
