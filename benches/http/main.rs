//! Loads the HTTP server, and says what came of it: `http-load push|pgmq|latency|polls --help` (see README.md here).
//!
//! The client speaks just enough HTTP/1.1 to keep its own cost small: it shares the machine with what it measures.

mod client;
mod cpu;
mod latency;
mod polls;
mod push;

use std::collections::HashMap;

/// `--name value` pairs.
pub struct Options(HashMap<String, String>);

impl Options {
    /// The value of an option, or what it is by default.
    pub fn get<T: std::str::FromStr>(&self, name: &str, default: T) -> T {
        match self.0.get(name).map(|v| v.parse()) {
            None => default,
            Some(Ok(value)) => value,
            Some(Err(_)) => fail(&format!("--{name} is not what it should be")),
        }
    }

    /// An option that has to be there.
    pub fn need(&self, name: &str) -> String {
        self.0.get(name).cloned().unwrap_or_else(|| fail(&format!("--{name} is missing")))
    }
}

fn fail(problem: &str) -> ! {
    eprintln!("http-load: {problem}");
    std::process::exit(2)
}

fn main() {
    let mut words = std::env::args().skip(1);
    let Some(what) = words.next() else { fail("push, pgmq, latency or polls?") };
    let mut options = HashMap::new();
    while let Some(name) = words.next() {
        let Some(value) = words.next() else { fail(&format!("{name} has no value")) };
        options.insert(name.trim_start_matches('-').to_owned(), value);
    }
    let options = Options(options);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let Ok(runtime) = runtime else { fail("no runtime") };
    runtime.block_on(async {
        match what.as_str() {
            "push" => push::http(&options).await,
            "pgmq" => push::pgmq(&options).await,
            "latency" => latency::run(&options).await,
            "polls" => polls::run(&options).await,
            other => fail(&format!("{other}: no such measurement")),
        }
    });
}

/// A percentile of sorted values.
pub fn percentile(sorted: &[f64], p: f64) -> f64 {
    let at = (sorted.len() as f64 * p / 100.0) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// `p50 p95 p99` in milliseconds.
pub fn summary(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let [a, b, c] = [50.0, 95.0, 99.0].map(|p| percentile(&values, p));
    format!("n={} p50={a:.2} ms p95={b:.2} ms p99={c:.2} ms", values.len())
}
