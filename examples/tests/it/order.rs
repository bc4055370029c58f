//! The command line of the order example.

use std::path::Path;
use std::process::{Command, Output};

use crate::built;

fn order(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(built::program("order")).args(arguments).current_dir(folder).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn order_help_is_printed_and_nothing_is_created() {
    let folder = tempfile::tempdir().unwrap();
    let output = order(folder.path(), &["--help"]);
    assert!(output.status.success());
    assert!(stdout(&output).contains("usage: order"), "{}", stdout(&output));
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

#[test]
fn order_refuses_wrong_arguments_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, reason) in [
        (&["--pace", "fast"][..], "--pace: 'fast' is not a number of milliseconds"),
        (&["--pace", "-1"][..], "--pace: '-1' is not a number of milliseconds"),
        (&["--db"][..], "--db needs a value"),
        (&["--order", ""][..], "--order needs a value"),
        (&["--order", "sub::1"][..], "--order: 'sub::1' is reserved for sub-orchestrations"),
        (&["--quick"][..], "unknown argument '--quick'"),
    ] {
        let output = order(folder.path(), arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(reason), "{arguments:?}: {stderr}");
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

#[test]
fn order_names_the_database_that_it_cannot_open() {
    let folder = tempfile::tempdir().unwrap();
    let output = order(folder.path(), &["--db", "no/such/folder/order.db"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("no/such/folder/order.db"), "{stderr}");
}

#[test]
fn order_refunds_when_no_carrier_comes() {
    let folder = tempfile::tempdir().unwrap();
    let output = order(folder.path(), &["--pace", "50", "--no-carrier"]);
    let text = stdout(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("ended: a good book not shipped (no carrier came in time), refund 2"), "{text}");
    assert!(text.contains("refund     -39.00 EUR  recorded once, requested 1 x"), "{text}");
}

#[test]
fn order_starts_a_new_one_when_the_last_has_ended_and_shows_an_old_one_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let first = stdout(&order(folder.path(), &["--pace", "20"]));
    let second = stdout(&order(folder.path(), &["--pace", "20"]));
    let again = stdout(&order(folder.path(), &["--pace", "20", "--order", "order-1"]));
    assert!(first.contains("started order-1") && first.contains("order-1 ended"), "{first}");
    assert!(second.contains("started order-2") && second.contains("order-2 ended"), "{second}");
    assert!(again.contains("showing order-1") && again.contains("order-1 ended"), "{again}");
    assert!(!again.contains(" with key "), "an ended order was charged again: {again}");
}
