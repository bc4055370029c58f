//! The texts about work that no runtime has a handler for.

/// Most names that are listed: the list is there to show a typing mistake or a forgotten deployment.
const NAMES_LISTED_MAX: usize = 20;

/// Says that no runtime has registered `what`, since when it waits, and which names are registered here.
pub(crate) fn not_registered(what: &str, waits_since_ms: Option<u64>, registered: &[String]) -> String {
    let since = waits_since_ms.map(|ms| format!(", waiting since {}", utc(ms))).unwrap_or_default();
    let listed = registered.iter().take(NAMES_LISTED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    let here = match registered.len() {
        0 => "this one has registered none".to_owned(),
        count if count > NAMES_LISTED_MAX => {
            format!("this one has registered {listed} and {} more", count - NAMES_LISTED_MAX)
        }
        _ => format!("this one has registered {listed}"),
    };
    format!("no runtime has registered {what}{since}; {here}")
}

/// A time in milliseconds since the epoch as text, to the second.
fn utc(ms: u64) -> String {
    let (days, seconds) = (ms / 86_400_000, ms / 1_000 % 86_400);
    // Years are counted from March 1 of the year 0, so that a leap day is the last day of its year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        let texts = [0, 951_782_400_000, 951_868_799_999, 1_700_000_000_000, 4_102_444_800_000].map(utc);
        let expected = [
            "1970-01-01T00:00:00Z",
            "2000-02-29T00:00:00Z",
            "2000-02-29T23:59:59Z",
            "2023-11-14T22:13:20Z",
            "2100-01-01T00:00:00Z",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn registered_names_are_listed_up_to_a_limit() {
        let names = |count: usize| (0..count).map(|name| format!("n{name}")).collect::<Vec<_>>();
        let text = |count| not_registered("activity a", None, &names(count));
        assert_eq!(text(0), "no runtime has registered activity a; this one has registered none");
        assert_eq!(text(2), "no runtime has registered activity a; this one has registered n0, n1");
        assert!(text(20).ends_with(", n18, n19"), "{}", text(20));
        assert!(text(22).ends_with(", n18, n19 and 2 more"), "{}", text(22));
    }

    #[test]
    fn each_day_follows_the_one_before_through_a_whole_cycle_of_the_calendar() {
        let is_leap =
            |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..160_000_u64 {
            assert_eq!(
                utc(days * 86_400_000),
                format!("{year:04}-{month:02}-{day:02}T00:00:00Z"),
                "day {days}"
            );
            let days_of_month = match month {
                2 if is_leap(year) => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (year, month, day) = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                (month, day) if day == days_of_month => (year, month + 1, 1),
                (month, day) => (year, month, day + 1),
            };
        }
        assert!(year > 2400, "the walk ends in {year}");
    }
}
