//! The rules of the proofs themselves: they can fail.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use everturn_crash_tests::ledger::{Fact, Ledger, Outcome};
use everturn_crash_tests::plan::Plan;
use everturn_crash_tests::tally::Tally;
use everturn_crash_tests::watchdog::Watchdog;

/// A ledger with so many instances, of which so many ended.
fn ledger(instances: usize, finished: usize) -> Arc<Ledger> {
    let names = (0..instances).map(|index| (format!("i{index}"), Plan::Signal));
    let ledger = Ledger::new(names.collect::<Vec<_>>());
    for index in 0..finished {
        ledger.learn(Fact::Ended(format!("i{index}"), Outcome::Completed("go s0#1".to_owned())));
    }
    Arc::new(ledger)
}

#[test]
fn a_run_counts_only_if_95_of_100_instances_finished() {
    let tally = Tally::default();
    drop(tally.case(&ledger(100, 95)));
    tally.require_finished().unwrap();
    drop(tally.case(&ledger(1, 0)));
    assert_eq!(tally.require_finished().unwrap_err(), "95 of 101 instances finished");
}

#[test]
fn cases_that_failed_or_were_given_up_count_too() {
    fn case(tally: &Tally, gives_up: bool) -> Result<(), String> {
        let ledger = ledger(10, if gives_up { 2 } else { 10 });
        let _tallied = tally.case(&ledger);
        if gives_up { Err("enough".to_owned()) } else { Ok(()) }
    }
    let tally = Tally::default();
    case(&tally, false).unwrap();
    tally.require_finished().unwrap();
    case(&tally, true).unwrap_err();
    assert_eq!(tally.require_finished().unwrap_err(), "12 of 20 instances finished");
}

#[test]
fn a_run_without_instances_does_not_count() {
    assert_eq!(Tally::default().require_finished().unwrap_err(), "0 of 0 instances finished");
}

#[test]
fn a_case_that_hangs_is_named() {
    let (bitten, bite) = channel();
    let watchdog = Watchdog::new("seed 7".to_owned(), Duration::from_millis(1), move |what| {
        bitten.send(what.to_owned()).unwrap();
    });
    // This is the case that hangs.
    assert_eq!(bite.recv().unwrap(), "seed 7");
    drop(watchdog);
}

#[test]
fn a_case_that_ends_in_time_is_not_bitten() {
    let (bitten, bite) = channel();
    drop(Watchdog::new("seed 7".to_owned(), Duration::from_secs(3_600), move |what| {
        bitten.send(what.to_owned()).unwrap();
    }));
    assert!(bite.recv().is_err(), "nobody can bite any more");
}
