//! `pg_cancel_backend` and `pg_terminate_backend` with the process id that a client was told at its
//! login: as with the process id of a connection of one's own.

use std::time::Duration;

use testkit::{Message, Pooler, Postgres, RawClient, Role, ServerAuth, eventually, frontend};

use crate::support;

const NO_PROCESS: &str = "PostgreSQL does not know the process id that a client was told at login";

const CANCEL: &str = "pg_cancel_backend";
const TERMINATE: &str = "pg_terminate_backend";

/// How a client calls the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A simple Query, the process id in its text.
    Query,
    /// The same by the extended protocol.
    Literal,
    Text,
    Binary,
    /// As text, of a statement that is described before it is bound, with one round trip in between.
    Described,
    /// As text, of a named statement of an earlier batch.
    Named,
}

const WAYS: [Way; 6] =
    [Way::Query, Way::Literal, Way::Text, Way::Binary, Way::Described, Way::Named];

/// A client calls the function in that way. What it is answered.
#[track_caller]
fn call(client: &mut RawClient, way: Way, function: &str, pid: i32) -> Vec<String> {
    let pid = pid.to_string();
    let literal = format!("SELECT {function}({pid}) AS done");
    let parameter = format!("SELECT pg_catalog.{function}($1)");
    let run = |bind: Vec<u8>| {
        [bind, frontend::describe_portal(""), frontend::execute("", 0), frontend::sync()].concat()
    };
    let bound = |name: &str| run(frontend::bind("", name, &[Some(&pid)]));
    let request = match way {
        Way::Query => frontend::query(&literal),
        Way::Literal => [frontend::parse("", &literal), run(frontend::bind("", "", &[]))].concat(),
        Way::Text => [frontend::parse("", &parameter), bound("")].concat(),
        Way::Binary => {
            let number: u32 = pid.parse().expect("a process id");
            [frontend::parse_typed("", &parameter, &[23]), run(bind_binary(number))].concat()
        }
        Way::Described => {
            let describe = [frontend::parse("", &parameter), frontend::describe_statement("")];
            client.send([describe.concat(), frontend::flush()].concat());
            client.read_until(|message| matches!(message.tag, b'T' | b'E'));
            bound("")
        }
        Way::Named => {
            client.send([frontend::parse("named", &parameter), frontend::sync()].concat());
            client.read_to_ready();
            bound("named")
        }
    };
    client.send(request);
    let mut answers = answers(client);
    if way == Way::Named && answers.last().is_some_and(|last| last == "Z") {
        client.send([frontend::close_statement("named"), frontend::sync()].concat());
        client.read_to_ready();
    }
    // Where a refusal comes without a row, none is described either.
    if answers.iter().any(|answer| answer.starts_with("error")) {
        answers.retain(|answer| answer.starts_with("error") || answer == "Z");
    }
    answers
}

/// The one value and the one result are binary.
fn bind_binary(number: u32) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0, 4];
    body.extend_from_slice(&number.to_be_bytes());
    body.extend_from_slice(&[0, 1, 0, 1]);
    frontend::message(b'B', &body)
}

/// Up to the end of the request, or of the connection.
#[track_caller]
fn answers(client: &mut RawClient) -> Vec<String> {
    let mut answers = Vec::new();
    loop {
        let Some(message) = client.try_read().expect("an answer in time") else {
            answers.push("closed".to_owned());
            return answers;
        };
        answers.push(show(&message));
        if message.tag == b'Z' {
            return answers;
        }
    }
}

fn show(message: &Message) -> String {
    match message.error() {
        Some(error) => {
            let shown = ['S', 'C', 'M', 'D', 'H'].map(|field| error.field(field));
            format!("error {shown:?}")
        }
        None if message.tag == b'T' => format!("T {:?}", message.columns()),
        None if message.tag == b'D' => format!("D {:?}", message.row()),
        None => char::from(message.tag).to_string(),
    }
}

/// A database of that server, and a pooler before it.
fn stage(postgres: &Postgres, workers: u32, size: u32) -> (Pooler, String) {
    let database = postgres.database();
    let setup = Pooler::before(postgres).set("pool_mode", "auto").database(&database, "");
    (setup.workers(workers).set("default_pool_size", size).start(), database)
}

fn direct(postgres: &Postgres, database: &str) -> RawClient {
    RawClient::login(postgres.port(), Role::APP, database, Role::APP_PASSWORD)
        .expect("the server lets its own role in")
}

/// Two that are connected alike: the one whose query is ended, and the one who asks for that.
type Pair = [RawClient; 2];

const SLOW: &str = "SELECT pg_sleep(60)";

