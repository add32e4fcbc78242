//! How long a run took to reach a rate, from its rates second by second.

/// The first second from which on the mean of `over` seconds is at least `rate`; `None` if that never comes.
pub fn reached(rates: &[f64], rate: f64, over: usize) -> Option<usize> {
    rates.windows(over.max(1)).position(|window| window.iter().sum::<f64>() / window.len() as f64 >= rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_a_rate_is_that_of_its_mean() {
        let rates = [1.0, 1.0, 9.0, 1.0, 1.0, 5.0, 5.0, 5.0];
        assert_eq!(reached(&rates, 5.0, 3), Some(5));
        assert_eq!(reached(&rates, 5.0, 1), Some(2));
        assert_eq!(reached(&rates, 6.0, 3), None);
        assert_eq!(reached(&rates, 1.0, 0), Some(0));
    }
}
