//! `weir bench`: it does the same as pgbench, with PostgreSQL and through Weir, with any number of
//! clients.

mod logins;
mod scripts;

use std::process::{Command, Output};
use std::str::FromStr;

use crate::support::{self, only_weir, run, run_any};
use testkit::{Authority, Pooler, Postgres, Role, pooler_binary};

/// Returns `weir bench` with the environment to connect to `port` of 127.0.0.1 as role `app`.
fn bench(port: u16, database: &str, arguments: &[&str]) -> Command {
    let own = Postgres::client_program("psql", port, database);
    let mut command = Command::new(pooler_binary());
    for (name, value) in own.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command.arg("bench").args(arguments);
    command
}

fn through(pooler: &Pooler, database: &str, arguments: &[&str]) -> Output {
    run_any(&mut bench(pooler.port(), database, arguments))
}

fn directly(database: &str, arguments: &[&str]) -> Output {
    run_any(&mut bench(Postgres::shared().port(), database, arguments))
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn initialise(database: &str) {
    run(&mut bench(Postgres::shared().port(), database, &["-i", "-q"]));
}

#[track_caller]
fn assert_processed(output: &Output, transactions: u32) {
    let report = stdout(output);
    assert!(output.status.success(), "{output:?}");
    assert!(report.contains(&format!("processed: {transactions}/{transactions}\n")), "{report}");
    assert!(report.contains("failed transactions: 0 (0.000%)"), "{report}");
}

/// Returns the number of transactions of a run with `-T`.
#[track_caller]
fn processed(output: &Output) -> u32 {
    figure(output, "number of transactions actually processed: ")
}

/// Returns the number in the line of the report that begins with `line`.
#[track_caller]
fn figure<T: FromStr>(output: &Output, line: &str) -> T {
    let report = stdout(output);
    let found = report.lines().find_map(|own| own.strip_prefix(line)?.split(' ').next());
    found.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{output:?}"))
}

/// Returns the definitions of the tables and statistics of their rows.
fn tables(database: &str) -> Vec<Vec<Option<String>>> {
    let postgres = Postgres::shared();
    let mut facts = postgres.sql(
        database,
        "SELECT c.relname, c.reloptions::text, a.attname, format_type(a.atttypid, a.atttypmod), \
                a.attnotnull::text \
         FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 \
         WHERE c.relname LIKE 'pgbench%' AND c.relkind IN ('r', 'i') \
         ORDER BY c.relname, a.attnum",
    );
    for (table, key) in
        [("accounts", "aid"), ("branches", "bid"), ("tellers", "tid"), ("history", "tid")]
    {
        facts.extend(postgres.sql(
            database,
            &format!(
                "SELECT count(*)::text, md5(string_agg(t::text, ';' ORDER BY {key})) \
                 FROM pgbench_{table} t"
            ),
        ));
    }
    facts
}

#[test]
fn its_tables_are_pgbenchs() {
    if !only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let (own, theirs) = (postgres.database(), postgres.database());
    let output = directly(&own, &["-i", "-s", "2"]);
    assert!(output.status.success(), "{output:?}");
    let told = stderr(&output);
    assert!(told.contains("200000 of 200000 tuples (100%) of pgbench_accounts done"), "{told}");
    run(Postgres::client_program("pgbench", postgres.port(), &theirs).args(["-i", "-s", "2"]));
    assert_eq!(tables(&own), tables(&theirs));

    // Rows that were frozen on insertion leave no work to the VACUUM after them.
    let seen = "SELECT (relallvisible = relpages AND relpages > 0)::text FROM pg_class \
                WHERE relname = 'pgbench_accounts'";
    assert_eq!(postgres.sql(&own, seen), [[Some("true".to_owned())]]);
}

/// Returns the statements that the log of a server of the test's own contains, without their
/// numbers.
fn logged(postgres: &Postgres, command: &mut Command) -> Vec<String> {
    let before = postgres.log().len();
    run(command);
    let log = postgres.log();
    let statements = log[before..].lines().filter_map(|line| {
        let at = line.find("LOG:  statement: ").or_else(|| line.find("LOG:  execute "))?;
        let (_, text) = line[at..].split_once(": ")?;
        let (_, statement) = text.trim_start().split_once(": ")?;
        let mut plain: String =
            statement.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        while plain.contains("00") {
            plain = plain.replace("00", "0");
        }
        Some(plain.replace("-0", "0"))
    });
    // pgbench asks whether the accounts are partitioned, only for its report.
    statements.filter(|statement| !statement.contains("pg_partitioned_table")).collect()
}

#[test]
fn it_sends_the_statements_that_pgbench_sends_core() {
    if !only_weir() {
        return;
    }
    let postgres = Postgres::start();
    let database = postgres.database();
    run(Postgres::client_program("pgbench", postgres.port(), &database).args(["-i", "-q"]));
    postgres.sql(&database, &format!("ALTER DATABASE {database} SET log_statement = 'all'"));
    for builtin in ["tpcb-like", "simple-update", "select-only"] {
        for protocol in ["simple", "extended", "prepared"] {
            let arguments = ["-t", "2", "-b", builtin, "-M", protocol];
            let theirs = logged(
                &postgres,
                Postgres::client_program("pgbench", postgres.port(), &database).args(arguments),
            );
            let own = logged(&postgres, &mut bench(postgres.port(), &database, &arguments));
            assert!(!own.is_empty(), "{builtin}, {protocol}");
            assert_eq!(own, theirs, "{builtin}, {protocol}");
        }
    }
}

/// pgbench blocks here: it waits for each Parse while its other clients hold all servers.
#[test]
fn many_more_clients_than_servers_make_progress_by_every_protocol() {
    if !only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 4).start();
    initialise(&database);
    for protocol in ["simple", "extended", "prepared"] {
        let arguments = ["-n", "-c", "60", "-j", "2", "-t", "3", "-M", protocol];
        assert_processed(&through(&pooler, &database, &arguments), 180);
        assert!(Postgres::shared().backends(&database).len() <= 4, "{protocol}");
    }
}

