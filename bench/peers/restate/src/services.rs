//! The services of the workloads.

use everturn_bench_harness::probe;
use everturn_bench_protocol::BenchResult;
use restate_sdk::prelude::*;

/// Serves the workloads on this port.
pub(crate) async fn serve(port: u16) -> BenchResult<()> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    let endpoint = Endpoint::builder().bind(Bench).bind(Inbox).bind(Waiter).build();
    tokio::spawn(HttpServer::new(endpoint).serve(listener));
    Ok(())
}

pub(crate) struct Bench;

#[restate_sdk::service]
impl Bench {
    #[handler]
    async fn chain(&self, ctx: Context<'_>, steps: String) -> Result<String, HandlerError> {
        for _ in 0..number(&steps) {
            step(&ctx, String::new()).await?;
        }
        Ok(steps)
    }

    #[handler]
    async fn steps(&self, ctx: Context<'_>, payload: String) -> Result<String, HandlerError> {
        for _ in 0..probe().steps_each() {
            step(&ctx, payload.clone()).await?;
        }
        Ok(String::new())
    }

    #[handler]
    async fn fan_out(&self, ctx: Context<'_>, steps: String) -> Result<String, HandlerError> {
        // Its documentation wants each step awaited at once; what may run at the same time are calls.
        call_children(&ctx, &steps).await?;
        Ok(steps)
    }

    #[handler]
    async fn greet(&self, ctx: Context<'_>, name: String) -> Result<String, HandlerError> {
        Ok(step(&ctx, name).await?)
    }

    #[handler]
    async fn sleeper(&self, ctx: Context<'_>, id: String) -> Result<String, HandlerError> {
        probe().ask(&id);
        ctx.sleep(probe().sleep()).await?;
        Ok(id)
    }

    #[handler]
    async fn parent(&self, ctx: Context<'_>, children: String) -> Result<String, HandlerError> {
        call_children(&ctx, &children).await?;
        Ok(children)
    }

    #[handler]
    async fn child(&self, _: Context<'_>, input: String) -> Result<String, HandlerError> {
        probe().step();
        Ok(input)
    }
}

pub(crate) struct Inbox;

#[restate_sdk::object]
impl Inbox {
    #[handler]
    async fn add(&self, _: ObjectContext<'_>, message: String) -> Result<String, HandlerError> {
        probe().step();
        Ok(message)
    }
}

pub(crate) struct Waiter;

// A call that only waits is suspended at once. After the default of a minute, the first thousand waiting calls would keep
// all others from starting until then.
#[restate_sdk::service(inactivity_timeout = "1ms")]
impl Waiter {
    #[handler]
    async fn wait(&self, ctx: Context<'_>, _: String) -> Result<String, HandlerError> {
        let (_, message) = ctx.awakeable::<String>();
        Ok(message.await?)
    }
}

async fn call_children(ctx: &Context<'_>, count: &str) -> Result<(), TerminalError> {
    let mut calls = DurableFuturesUnordered::new();
    for child in 0..number(count) {
        calls.push(ctx.service_client::<BenchClient>().child(child.to_string()).call());
    }
    while let Some((_, result)) = calls.next().await? {
        result?;
    }
    Ok(())
}

/// One durable step that returns its input.
fn step(ctx: &Context<'_>, input: String) -> impl Future<Output = Result<String, TerminalError>> {
    ctx.run(move || async move {
        probe().step();
        Ok(input)
    })
}

fn number(input: &str) -> u64 {
    input.parse().unwrap_or(0)
}
