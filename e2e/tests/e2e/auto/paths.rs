//! One text means two things to clients with different paths or settings, and they share a server: each
//! of them has a statement of its own there, with the columns and the parameters of its own table, and
//! literals as its own settings read them.

use testkit::{Message, RawClient, frontend};

use super::pooler;
use crate::support;

const TEXT: &str = "SELECT * FROM place WHERE id = $1";

/// The client's batch of that text: the types of its parameters and columns, and the rows.
fn look(client: &mut RawClient, name: &str, id: &str) -> (Vec<u8>, Vec<Option<String>>) {
    let batch = [
        frontend::parse(name, TEXT),
        frontend::describe_statement(name),
        frontend::bind("", name, &[Some(id)]),
        frontend::execute("", 0),
        frontend::sync(),
    ];
    client.send(batch.concat());
    let answer = client.read_to_ready();
    let found = |tag| answer.iter().find(|m| m.tag == tag).unwrap_or_else(|| panic!("{answer:?}"));
    (found(b't').body.clone(), found(b'D').row())
}

fn row(values: &[&str]) -> Vec<Option<String>> {
    values.iter().map(|value| Some((*value).to_owned())).collect()
}

fn parameter(oid: u32) -> Vec<u8> {
    [&[0, 1][..], &oid.to_be_bytes()].concat()
}

const INT4: u32 = 23;
const TEXT_TYPE: u32 = 25;

/// One server, and a table of the same name in two schemas.
fn stage() -> (testkit::Pooler, String) {
    let (pooler, database) = pooler(1);
    pooler.client(&database).rows(
        "CREATE SCHEMA one; CREATE SCHEMA two; \
         CREATE TABLE one.place (id int); INSERT INTO one.place VALUES (1); \
         CREATE TABLE two.place (id text, name text); INSERT INTO two.place VALUES ('1', 'b')",
    );
    (pooler, database)
}

#[test]
fn each_has_the_table_of_its_path_core_strict() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = stage();
    let mut clients = [pooler.client(&database), pooler.client(&database)];
    clients[0].rows("SET search_path = one");
    clients[1].rows("SET search_path = two");
    for round in 0..3 {
        let name = format!("s{round}");
        assert_eq!(look(&mut clients[0], &name, "1"), (parameter(INT4), row(&["1"])));
        assert_eq!(look(&mut clients[1], &name, "1"), (parameter(TEXT_TYPE), row(&["1", "b"])));
    }
}

#[test]
fn also_in_a_transaction_that_sets_it() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = stage();
    let mut clients = [pooler.client(&database), pooler.client(&database)];
    clients[0].rows("SET search_path = one");
    look(&mut clients[0], "s", "1");
    for set in [
        "SET LOCAL search_path = two",
        "SELECT set_config('search_path', 'two', true)",
        "SET search_path = two",
    ] {
        clients[1].rows("BEGIN");
        clients[1].rows(set);
        let name = format!("after {set}");
        assert_eq!(look(&mut clients[1], &name, "1"), (parameter(TEXT_TYPE), row(&["1", "b"])));
        clients[1].rows("COMMIT");
        assert_eq!(look(&mut clients[0], &name, "1"), (parameter(INT4), row(&["1"])));
    }
}

#[test]
fn and_for_a_role_whose_schema_is_in_the_path() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = stage();
    let postgres = testkit::Postgres::shared();
    // As a member of one whom the server trusts, the common role would need no password any more.
    let role = postgres.role(testkit::ServerAuth::Scram).name;
    postgres.superuser("postgres").rows(&format!("GRANT {role} TO app"));
    let mut clients = [pooler.client(&database), pooler.client(&database)];
    clients[0]
        .rows(&format!("CREATE SCHEMA {role}; CREATE TABLE {role}.place (id text, own text)"));
    clients[0].rows(&format!("INSERT INTO {role}.place VALUES ('1', 'mine')"));
    clients[0].rows(&format!("GRANT ALL ON SCHEMA {role} TO {role}"));
    clients[0].rows(&format!("GRANT ALL ON {role}.place TO {role}"));
    clients[0].rows("CREATE TABLE public.place (id int); INSERT INTO public.place VALUES (1)");
    assert_eq!(look(&mut clients[0], "s", "1"), (parameter(INT4), row(&["1"])));
    clients[1].rows(&format!("SET ROLE {role}"));
    assert_eq!(look(&mut clients[1], "s", "1"), (parameter(TEXT_TYPE), row(&["1", "mine"])));
}

