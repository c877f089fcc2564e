//! Where the database is: reading the setting, and telling it without the password.

use std::error::Error;
use tokio_postgres::config::{Config, Host};

/// Options of other clients, which may be told: anything else could be a part of the password.
const ELSEWHERE: [&str; 9] = [
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslpassword",
    "sslcrl",
    "gssencmode",
    "passfile",
    "service",
    "client_encoding",
];

/// Reads a connection string.
///
/// # Errors
/// A sentence that says what is wrong, and nothing of user and password.
pub fn read(url: &str) -> Result<Config, String> {
    let is_url = url.contains("://");
    let hint = if is_url {
        "; in a URL, what is special in user and password is percent-encoded: @ is %40, : is %3A, / is %2F, % is %25"
    } else {
        "; a value with blanks is put in '…', in which ' is \\' and \\ is \\\\"
    };
    let refuse = |what: &str| Err(format!("DATABASE_URL is not a PostgreSQL connection string: {what}"));
    if is_url && !url.starts_with("postgresql://") && !url.starts_with("postgres://") {
        return refuse("it has to begin with postgresql://, or be host=… user=… dbname=…");
    }
    // The driver would take what follows the first for the host, and the log would tell that.
    if is_url && url.matches('@').count() > 1 {
        return refuse(&format!("it has more than one @{hint}"));
    }
    url.parse::<Config>().or_else(|error| match reason(&error) {
        (what, Spelled::Wrong) => refuse(&format!("{what}{hint}")),
        (what, Spelled::Right) => refuse(&what),
    })
}

/// Whether the string may be wrong because something in it is not as it is to be written.
enum Spelled {
    Right,
    Wrong,
}

fn reason(error: &tokio_postgres::Error) -> (String, Spelled) {
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    let quoted = |prefix: &str| cause.strip_prefix(prefix)?.strip_suffix('`').map(str::to_owned);
    if let Some(option) = quoted("invalid value for option `") {
        return match option.as_str() {
            "sslmode" => ("sslmode is prefer, require or disable".to_owned(), Spelled::Right),
            option => (format!("invalid value for {option}"), Spelled::Wrong),
        };
    }
    match quoted("unknown option `") {
        Some(option) if ELSEWHERE.contains(&option.as_str()) => {
            (format!("there is no option {option} here"), Spelled::Right)
        }
        Some(_) => ("an option is unknown".to_owned(), Spelled::Wrong),
        None => ("it cannot be read".to_owned(), Spelled::Wrong),
    }
}

/// `host:port/database`, for the log.
pub fn shown(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |n: usize| ports.get(n).or(ports.first()).copied().unwrap_or(5432);
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .enumerate()
        .map(|(n, host)| match host {
            Host::Tcp(name) => format!("{name}:{}", port(n)),
            Host::Unix(folder) => format!("{}:{}", folder.display(), port(n)),
        })
        .collect();
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("{}/{database}", hosts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_and_nothing_of_the_password() {
        for (url, told) in [
            ("postgresql://u:secret@h:port/d", "invalid value for port"),
            ("postgresql://u:secret@h/d?sslmode=verify-full", "sslmode is prefer, require or disable"),
            ("postgresql://u:secret@h/d?sslrootcert=x", "there is no option sslrootcert here"),
            ("postgresql://u:secret@h/d?secret=x", "an option is unknown"),
            ("postgresql://u:a@secret@h/d", "more than one @"),
            ("postgresql://u:%secret@h/d", "cannot be read"),
            ("mysql://u:secret@h/d", "has to begin with postgresql://"),
            ("host=h password=a secret", "cannot be read"),
            ("secret", "cannot be read"),
        ] {
            match read(url) {
                Ok(config) => assert!(!shown(&config).contains("secret"), "{url}"),
                Err(error) => assert!(error.contains(told) && !error.contains("secret"), "{url}: {error}"),
            }
        }
    }

    #[test]
    fn it_is_shown_without_user_and_password() {
        for (url, told) in [
            ("postgresql://u:p%40ss@db:5433/shop", "db:5433/shop"),
            ("host=a,b port=1,2 user=u password=p dbname=d", "a:1,b:2/d"),
            ("host=/run/postgresql user=u", "/run/postgresql:5432/u"),
        ] {
            assert_eq!(shown(&read(url).unwrap()), told);
        }
    }
}
