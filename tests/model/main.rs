//! Random calls against a model of the broker in memory.
