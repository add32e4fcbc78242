//! Where a run has settled, and how long it took: rates second by second, from which the warm-up is cut.

/// Seconds that are averaged before the rule is applied: single ones are too noisy for it.
const BATCH: usize = 5;

/// The first second of the steady part, by the marginal standard error rule on batches of five (MSER-5: White 1997): the cut after which the
/// squared deviation from the mean, by the square of what is left, is least. `None` where the best cut lies in the second half: then
/// the run was too short to settle, and no figure of it is one of the steady state.
pub fn steady_from(rates: &[f64]) -> Option<usize> {
    let batches: Vec<f64> = rates.chunks_exact(BATCH).map(|batch| batch.iter().sum::<f64>() / BATCH as f64).collect();
    let cut = (0..batches.len().saturating_sub(1)).min_by(|a, b| error_after(&batches[*a..]).total_cmp(&error_after(&batches[*b..])))?;
    (cut * 2 <= batches.len()).then_some(cut * BATCH)
}

fn error_after(batches: &[f64]) -> f64 {
    let count = batches.len() as f64;
    let mean = batches.iter().sum::<f64>() / count;
    batches.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (count * count)
}

/// The first second from which on the mean of `over` seconds is at least `rate`; `None` if that never comes.
pub fn reached(rates: &[f64], rate: f64, over: usize) -> Option<usize> {
    rates.windows(over.max(1)).position(|window| window.iter().sum::<f64>() / window.len() as f64 >= rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noisy(second: usize, rate: f64) -> f64 {
        rate * (1.0 + 0.1 * ((second * 7919) as f64).sin())
    }

    #[test]
    fn the_ramp_is_cut_and_the_steady_part_kept() {
        let ramp = |length: usize| -> Vec<f64> {
            (0..200)
                .map(|second| noisy(second, if second < length { 100.0 + 900.0 * second as f64 / length as f64 } else { 1000.0 }))
                .collect()
        };
        for length in [20, 50, 80] {
            let from = steady_from(&ramp(length)).expect("it settles");
            assert!((length.saturating_sub(15)..=length + 20).contains(&from), "a ramp of {length} s is cut at {from}");
        }
        assert!(steady_from(&ramp(0)).expect("it is steady") <= 30);
    }

    #[test]
    fn a_run_that_never_settles_has_no_steady_part() {
        let grows: Vec<f64> = (0..200).map(|second| noisy(second, 10.0 + second as f64)).collect();
        assert_eq!(steady_from(&grows), None);
        assert_eq!(steady_from(&[]), None);
        assert_eq!(steady_from(&[1.0; 9]), None);
    }

    #[test]
    fn the_time_to_a_rate_is_that_of_its_mean() {
        let rates = [1.0, 1.0, 9.0, 1.0, 1.0, 5.0, 5.0, 5.0];
        assert_eq!(reached(&rates, 5.0, 3), Some(5));
        assert_eq!(reached(&rates, 5.0, 1), Some(2));
        assert_eq!(reached(&rates, 6.0, 3), None);
        assert_eq!(reached(&rates, 1.0, 0), Some(0));
    }
}
