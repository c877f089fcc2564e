//! Random calls against a model of the broker in memory.
//!
//! A history is made from its seed alone. `QUEEN_MODEL_SEEDS=1000` runs more of them than usual,
//! `QUEEN_MODEL_SEED=17` one, with every call printed.

mod history;
mod random;
mod reference;

use history::run;

/// Seeds of histories that once went wrong: what they found is beside each.
const REGRESSIONS: &[u64] = &[
    // A pop passed over hints that its session had used up in a transaction that was rolled back (when they were older
    // than a tenth of a second, so not at every run: races/sweep.rs has the story by itself).
    93,
];

/// Runs these histories one after the other, in one database of the shared cluster.
async fn all(seeds: impl IntoIterator<Item = u64>) {
    let cluster = queen_tests::shared_cluster();
    let db = cluster.fresh_database().await;
    for seed in seeds {
        run(cluster, &db, seed).await;
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn random_histories_go_as_in_the_model() {
    match number("QUEEN_MODEL_SEED") {
        Some(seed) => all([seed]).await,
        None => all(0..number("QUEEN_MODEL_SEEDS").unwrap_or(120)).await,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn histories_that_once_went_wrong_go_as_in_the_model() {
    all(REGRESSIONS.iter().copied()).await;
}
