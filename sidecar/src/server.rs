//! The server: listens, lets requests in, and ends in good order.

use crate::auth::Auth;
use crate::budget::Budget;
use crate::coalesce::Line;
use crate::config::{Config, LogFormat};
use crate::database::Database;
use crate::depths::Depths;
use crate::maintenance::Maintenance;
use crate::metrics::{Metrics, sampler};
use crate::peer::{Left, Wire};
use crate::polls::Polls;
use crate::replays;
use crate::routes;
use crate::state::App;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// What a connection reads and writes at once; a request's head that is much longer is refused.
const BUFFER: usize = 64 << 10;
/// Time that a connection which has not asked anything yet has to do so when the server ends.
const FIRST_WORD: Duration = Duration::from_millis(500);

/// Runs the server until it is told to end (SIGTERM, SIGINT).
///
/// # Errors
/// A sentence, when it cannot start.
pub fn run(config: Config) -> Result<(), String> {
    log(&config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| format!("cannot start the runtime: {e}"))?;
    let ended = runtime.block_on(serve(config));
    // What did not finish within the drain time is cut off.
    runtime.shutdown_timeout(Duration::from_millis(200));
    ended
}

fn log(config: &Config) -> Result<(), String> {
    let filter = log_filter(&config.log)?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let set = match config.log_format {
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
        LogFormat::Text => lines.try_init(),
    };
    set.map_err(|e| e.to_string())
}

/// What is logged: a level, or a level for a part of the program.
fn log_filter(text: &str) -> Result<EnvFilter, String> {
    // A word alone would be taken for a part of the program, of which everything is logged, and nothing of the rest.
    let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
    let words = || text.split(',').map(str::trim).filter(|word| !word.is_empty());
    let wrong = words().find(|word| !word.contains(['=', '[']) && !is_level(word));
    match (wrong, EnvFilter::try_new(text)) {
        (None, Ok(filter)) => Ok(filter),
        (Some(word), _) => Err(format!("QUEEN_LOG: {word} is not a level: {LEVELS}")),
        (None, Err(_)) => Err(format!("QUEEN_LOG cannot be read: {LEVELS}")),
    }
}

const LEVELS: &str = "the levels are error, warn, info, debug, trace and off; one for a part of the program is \
                      queen_sidecar=debug";

/// The parts, put together.
///
/// # Errors
/// A sentence about the setting that cannot work.
pub fn app(config: Config) -> Result<Arc<App>, String> {
    config.check()?;
    let database = Database::new(&config)?;
    let metrics = Arc::new(Metrics::default());
    let (pushes, acks) = (usize::from(config.pushes_in_flight), usize::from(config.acks_in_flight));
    // Of each line, this many calls that wait for something in the database do not hold up the others.
    let slow = usize::from(config.pool_size) / 4;
    // Pops leave connections for pushes, acks and a look.
    let pops = usize::from(config.pool_size).saturating_sub(pushes + acks + 1);
    let budget = |bytes: u64| Budget::new(usize::try_from(bytes).unwrap_or(usize::MAX));
    let answers = database.answers().clone();
    let polls = Polls::new(database.clone(), metrics.clone(), answers.clone(), pops);
    tokio::spawn(database.clone().greet());
    tokio::spawn(sampler::keep(metrics.clone(), database.clone(), polls.clone()));
    Ok(Arc::new(App {
        pushes: Line::new(database.clone(), metrics.clone(), pushes, slow),
        acks: Line::new(database.clone(), metrics.clone(), acks, slow),
        polls,
        answers,
        uploads: budget(config.request_budget_bytes),
        auth: Auth::new(&config.auth)?,
        maintenance: Maintenance::new(&config.buffer_dir, database.clone()),
        depths: Depths::new(database.clone()),
        metrics,
        database,
        started: Instant::now(),
        config,
    }))
}

