//! Costs as ratios of two measurements of one run, so that they hold on any machine.