/// The first of the two is busy, the other one calls the function. What both are told.
#[track_caller]
fn signal_busy(
    postgres: &Postgres,
    database: &str,
    pair: &mut Pair,
    way: Way,
    function: &str,
) -> [Vec<String>; 2] {
    let [target, requester] = pair;
    target.send(frontend::query(SLOW));
    support::until_running_at(postgres, database, SLOW);
    let answered = call(requester, way, function, target.pid);
    let told = answers(target).into_iter().filter(|answer| answer != "T [\"pg_sleep\"]");
    [told.collect(), answered]
}

#[test]
fn a_busy_client_is_cancelled_or_terminated_in_every_way() {
    if !support::only_proxied(NO_PROCESS) {
        return;
    }
    for postgres in [Postgres::shared(), Postgres::shared_v18()] {
        for workers in [1, 2] {
            let (pooler, database) = stage(postgres, workers, 4);
            for function in [CANCEL, TERMINATE] {
                for way in WAYS {
                    let mut own = [(); 2].map(|()| direct(postgres, &database));
                    let expected = signal_busy(postgres, &database, &mut own, way, function);
                    let mut pair = [(); 2].map(|()| pooler.client(&database));
                    let got = signal_busy(postgres, &database, &mut pair, way, function);
                    assert_eq!(got, expected, "{function} {way:?} {workers}");
                    // The one that is left, or both, go on.
                    assert_eq!(pair[1].value("SELECT 7"), "7");
                    if function == CANCEL {
                        assert_eq!(pair[0].value("SELECT 8"), "8");
                    }
                }
            }
            pooler.wait_until_quiet(&database, 4);
        }
    }
}

/// A worker that decides one while it deals with the other once went round in circles.
#[test]
fn two_calls_in_one_write_are_answered_one_by_one() {
    if !support::only_proxied(NO_PROCESS) {
        return;
    }
    let (pooler, database) = stage(Postgres::shared(), 1, 4);
    let [target, mut requester] = [(); 2].map(|()| pooler.client(&database));
    let calls = [TERMINATE; 2].map(|it| frontend::query(&format!("SELECT {it}({})", target.pid)));
    requester.send(calls.concat());
    let answers = [(); 2].map(|()| answers(&mut requester));
    assert!(answers[0].contains(&"D [Some(\"t\")]".to_owned()), "{answers:?}");
    assert!(answers[1].contains(&"D [Some(\"f\")]".to_owned()), "{answers:?}");
    assert_eq!(pooler.client(&database).value("SELECT 7"), "7");
}

#[test]
fn a_client_that_signals_itself_gets_the_error() {
    if !support::only_proxied(NO_PROCESS) {
        return;
    }
    for postgres in [Postgres::shared(), Postgres::shared_v18()] {
        let (pooler, database) = stage(postgres, 2, 4);
        for function in [CANCEL, TERMINATE] {
            for way in WAYS {
                let [mut own, mut client] = [direct(postgres, &database), pooler.client(&database)];
                let pid = own.pid;
                let expected = call(&mut own, way, function, pid);
                let pid = client.pid;
                let got = call(&mut client, way, function, pid);
                assert_eq!(got, expected, "{function} {way:?}");
            }
        }
    }
}

/// Nothing happens to it but what PostgreSQL does: an open transaction is left open by a cancel, and
/// rolled back by the client's end.
#[test]
fn clients_at_rest_in_every_state() {
    if !support::only_proxied(NO_PROCESS) {
        return;
    }
    let postgres = Postgres::shared();
    for workers in [1, 2] {
        let (pooler, database) = stage(postgres, workers, 2);
        pooler.client(&database).rows("CREATE TABLE t (n int)");
        for begins in
            ["SELECT 1", "BEGIN; INSERT INTO t VALUES (1)", "CREATE TEMP TABLE mine (n int)"]
        {
            let mut target = pooler.client(&database);
            target.rows(begins);
            let mut requester = pooler.client(&database);
            assert_eq!(call(&mut requester, Way::Query, CANCEL, target.pid)[1], "D [Some(\"t\")]");
            target.rows("INSERT INTO t VALUES (2)");
            let got = call(&mut requester, Way::Binary, TERMINATE, target.pid);
            assert_eq!(got[3], "D [Some(\"\\u{1}\")]", "{got:?}");
            let told = answers(&mut target);
            let killed = "terminating connection due to administrator command";
            assert!(told[0].contains(killed) && told[1] == "closed", "{told:?}");
            let again = requester.query(&format!("SELECT {TERMINATE}({})", target.pid));
            assert_eq!(again.rows, [[Some("f".to_owned())]]);
        }
        eventually("nothing of the open transaction is there", Duration::from_secs(10), || {
            let rows = pooler.client(&database).rows("SELECT DISTINCT n FROM t");
            (rows == [[Some("2".to_owned())]]).then_some(())
        });
    }
}

