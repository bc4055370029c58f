//! A mere client: it has the file open and reads, and runs nothing.

use std::time::Duration;

use everturn::Client;

use super::{open, print_line, wait_for_go};

/// How often it reads.
const READS_EVERY: Duration = Duration::from_millis(20);

/// Reads until the test ends it.
pub async fn run(database: &str) {
    let provider = open(database).await;
    let client = Client::new(provider.clone());
    print_line("ready");
    let read = async {
        loop {
            // Whether the instance exists is of no interest.
            drop(client.get_orchestration_status("i0").await);
            tokio::time::sleep(READS_EVERY).await;
        }
    };
    tokio::select! {
        () = read => {}
        () = wait_for_go() => {}
    }
    provider.close().await;
    print_line("done");
}
