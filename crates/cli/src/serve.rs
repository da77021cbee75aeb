//! The texts at the start of `weir serve URL`: how to connect, and whether the server answers. `boot`
//! starts the pooler itself.

use std::thread;

use config::{AccessPolicy, Config};
use load::probe::Answer;
use proxy::{TlsContexts, log, warning};

use crate::{check_config::connect, explain};

/// Prints how to connect, and finds out meanwhile whether the server answers.
pub(crate) fn introduce(config: Config, quiet: bool) {
    if !quiet {
        // Without standard output, the log has all that matters.
        let _ = explain::print(&introduction(&config));
    }
    // Nothing waits for this: the server may be slow, and the pooler may end before.
    thread::spawn(move || tell_of_server(&config));
}

fn introduction(config: &Config) -> String {
    format!(
        "Weir is up. Connect to it as to PostgreSQL:\n\n    {}\n\n\
         The console (try SHOW POOLS or HELP):\n\n    {}\n\n",
        psql(config, config.proof_database()),
        psql(config, "pgbouncer")
    )
}

/// Returns a line for the shell.
fn psql(config: &Config, database: &str) -> String {
    let global = &config.global;
    let host = match global.listen_addr.first().map(String::as_str) {
        Some("*" | "0.0.0.0" | "::") => "127.0.0.1",
        Some(address) => address,
        None => &global.unix_socket_dir,
    };
    let user = match &config.access {
        AccessPolicy::UrlUser { user, .. } => format!(" -U {}", word(user)),
        AccessPolicy::Configured | AccessPolicy::ProvenByServer => String::new(),
    };
    format!("psql -h {} -p {}{user} -d {}", word(host), global.listen_port, word(database))
}

/// Quotes a text for the shell, if it needs quotes.
fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Logs in to each host of the server once. Without a user in the URL, it is enough that the server
/// asks for a password.
fn tell_of_server(config: &Config) {
    let Some(database) = config.database(config.proof_database()) else { return };
    // If it cannot be loaded, the start has failed for that.
    let tls = TlsContexts::load(config).unwrap_or_default();
    for (host, port) in config.addresses(&database) {
        let host = host.to_string();
        match connect::dial(config, &database, (&host, port), &tls) {
            Ok((user, Answer::Rows(address, _))) => {
                log!("server {host}, port {port} answers: logged in as {user} at {address}");
            }
            Ok((_, Answer::WantsPassword)) => {
                log!("server {host}, port {port} answers, and asks clients for their passwords");
            }
            Err(reason) => {
                let reason = reason.replace('\n', "; ");
                warning!(
                    "server {host}, port {port} cannot be used: {reason}; Weir tries again when a \
                     client connects"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn introduced(url: &str) -> String {
        introduction(&Config::from_url(url).unwrap())
    }

    #[test]
    fn the_lines_fit_the_url() {
        let text = introduced("postgresql://app:secret@db.example.com/shop?listen_port=7000");
        assert!(text.contains("    psql -h 127.0.0.1 -p 7000 -U app -d shop\n"), "{text}");
        assert!(text.contains("    psql -h 127.0.0.1 -p 7000 -U app -d pgbouncer\n"), "{text}");
        assert!(!text.contains("secret"), "{text}");
        let text = introduced("postgresql://db.example.com?listen_addr=*");
        assert!(text.contains("    psql -h 127.0.0.1 -p 6432 -d postgres\n"), "{text}");
        let text = introduced("postgresql://a%20b:c@h/it's?listen_addr=&unix_socket_dir=/run/weir");
        assert!(text.contains(r"    psql -h /run/weir -p 6432 -U 'a b' -d 'it'\''s'"), "{text}");
    }
}
