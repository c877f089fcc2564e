//! Quantiles of the newest durations.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Durations that are remembered.
const KEPT: usize = 1024;

/// The newest durations of something.
#[derive(Default, Debug)]
pub struct Reservoir(Mutex<Ring>);

#[derive(Default, Debug)]
struct Ring {
    micros: Vec<u32>,
    next: usize,
}

impl Reservoir {
    /// Adds one.
    pub fn add(&self, duration: Duration) {
        let micros = u32::try_from(duration.as_micros()).unwrap_or(u32::MAX);
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Ring { micros: kept, next } = &mut *ring;
        if kept.len() < KEPT {
            kept.push(micros);
        } else {
            kept[*next] = micros;
        }
        *next = (*next + 1) % KEPT;
    }

    /// The quantiles in milliseconds; None before the first duration.
    pub fn milliseconds<const N: usize>(&self, quantiles: [f64; N]) -> Option<[f64; N]> {
        let mut sorted = self.0.lock().unwrap_or_else(PoisonError::into_inner).micros.clone();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        Some(quantiles.map(|q| f64::from(sorted[(q * last as f64).round() as usize]) / 1000.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_newest() {
        let reservoir = Reservoir::default();
        assert_eq!(reservoir.milliseconds([0.5]), None);
        for ms in 1..=101 {
            reservoir.add(Duration::from_millis(ms));
        }
        assert_eq!(reservoir.milliseconds([0.0, 0.5, 0.99, 1.0]), Some([1.0, 51.0, 100.0, 101.0]));
        for _ in 0..KEPT {
            reservoir.add(Duration::from_millis(7));
        }
        assert_eq!(reservoir.milliseconds([0.0, 1.0]), Some([7.0, 7.0]));
    }
}
