//! A process to be killed, stopped, or left without room on its disk. What it was told and saw it says on its standard output,
//! one fact a line, so that it is known after its death.
//!
//! `work <database> <told> <share> <of> <first run>`: sees its share of the instances through, beside others.
//! `hold <database>`: takes locks, and tries to use them when a line comes in.
//! `fill <folder> <seed>`: works on a disk that is full for a while, and inspects what is stored at the end.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a process of the tests"
)]

use everturn_crash_tests::victim;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["work", database, told, share, of, first_run] => {
            let share = (share.parse().unwrap(), of.parse().unwrap());
            victim::work::run(database, told, share, first_run.parse().unwrap()).await;
        }
        ["hold", database] => victim::hold::run(database).await,
        ["fill", folder, seed] => victim::fill::run(folder.as_ref(), seed.parse().unwrap()).await,
        other => panic!("not understood: {other:?}"),
    }
}
