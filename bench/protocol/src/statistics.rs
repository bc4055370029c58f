//! Medians and quantiles.

use crate::BenchResult;

/// The middle value; the mean of the two in the middle if their number is even.
///
/// Fails if there is no value.
pub fn median(values: &[f64]) -> BenchResult<f64> {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle).copied().ok_or("nothing was measured before it was stopped")?;
    if sorted.len() % 2 == 1 {
        return Ok(upper);
    }
    let lower = sorted.get(middle - 1).copied().unwrap_or(upper);
    Ok((lower + upper) / 2.0)
}

/// The smallest value that at least this share (0 to 1) of the values does not exceed.
///
/// Fails if there is no value.
pub fn quantile(values: &[f64], share: f64) -> BenchResult<f64> {
    let sorted = sorted(values);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.clamp(1, sorted.len().max(1)) - 1)
        .copied()
        .ok_or_else(|| "nothing was measured before it was stopped".into())
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_value() {
        assert_eq!(median(&[9.0, 1.0, 5.0]).unwrap(), 5.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]).unwrap(), 2.5);
        assert!(median(&[]).is_err());
    }

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(quantile(&values, 0.5).unwrap(), 50.0);
        assert_eq!(quantile(&values, 0.99).unwrap(), 99.0);
        assert_eq!(quantile(&values, 1.0).unwrap(), 100.0);
        assert_eq!(quantile(&[7.0], 0.01).unwrap(), 7.0);
        assert!(quantile(&[], 0.5).is_err());
    }
}