#[test]
fn a_thousand_clients_come_from_one_process() {
    if !only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("max_client_conn", 2000).start();
    initialise(&database);
    let output = through(&pooler, &database, &["-n", "-S", "-c", "1000", "-t", "2"]);
    assert_processed(&output, 2000);
}

/// The limit of open files in a shell is often too low for this many clients.
#[test]
fn the_limit_of_open_files_is_raised_or_reported() {
    if !only_weir() {
        return;
    }
    let database = Postgres::shared().database();
    initialise(&database);
    let within = |limit: &str| {
        let own = bench(Postgres::shared().port(), &database, &["-n", "-S", "-c", "40", "-t", "1"]);
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit {limit}; exec \"$@\""), "sh"]);
        command.arg(own.get_program()).args(own.get_args());
        for (name, value) in own.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        run_any(&mut command)
    };
    assert_processed(&within("-S -n 30"), 40);
    let refused = within("-n 30");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(stderr(&refused).contains("need at least 57 open files, but system limit is 30"));
}

#[test]
fn a_login_for_each_transaction_is_counted() {
    if !only_weir() {
        return;
    }
    let (pooler, database) = support::pooler("transaction");
    initialise(&database);
    let output = through(&pooler, &database, &["-n", "-S", "-C", "-c", "5", "-t", "10"]);
    assert_processed(&output, 50);
    assert!(stdout(&output).contains("average connection time = "), "{output:?}");
    assert!(stdout(&output).contains("(including reconnection times)"), "{output:?}");
}

#[test]
fn passwords_use_scram_and_tls_follows_sslmode() {
    if !only_weir() {
        return;
    }
    let authority = Authority::new("bench");
    let own = authority.server();
    let (setup, database) = support::setup("transaction");
    let pooler = setup
        .set("auth_type", "scram-sha-256")
        .secret(Role::APP, Role::APP_PASSWORD)
        .set("client_tls_sslmode", "require")
        .set("client_tls_cert_file", own.certificate())
        .set("client_tls_key_file", own.key())
        .start();
    initialise(&database);
    let with = |mode: &str, authorities: &str, password: &str| {
        run_any(
            bench(pooler.port(), &database, &["-n", "-S", "-c", "3", "-t", "4", "-h", "localhost"])
                .env("PGSSLMODE", mode)
                .env("PGSSLROOTCERT", authorities)
                .env("PGPASSWORD", password),
        )
    };
    for mode in ["prefer", "require", "verify-ca", "verify-full"] {
        assert_processed(&with(mode, authority.file(), Role::APP_PASSWORD), 12);
    }
    let refused = with("disable", "", Role::APP_PASSWORD);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let stranger = Authority::new("stranger");
    let refused = with("verify-full", stranger.file(), Role::APP_PASSWORD);
    assert!(stderr(&refused).contains("SSL error"), "{refused:?}");
    let refused = with("require", "", "wrong");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(stderr(&refused).contains("authentication failed"), "{refused:?}");
}

#[test]
fn a_rate_limits_the_transactions_and_the_lag_is_reported() {
    if !only_weir() {
        return;
    }
    let database = Postgres::shared().database();
    initialise(&database);
    let arguments =
        ["-n", "-S", "-c", "4", "-T", "2", "-R", "100", "-P", "1", "--random-seed", "1"];
    let output = directly(&database, &arguments);
    assert!(output.status.success(), "{output:?}");
    let (report, count) = (stdout(&output), processed(&output));
    // 200 transactions are due on average. Without the rate there would be thousands.
    assert!((100..300).contains(&count), "{report}");
    assert!(report.contains("rate limit schedule lag: avg "), "{report}");
    assert!(stderr(&output).contains("progress: "), "{output:?}");
    assert!(stderr(&output).contains(", lag "), "{output:?}");
}
