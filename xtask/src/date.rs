//! Today's date.

use std::time::{SystemTime, UNIX_EPOCH};

/// Today, in UTC, as `2026-11-16`.
pub(crate) fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    date_of_day(seconds / 86_400)
}

/// The date of a day, counted from the first of January 1970.
fn date_of_day(day: u64) -> String {
    let mut left = day;
    let mut year = 1970;
    while left >= days_of_year(year) {
        left -= days_of_year(year);
        year += 1;
    }
    let february = if days_of_year(year) == 366 { 29 } else { 28 };
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < days {
            break;
        }
        left -= days;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", left + 1)
}

fn days_of_year(year: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    if is_leap { 366 } else { 365 }
}

#[cfg(test)]
mod tests {
    use super::date_of_day;

    #[test]
    fn days_have_their_dates() {
        for (day, date) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (19_722, "2023-12-31"),
            (20_773, "2026-11-16"),
        ] {
            assert_eq!(date_of_day(day), date);
        }
    }
}