async fn serve(config: Config) -> Result<(), String> {
    let address = SocketAddr::new(config.bind, config.port);
    let listener = TcpListener::bind(address).await.map_err(|e| cannot_listen(address, &e))?;
    let local = listener.local_addr().map_err(|e| e.to_string())?;
    let (patience, drain) =
        (Duration::from_secs(config.client_timeout_seconds), Duration::from_secs(config.drain_seconds));
    let places = Arc::new(Semaphore::new(connections_possible(&config)));
    let app = app(config)?;
    if app.config.run_replays {
        tokio::spawn(replays::keep(app.clone()));
    }
    let router = routes::router(app.clone());
    let connections = GracefulShutdown::new();
    let closing = watch::Sender::new(false);
    let mut end = std::pin::pin!(told_to_end());
    tracing::info!(address = %local, version = env!("CARGO_PKG_VERSION"), "listening");
    loop {
        let stream = tokio::select! {
            stream = accept(&listener, &places) => stream,
            () = &mut end => break,
        };
        let Some((stream, place)) = stream else { continue };
        prepare(&stream, patience);
        let wire = Wire::new(stream);
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(patience).max_buf_size(BUFFER);
        let requests = TowerToHyperService::new(router.clone());
        let asked = Arc::new(AtomicBool::new(false));
        let service = {
            let (asked, peer) = (asked.clone(), wire.peer());
            service_fn(move |mut request: Request<Incoming>| {
                asked.store(true, SeqCst);
                request.extensions_mut().insert(peer.clone());
                let answer = requests.call(request);
                async {
                    match answer.await {
                        Ok(answer) if answer.extensions().get::<Left>().is_some() => Err(Left),
                        Ok(answer) => Ok(answer),
                        Err(never) => match never {},
                    }
                }
            })
        };
        let connection = connections.watch(http.serve_connection(TokioIo::new(wire), service));
        let mut closing = closing.subscribe();
        tokio::spawn(async move {
            let silent = async {
                _ = closing.wait_for(|closing| *closing).await;
                tokio::time::sleep(FIRST_WORD).await;
                if asked.load(SeqCst) {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                // A connection that breaks is the client's affair.
                _ = connection => {}
                () = silent => {}
            }
            drop(place);
        });
    }
    drop(listener);
    tracing::info!("ending: no new connections, waiting polls are answered");
    app.polls.close();
    closing.send_replace(true);
    if tokio::time::timeout(drain, connections.shutdown()).await.is_err() {
        tracing::warn!(seconds = drain.as_secs(), "some requests did not finish within the drain time");
    }
    tracing::info!("ended");
    Ok(())
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::AddrInUse => format!("cannot listen on {address}: Address already in use; PORT=… chooses another"),
        _ => format!("cannot listen on {address}: {error}"),
    }
}

/// How many clients there is room for: what is allowed, unless the system allows less files.
fn connections_possible(config: &Config) -> usize {
    // Beside the clients: the database's connections, the buffer's files, and what a process has anyway.
    let others = usize::from(config.pool_size) + 64;
    let wanted = config.max_connections + others;
    let files =
        rlimit::increase_nofile_limit(wanted as u64).map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    if files < wanted {
        tracing::warn!(
            files,
            wanted,
            "the limit of open files allows fewer client connections than QUEEN_MAX_CONNECTIONS"
        );
    }
    files.saturating_sub(others).clamp(1, config.max_connections.max(1))
}

/// The next client, once there is a place for it.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(error) => {
            // Out of file descriptors, perhaps: do not spin.
            tracing::warn!(%error, "cannot accept a connection");
            tokio::time::sleep(Duration::from_millis(100)).await;
            None
        }
    }
}

/// A client that neither reads nor answers is given up by the kernel.
fn prepare(stream: &TcpStream, patience: Duration) {
    _ = stream.set_nodelay(true);
    let socket = socket2::SockRef::from(stream);
    _ = socket.set_tcp_user_timeout(Some(patience));
    _ = socket.set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(patience).with_interval(patience / 4));
}

async fn told_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
        (Ok(mut terminate), Ok(mut interrupt)) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        }
        _ => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for good in ["info", "WARN", "off", "queen_sidecar=debug,warn", "info,hyper=error", "queen_sidecar=trace"] {
            assert!(log_filter(good).is_ok(), "{good}");
        }
        for bad in ["loud", "verbose", "info,loud", "queen_sidecar=loud"] {
            let told = log_filter(bad).unwrap_err();
            assert!(told.contains("error, warn, info, debug, trace"), "{bad}: {told}");
        }
    }
}
