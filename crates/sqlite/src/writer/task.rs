//! A task that drives the writer, for tests that decide the order of everything that happens.

use std::sync::Arc;

use crate::command_queue::{CommandQueue, NoCommands};
use crate::writer::Writer;
use crate::writer::thread::{AfterRound, close, round};

/// Executes commands until the queue is closed and empty. A batch has the commands that were there when it began: no
/// caller can send one while it is open.
pub(crate) async fn run(mut writer: Writer, commands: &Arc<CommandQueue>) {
    loop {
        let wait = writer.next_wake();
        let received = commands.take_in_task(wait).await;
        match round(&mut writer, received, &mut NoCommands) {
            // Callers that were answered go on before the next batch.
            AfterRound::Again => tokio::task::yield_now().await,
            AfterRound::Pause(pause) => tokio::time::sleep(pause).await,
            AfterRound::Over => break,
        }
    }
    close(writer);
}
