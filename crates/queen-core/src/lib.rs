//! Pure rules of the broker.
