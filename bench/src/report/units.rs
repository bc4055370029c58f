//! Figures as text. The unit of a figure is the last part of its name.

/// A figure with its unit, for example `0.462 ms`, `8,123/s`, `41 MB`.
pub(crate) fn with_unit(figure: &str, value: f64) -> String {
    if figure.ends_with("per_s") {
        format!("{}/s", grouped(value))
    } else if figure.ends_with("_s") || figure == "seconds" {
        seconds(value)
    } else if figure.ends_with("_ms") {
        format!("{value:.1} ms")
    } else if figure.ends_with("_mb") {
        format!("{value:.0} MB")
    } else if figure.contains("bytes") {
        format!("{} B", grouped(value))
    } else if figure.starts_with("kb_") {
        format!("{value:.1} kB")
    } else if figure.ends_with("ratio") {
        format!("{value:.2} x")
    } else if value.fract().abs() < 1e-9 {
        grouped(value)
    } else {
        format!("{value:.2}")
    }
}

fn seconds(value: f64) -> String {
    if value < 0.000_1 {
        format!("{:.1} µs", value * 1e6)
    } else if value < 0.1 {
        format!("{:.3} ms", value * 1e3)
    } else if value < 1.0 {
        format!("{:.0} ms", value * 1e3)
    } else {
        format!("{value:.2} s")
    }
}

/// A number with commas between its thousands; small ones with a decimal.
pub(crate) fn grouped(value: f64) -> String {
    if value.abs() < 10.0 && value.fract() != 0.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

/// How many times as good: `143 x`, `2.4 x`, `0.81 x`.
pub(crate) fn times(ratio: f64) -> String {
    if ratio >= 100.0 {
        format!("{} x", grouped(ratio))
    } else if ratio >= 10.0 {
        format!("{ratio:.0} x")
    } else if ratio >= 1.0 {
        format!("{ratio:.1} x")
    } else {
        format!("{ratio:.2} x")
    }
}

/// True if a larger figure is better: rates. Times and sizes are better if they are smaller.
pub(crate) fn larger_is_better(figure: &str) -> bool {
    figure.ends_with("per_s") || figure.ends_with("per_commit")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_units_of_their_names() {
        for (figure, value, text) in [
            ("step_s", 0.000_462, "0.462 ms"),
            ("step_s", 0.000_012_3, "12.3 µs"),
            ("seconds", 7.126, "7.13 s"),
            ("p50_s", 0.25, "250 ms"),
            ("activities_per_s", 8_123.4, "8,123/s"),
            ("per_s", 3.25, "3.2/s"),
            ("latest_ms", 61.04, "61.0 ms"),
            ("resident_mb", 40.6, "41 MB"),
            ("file_bytes_per_step", 1_234_567.0, "1,234,567 B"),
            ("waiting", 10_000.0, "10,000"),
            ("commits_per_step", 1.017, "1.02"),
        ] {
            assert_eq!(with_unit(figure, value), text, "{figure}");
        }
    }

    #[test]
    fn ratios_are_short() {
        assert_eq!(times(1_430.2), "1,430 x");
        assert_eq!(times(14.4), "14 x");
        assert_eq!(times(2.44), "2.4 x");
        assert_eq!(times(0.812), "0.81 x");
    }

    #[test]
    fn rates_are_better_when_larger() {
        assert!(larger_is_better("activities_per_s"));
        assert!(!larger_is_better("step_s"));
        assert!(!larger_is_better("resident_mb"));
    }
}