#[test]
fn literals_are_read_by_each_ones_own_settings_core_strict() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(1);
    let mut clients = [pooler.client(&database), pooler.client(&database)];
    clients[0].rows("SET TimeZone = 'UTC'; SET DateStyle = 'ISO, MDY'");
    clients[1].rows("SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'ISO, DMY'");
    let text = "SELECT extract(epoch FROM '2024-05-01'::timestamptz)::int, '01/02/2024'::date";
    let expected = [["1714521600", "2024-01-02"], ["1714489200", "2024-02-01"]];
    for round in 0..3 {
        for (client, expected) in clients.iter_mut().zip(&expected) {
            let name = format!("s{round}");
            let batch = [
                frontend::parse(&name, text),
                frontend::bind("", &name, &[]),
                frontend::execute("", 0),
                frontend::sync(),
            ];
            client.send(batch.concat());
            let answer = client.read_to_ready();
            let found = answer.iter().find(|m| m.tag == b'D').expect("a row");
            assert_eq!(found.row(), row(expected));
        }
    }
}

/// Who may make schemas can have functions and operators of PostgreSQL's names there.
#[test]
fn weirs_own_queries_do_not_use_the_clients_path() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(1);
    let [mut client, mut other] = [(); 2].map(|()| pooler.client(&database));
    client.rows(
        "CREATE SCHEMA own; \
         CREATE FUNCTION own.same(text, text) RETURNS bool LANGUAGE sql AS 'SELECT true'; \
         CREATE OPERATOR own.= (LEFTARG = text, RIGHTARG = text, FUNCTION = own.same)",
    );
    client.rows("SET search_path = own, pg_catalog");
    client.rows("SET app.tenant = '7'");
    let seen = other.value("SELECT coalesce(current_setting('app.tenant', true), '')");
    assert_eq!(seen, "");
    assert_eq!(client.value("SHOW app.tenant"), "7");
}

fn prepare(client: &mut RawClient, name: &str, text: &str) {
    client.send([frontend::parse(name, text), frontend::sync()].concat());
    let answer = client.read_to_ready();
    assert!(answer.iter().any(|message| message.tag == b'1'), "{answer:?}");
}

fn execute(client: &mut RawClient, name: &str, parameters: &[Option<&str>]) -> Vec<Message> {
    let ask = [frontend::bind("", name, parameters), frontend::execute("", 0)].concat();
    client.send([ask, frontend::sync()].concat());
    client.read_to_ready()
}

/// What the client's statement returns.
fn value(client: &mut RawClient, name: &str) -> String {
    let answer = execute(client, name, &[]);
    let found = answer.iter().find(|m| m.tag == b'D').unwrap_or_else(|| panic!("{answer:?}"));
    found.row().remove(0).expect("not NULL")
}

#[test]
fn a_statement_on_a_new_server_has_its_clients_meaning_and_is_not_shared_strict() {
    if !support::only_weir() {
        return;
    }
    const TEXT: &str = "SELECT extract(epoch FROM '2024-05-01'::timestamptz)::int";
    let (pooler, database) = pooler(2);
    let [mut one, mut other, mut busy] = [(); 3].map(|()| pooler.client(&database));
    for client in [&mut one, &mut other] {
        client.rows("SET TimeZone = 'UTC'");
        prepare(client, "s", TEXT);
        assert_eq!(value(client, "s"), "1714521600");
    }
    busy.rows("SET TimeZone = 'UTC'; BEGIN");
    for set in ["SET LOCAL TimeZone = 'Asia/Tokyo'", "SET TimeZone = 'Asia/Tokyo'"] {
        one.rows("BEGIN");
        one.rows(set);
        execute(&mut one, "s", &[]);
        one.rows("COMMIT");
        assert_eq!(value(&mut other, "s"), "1714521600", "{set}");
    }
}

#[test]
fn a_statement_on_a_temporary_table_is_not_shared_strict() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(2);
    let [mut one, mut other, mut busy] = [(); 3].map(|()| pooler.client(&database));
    one.rows("CREATE TABLE staging AS SELECT '' AS id");
    one.rows("CREATE TEMP TABLE staging AS SELECT 7 AS id");
    for client in [&mut one, &mut other] {
        prepare(client, "s", "INSERT INTO staging VALUES ($1)");
    }
    execute(&mut one, "s", &[Some("007")]);
    one.rows("DROP TABLE pg_temp.staging");
    let servers = [&mut one, &mut busy].map(|client| {
        client.rows("BEGIN");
        client.value("SELECT pg_backend_pid()")
    });
    assert_ne!(servers[0], servers[1]);
    // The other client is given each of the servers.
    for client in [&mut one, &mut busy] {
        client.rows("COMMIT");
        execute(&mut other, "s", &[Some("007")]);
    }
    assert_eq!(other.value("SELECT string_agg(id, ',') FROM staging"), ",007,007");
}

#[test]
fn and_what_null_means() {
    if !support::only_weir() {
        return;
    }
    const TEXT: &str = "SELECT count(*) FROM generate_series(1, 1) one WHERE NULLIF(one, 1) = NULL";
    let (pooler, database) = pooler(1);
    let [mut one, mut other] = [(); 2].map(|()| pooler.client(&database));
    one.rows("SET transform_null_equals = on");
    for (client, count) in [(&mut one, "1"), (&mut other, "0")] {
        prepare(client, "s", TEXT);
        assert_eq!(value(client, "s"), count);
    }
}
