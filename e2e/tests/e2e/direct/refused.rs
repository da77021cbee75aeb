//! PostgreSQL refuses the logins of a direct pool that has no server left.

use std::time::{Duration, Instant};

use testkit::{RawClient, Role, frontend};

use super::{Direct, PATIENCE, eventually};
use crate::support;

/// A client is told at once if it is told within this time. `query_wait_timeout` is much longer.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A pool of two servers whose clients are at rest.
fn start() -> (Direct, Vec<RawClient>) {
    let direct = Direct::start_with(2, |setup| setup.set("server_login_retry", 1));
    let mut clients = direct.clients(3);
    clients[2].rows("SET work_mem = '7MB'");
    (direct, clients)
}

impl Direct {
    fn end_backends(&self) {
        for backend in self.backends() {
            self.postgres.sql("postgres", &format!("SELECT pg_terminate_backend({backend})"));
        }
        eventually("no server is left", PATIENCE, || self.backends().is_empty().then_some(()));
    }

    /// Returns the error of a new client's login or first request, if there is one.
    fn error_of_newcomer(&self) -> Option<String> {
        let login = self.pooler.login(Role::APP, &self.database, Role::APP_PASSWORD);
        login.map_or_else(|error| Some(error.code().to_owned()), |mut client| error_of(&mut client))
    }
}

/// Sends a request. Returns the error's code if there is one.
fn error_of(client: &mut RawClient) -> Option<String> {
    client.send(frontend::query("SELECT 1"));
    let told = client.read_until(|message| matches!(message.tag, b'Z' | b'E'));
    told.last().and_then(|message| message.error()).map(|error| error.code().to_owned())
}

/// Its clients would wait until `query_wait_timeout` otherwise, and so would new ones.
#[test]
fn the_clients_of_a_dropped_database_are_refused_at_once_core() {
    if !support::only_weir() {
        return;
    }
    let (direct, mut clients) = start();
    direct.postgres.sql("postgres", &format!("DROP DATABASE \"{}\" WITH (FORCE)", direct.database));
    let began = Instant::now();
    assert_eq!(error_of(&mut clients[0]).as_deref(), Some("3D000"));
    assert!(direct.error_of_newcomer().is_some());
    assert!(error_of(&mut clients[1]).is_some());
    assert!(began.elapsed() < AT_ONCE, "it took {:?}", began.elapsed());
}

#[test]
fn refused_logins_refuse_the_clients_until_postgresql_lets_the_pool_in() {
    if !support::only_weir() {
        return;
    }
    let (direct, mut clients) = start();
    let database = format!("ALTER DATABASE \"{}\" ALLOW_CONNECTIONS", direct.database);
    let ways = [
        (format!("{database} false"), format!("{database} true"), "55000"),
        ("ALTER ROLE app NOLOGIN".to_owned(), "ALTER ROLE app LOGIN".to_owned(), "28000"),
        (
            "ALTER ROLE app CONNECTION LIMIT 0".to_owned(),
            "ALTER ROLE app CONNECTION LIMIT -1".to_owned(),
            "53300",
        ),
    ];
    for (refuse, permit, code) in ways {
        direct.postgres.sql("postgres", &refuse);
        direct.end_backends();
        let began = Instant::now();
        assert_eq!(error_of(&mut clients[0]).as_deref(), Some(code), "{refuse}");
        assert!(direct.error_of_newcomer().is_some(), "{refuse}");
        assert!(began.elapsed() < AT_ONCE, "{refuse}: it took {:?}", began.elapsed());
        direct.postgres.sql("postgres", &permit);
        // A client that has sent nothing meanwhile has noticed nothing.
        eventually("a login succeeds", PATIENCE, || {
            direct.error_of_newcomer().is_none().then_some(())
        });
        clients[0] = direct.client();
        assert_eq!(clients[2].value("SHOW work_mem"), "7MB");
        assert_eq!(direct.column("data_path"), "direct");
    }
}
