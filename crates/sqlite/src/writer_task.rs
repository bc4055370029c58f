//! A task around the writer, for whoever must decide the order of everything that happens.

use std::sync::Arc;

use crate::batch::NoInlet;
use crate::mailbox::Mailbox;
use crate::writer::Writer;
use crate::writer_thread::{Round, close, round};

/// Works off the mailbox until it is closed and empty. A batch takes what was there when it began: nobody can put down
/// a letter while it is open.
pub(crate) async fn run(mut writer: Writer, mailbox: &Arc<Mailbox>) {
    loop {
        let wait = writer.next_wake();
        let arrivals = mailbox.take_in_task(wait).await;
        match round(&mut writer, arrivals, &mut NoInlet) {
            // Whoever was answered goes on before the next batch.
            Round::Again => tokio::task::yield_now().await,
            Round::Pause(pause) => tokio::time::sleep(pause).await,
            Round::Over => break,
        }
    }
    close(writer);
}
