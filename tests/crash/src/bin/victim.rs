//! A process that a test kills, stops, or leaves without disk space. It prints every observation as a line on its standard
//! output, so that the test has them after a kill.
//!
//! `work <database> <observations> <share> <of> <first run>`: drives its share of the instances, beside other processes.
//! `watch <database>`: a mere client that reads.
//! `hold <database>`: takes locks, and tries to use them when it reads a line.
//! `relay <database> <name> <count>`: starts instances and works on them with the usual lock timeouts.
//! `wait <database> <count> <name>...`: a client that waits for the instances of these processes.
//! `fill <folder> <seed>`: works on a disk that is full for a while, and checks stored data at the end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test process")]

use everturn_crash_tests::victim;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["work", database, observations, share, of, first_run] => {
            let share = (share.parse().unwrap(), of.parse().unwrap());
            victim::work::run(database, observations, share, first_run.parse().unwrap()).await;
        }
        ["watch", database] => victim::watch::run(database).await,
        ["hold", database] => victim::hold::run(database).await,
        ["relay", database, name, count] => victim::relay::run(database, name, count.parse().unwrap()).await,
        ["wait", database, count, names @ ..] => {
            victim::relay::wait(database, count.parse().unwrap(), names).await;
        }
        ["fill", folder, seed] => victim::fill::run(folder.as_ref(), seed.parse().unwrap()).await,
        other => panic!("unknown arguments: {other:?}"),
    }
}
