//! Open files: how many a configuration may need, and how many clients their limit allows.

use config::{Config, Source};

/// If fewer clients than this had room in direct pools, all are counted as proxied: a direct pool that
/// gets no numbers is proxied, too.
const DIRECT_MIN: u64 = 100;

/// Returns the open files that this configuration may need: if it has direct pools, with all clients in
/// them.
pub(crate) fn expected(config: &Config) -> u64 {
    let clients = u64::from(config.global.max_client_conn);
    let others = others(config);
    match has_lobbies(config) {
        // The numbers of clients in direct pools are reserved, above those of all other files.
        true => clients + room::FIRST_NUMBER.max(others),
        false => clients + others,
    }
}

/// Lets no more clients in than this limit of open files allows, if that is too low. Returns what the
/// log must say then. A `pgbouncer.ini` keeps its value, as with PgBouncer.
pub(crate) fn bound_clients(config: &mut Config, limit: u64) -> Option<String> {
    let expected = expected(config);
    if limit >= expected {
        return None;
    }
    let wanted = config.global.max_client_conn;
    let remedy = format!(
        "Raise the limit to {expected} (ulimit -n, LimitNOFILE), or lower max_client_conn or the pool \
         sizes"
    );
    let allowed = if config.source == Source::Ini { wanted } else { allowed(config, limit) };
    if allowed == wanted {
        return Some(format!(
            "the limit of open files is {limit}, too low for max_client_conn = {wanted} and the pool \
             sizes. {remedy}"
        ));
    }
    config.global.max_client_conn = allowed;
    Some(format!(
        "the limit of open files is {limit}, so {allowed} clients are let in at most, not {wanted} \
         (max_client_conn). {remedy}"
    ))
}

/// Returns the clients that a limit of open files allows, at least one.
fn allowed(config: &Config, limit: u64) -> u32 {
    let (others, wanted) = (others(config), config.global.max_client_conn);
    let direct = limit.saturating_sub(others.max(room::FIRST_NUMBER));
    let clients = match has_lobbies(config) && direct >= DIRECT_MIN.min(wanted.into()) {
        true => direct,
        // Few pools open all their servers, so these leave half of the files to clients.
        false => limit.saturating_sub(others).max(limit / 2),
    };
    u32::try_from(clients.max(1)).unwrap_or(u32::MAX).min(wanted)
}

fn has_lobbies(config: &Config) -> bool {
    !config.global.direct_socket.is_empty()
}

/// Servers, listening sockets, epolls, eventfds and the descriptors of libraries.
fn others(config: &Config) -> u64 {
    let databases = config.databases.values().chain(&config.fallback);
    let servers: u64 = databases
        .map(|database| u64::from(database.pool_size.unwrap_or(config.global.default_pool_size)))
        .sum();
    servers + 16 + 2 * u64::from(super::pooler::worker_count(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toml(more: &str) -> Config {
        Config::parse_toml(&format!("workers = 2\n{more}"), "weir.toml").unwrap()
    }

    #[test]
    fn the_limit_of_open_files_bounds_the_clients() {
        for (more, needed, limit, clients) in [
            ("", 10_020, 1_020, 1_000),
            ("max_client_conn = 50\n", 70, 60, 40),
            ("direct_socket = \"/run/direct\"\n", 14_096, 10_096, 6_000),
            ("direct_socket = \"/run/direct\"\n", 14_096, 5_096, 1_000),
            ("direct_socket = \"/run/direct\"\n", 14_096, 4_096, 4_076),
            ("default_pool_size = 2000\n[databases.a]\nhost = \"h\"\n", 12_020, 1_024, 512),
            ("", 10_020, 3, 1),
        ] {
            let mut config = toml(more);
            let wanted = config.global.max_client_conn;
            assert_eq!(expected(&config), needed, "{more}");
            assert_eq!(bound_clients(&mut config, needed), None);
            let told = bound_clients(&mut config, limit).unwrap();
            assert_eq!(config.global.max_client_conn, clients, "{told}");
            let expected =
                format!("{limit}, so {clients} clients are let in at most, not {wanted} ");
            assert!(told.contains(&expected) && told.contains(&needed.to_string()), "{told}");
        }
    }

    #[test]
    fn pools_that_may_use_many_files_keep_no_client_out() {
        let mut config =
            toml("max_client_conn = 400\ndefault_pool_size = 2000\n[databases.a]\nhost = \"h\"\n");
        assert!(bound_clients(&mut config, 1_000).unwrap().contains("max_client_conn = 400 and"));
        assert_eq!(config.global.max_client_conn, 400);
    }

    #[test]
    fn a_pgbouncer_ini_keeps_its_value() {
        let text = "[pgbouncer]\nmax_client_conn = 5000\n";
        let mut config = Config::parse_ini(text, "f", &|_| unreachable!()).unwrap();
        assert!(bound_clients(&mut config, 1_000).unwrap().contains("max_client_conn = 5000"));
        assert_eq!(config.global.max_client_conn, 5_000);
    }
}
