//! The reasons for which a pool is proxied.

use config::{DataPath, Proxied};

use crate::ini;

/// Returns the verdict about the database `db` with these lines of the sections.
fn verdict(global: &str, database: &str, user: &str) -> Option<Proxied> {
    let config = ini(&format!(
        "[pgbouncer]\n{global}\n[databases]\ndb = {database}\n[users]\nann = {user}\n\
         [clusters]\nc = nodes='a=127.0.0.1, b=127.0.0.1:5433'\n"
    ));
    config.proxied(&config.database("db").expect("it is configured"), "ann")
}

const ON: &str = "pool_mode = transaction\ndirect_socket = /run/direct\ndata_path = direct";

#[test]
fn a_pool_on_this_machine_can_be_direct() {
    for host in ["", "host=/run/postgresql", "host=127.0.0.1", "host=localhost", "host=::1"] {
        assert_eq!(verdict(ON, host, "pool_size=3"), None, "{host}");
    }
    let auto = ON.replace("transaction", "auto");
    assert_eq!(verdict(&auto, "", ""), None);
    let limited = format!("{ON}\nquery_timeout = 5\ntransaction_timeout = 5");
    assert_eq!(verdict(&format!("{ON}\npin_functions = f"), "", ""), None);
    assert_eq!(verdict(&limited, "", "idle_transaction_timeout=5"), None);
}

#[test]
fn each_obstacle_has_its_reason() {
    let more = |line: &str| format!("{ON}\n{line}");
    let auto = |line: &str| more(line).replace("transaction", "auto");
    let cases = [
        ("data_path = proxy".to_owned(), "", "", Proxied::SwitchedOff),
        ("data_path = direct".to_owned(), "", "", Proxied::NoSocket),
        (ON.replace("transaction", "session"), "", "", Proxied::SessionMode),
        (ON.replace("transaction", "statement"), "", "", Proxied::StatementMode),
        (ON.to_owned(), "host=db.example", "", Proxied::Remote),
        (ON.to_owned(), "host=192.0.2.1", "", Proxied::Remote),
        (ON.to_owned(), "host=127.0.0.1,/run", "", Proxied::SeveralHosts),
        (ON.to_owned(), "cluster=c", "", Proxied::Cluster),
        (ON.to_owned(), "connect_query='SELECT 1'", "", Proxied::ConnectQuery),
        (more("client_tls_sslmode = allow"), "", "", Proxied::ClientTls),
        (auto("pin_functions = pg_backend_pid"), "", "", Proxied::PinFunctions),
        (more("server_max_uses = 100"), "", "", Proxied::MaxUses),
        (ON.to_owned(), "server_max_uses=1", "", Proxied::MaxUses),
        (ON.to_owned(), "data_path=proxy", "", Proxied::SwitchedOff),
        (ON.to_owned(), "", "data_path=proxy", Proxied::SwitchedOff),
    ];
    for (global, database, user, why) in cases {
        assert_eq!(verdict(&global, database, user), Some(why), "{global} {database} {user}");
    }
}

#[test]
fn the_user_goes_before_the_database() {
    let config =
        ini("[pgbouncer]\n[databases]\ndb = data_path=auto\n[users]\nann = data_path=direct\n");
    let database = config.database("db").unwrap();
    assert_eq!(config.data_path(&database, "ann"), DataPath::Direct);
    assert_eq!(config.data_path(&database, "bob"), DataPath::Auto);
}
