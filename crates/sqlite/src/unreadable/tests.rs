use super::*;

const ROW: RowPlace = RowPlace::Instance(1);

fn at_ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The pauses of a row that fails again as soon as it is tried.
fn pauses(others_work: bool) -> Vec<u128> {
    let (mut rows, mut now, mut commits) = (UnreadableRows::default(), Duration::ZERO, 0);
    let mut fails = || {
        let pause = rows.note(ROW, now, commits).unwrap().pause;
        assert!(rows.is_passed_over(ROW, now) && !rows.is_passed_over(ROW, now + pause));
        now += pause;
        commits += u64::from(others_work);
        pause.as_millis()
    };
    (0..12).map(|_| fails()).collect()
}

#[test]
fn the_pause_grows_up_to_half_a_minute_while_others_work() {
    assert_eq!(
        pauses(true),
        [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000, 30_000]
    );
}

#[test]
fn in_an_outage_no_row_is_left_alone_for_longer_than_a_second() {
    assert_eq!(pauses(false), [100, 200, 400, 800, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000]);
}

#[test]
fn a_row_is_logged_once_and_not_in_an_outage() {
    let mut rows = UnreadableRows::default();
    let mut is_logged = |ms, commits| rows.note(ROW, at_ms(ms), commits).unwrap().must_log;
    assert!(!is_logged(0, 5) && !is_logged(100, 5), "it may be an outage");
    assert!(is_logged(300, 6), "others were committed meanwhile");
    assert!(!is_logged(700, 7));
    assert_eq!(rows.logged_count(), 1);
    assert!(rows.note_read(ROW), "it was logged");
    assert!(rows.is_empty());
}

#[test]
fn the_end_of_a_pause_is_noticed_once() {
    let mut rows = UnreadableRows::default();
    rows.note(ROW, at_ms(0), 0).unwrap();
    assert_eq!(rows.until_next(at_ms(40)), Some(at_ms(60)));
    assert!(!rows.take_due(at_ms(99)) && rows.take_due(at_ms(100)) && !rows.take_due(at_ms(101)));
    assert_eq!(rows.until_next(at_ms(101)), None);
}

#[test]
fn rows_that_do_not_fail_again_are_forgotten() {
    let mut rows = UnreadableRows::default();
    rows.note(ROW, at_ms(0), 0).unwrap();
    rows.note(RowPlace::Message(7), at_ms(60_000), 0).unwrap();
    assert_eq!(rows.rows.len(), 1);
}

#[test]
fn a_bounded_number_of_rows_is_remembered() {
    let mut rows = UnreadableRows::default();
    let fresh = (0_i64..).map(|key| rows.note(RowPlace::Instance(key), at_ms(0), 0));
    assert_eq!(fresh.take_while(Option::is_some).count(), ROWS_MAX);
}