#[test]
fn a_pool_of_one_server_answers_a_signal_to_an_idle_client() {
    if !support::only_proxied(NO_PROCESS) {
        return;
    }
    let postgres = Postgres::shared();
    let (pooler, database) = stage(postgres, 2, 1);
    let [mut target, mut requester] = [(); 2].map(|()| pooler.client(&database));
    for way in WAYS {
        let answered = call(&mut requester, way, CANCEL, target.pid);
        assert!(answered.iter().any(|answer| answer.starts_with('D')), "{answered:?}");
        assert_eq!(target.value("SELECT 1"), "1");
    }
    call(&mut requester, Way::Query, TERMINATE, target.pid);
    assert_eq!(answers(&mut target).len(), 2);
    assert_eq!(requester.value("SELECT 1"), "1");
}

/// The client that asks waits for the very server whose query is to be ended.
#[test]
fn a_pool_of_one_server_answers_a_signal_to_a_busy_client() {
    if !support::only_proxied(NO_PROCESS) {
        return;
    }
    let postgres = Postgres::shared();
    for workers in [1, 2] {
        let (pooler, database) = stage(postgres, workers, 1);
        for function in [CANCEL, TERMINATE] {
            for way in [Way::Query, Way::Literal, Way::Text, Way::Binary] {
                let mut own = [(); 2].map(|()| direct(postgres, &database));
                let expected = signal_busy(postgres, &database, &mut own, way, function);
                let mut pair = [(); 2].map(|()| pooler.client(&database));
                let got = signal_busy(postgres, &database, &mut pair, way, function);
                assert_eq!(got, expected, "{function} {way:?} {workers}");
            }
        }
    }
}

/// Roles: whose session it is, and who asks.
struct Cast {
    owner: Role,
    superuser: Role,
    member: Role,
    signaler: Role,
    stranger: Role,
}

fn cast(postgres: &Postgres) -> Cast {
    let role = || postgres.role(ServerAuth::Trust);
    let cast = Cast {
        owner: role(),
        superuser: role(),
        member: role(),
        signaler: role(),
        stranger: role(),
    };
    let Cast { owner, superuser, member, signaler, .. } = &cast;
    for sql in [
        format!("ALTER ROLE {} SUPERUSER", superuser.name),
        format!("GRANT {} TO {}", owner.name, member.name),
        format!("GRANT pg_signal_backend TO {}", signaler.name),
    ] {
        postgres.sql("postgres", &sql);
    }
    cast
}

#[test]
fn signals_follow_postgresqls_privileges_strict() {
    if !support::only_proxied(NO_PROCESS) {
        return;
    }
    for postgres in [Postgres::shared(), Postgres::shared_v18()] {
        let cast = cast(postgres);
        let database = postgres.database();
        let mut setup = Pooler::before(postgres).set("pool_mode", "auto").database(&database, "");
        let Cast { owner, superuser, member, signaler, stranger } = &cast;
        for role in [owner, superuser, member, signaler, stranger] {
            setup = setup.secret(&role.name, &role.password);
        }
        let pooler = setup.workers(2).set("default_pool_size", 3).start();
        let own = |role: &Role| {
            RawClient::login(postgres.port(), &role.name, &database, &role.password)
                .expect("the server lets its own role in")
        };
        let through = |role: &Role| {
            pooler.login(&role.name, &database, &role.password).expect("Weir lets it in")
        };
        let may = |target: &Role, requester: &Role, before: &str| {
            for (way, function) in [
                (Way::Query, CANCEL),
                (Way::Text, TERMINATE),
                (Way::Described, CANCEL),
                (Way::Query, TERMINATE),
            ] {
                let mut told = Vec::new();
                for connect in [&own as &dyn Fn(&Role) -> RawClient, &through] {
                    let (mut target, mut requester) = (connect(target), connect(requester));
                    target.rows("SELECT 1");
                    if !before.is_empty() {
                        requester.rows(before);
                    }
                    let answered = call(&mut requester, way, function, target.pid);
                    let is_open = function == CANCEL
                        || answered.iter().any(|answer| answer.starts_with("error"));
                    if is_open {
                        assert_eq!(target.value("SELECT 1"), "1");
                    } else {
                        assert_eq!(answers(&mut target).len(), 2);
                    }
                    told.push(answered);
                }
                assert_eq!(told[1], told[0], "{function} {way:?} {before}");
            }
        };
        for requester in [owner, member, signaler, superuser, stranger] {
            may(owner, requester, "");
            may(superuser, requester, "");
        }
        let no_longer = format!("SET SESSION AUTHORIZATION {}", stranger.name);
        may(owner, superuser, &no_longer);
        let other = format!("SET ROLE {}", owner.name);
        may(owner, member, &other);
        may(member, member, &other);
        may(member, member, &format!("BEGIN; SET LOCAL ROLE {}", owner.name));
    }
}
