//! Two sessions against each other: every pair of verbs, permuted, observed through locks and not through sleeps.
