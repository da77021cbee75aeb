//! PostgreSQL's programs: each does the same through the pooler as directly.
//!
//! Programs that replicate have their own tests (`replication`).

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{self, WAYS, Way, only_weir, run, run_any};
use testkit::{Pooler, Postgres, Setup};

/// Returns the setup of a pooler, and a new database behind it.
fn setup(way: Way) -> (Setup, String) {
    let (setup, database) = support::setup(way.mode);
    (way.set(setup), database)
}

/// One object of each kind that a dump must preserve.
const OBJECTS: &str = r"
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TABLE many (id bigserial PRIMARY KEY, word text, feeling mood, bytes bytea, number positive);
INSERT INTO many (word, feeling, bytes, number)
    SELECT 'word ' || n, CASE n % 2 WHEN 0 THEN 'sad' ELSE 'glad' END::mood,
           decode(md5(n::text), 'hex'), n FROM generate_series(1, 20000) n;
CREATE INDEX many_words ON many (word);
CREATE TABLE other (id int PRIMARY KEY, many bigint REFERENCES many, note text DEFAULT E'a\tb\\c');
INSERT INTO other SELECT n, n FROM generate_series(1, 5000) n;
CREATE INDEX other_many ON other (many);
CREATE TABLE parted (n int, word text) PARTITION BY RANGE (n);
CREATE TABLE parted_low PARTITION OF parted FOR VALUES FROM (0) TO (1000);
CREATE TABLE parted_high PARTITION OF parted FOR VALUES FROM (1000) TO (2000);
INSERT INTO parted SELECT n, repeat('x', n % 50) FROM generate_series(0, 1999) n;
CREATE FUNCTION twice(int) RETURNS int LANGUAGE sql AS $$SELECT 2 * $1$$;
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN new; END$$;
CREATE TRIGGER touched BEFORE UPDATE ON other FOR EACH ROW EXECUTE FUNCTION touch();
CREATE VIEW glad AS SELECT id, word FROM many WHERE feeling = 'glad';
CREATE MATERIALIZED VIEW counted AS SELECT feeling, count(*) FROM many GROUP BY 1;
COMMENT ON TABLE many IS 'ä comment; with -- signs';
SELECT lo_from_bytea(4711, decode(repeat('00ff', 50000), 'hex'));
";

/// Returns a new database that contains `OBJECTS`, and a pooler with enough servers for parallel
/// programs.
fn filled(way: Way) -> (Pooler, String) {
    let (setup, database) = setup(way);
    let pooler = setup.database("*", "").set("default_pool_size", 8).workers(2).start();
    let port = Postgres::shared().port();
    run(psql(Postgres::client_program("psql", port, &database)).args(["-c", OBJECTS]));
    (pooler, database)
}

/// Runs psql without the user's start-up file. It ends at the first error.
fn psql(mut command: Command) -> Command {
    command.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1"]);
    command
}

/// Returns a dump as text, without the lines that contain a random key.
fn text(mut pg_dump: Command) -> String {
    let dump = run(&mut pg_dump);
    dump.lines()
        .filter(|line| !line.contains("restrict "))
        .fold(String::new(), |all, line| all + line + "\n")
}

fn direct_dump(database: &str) -> String {
    text(Postgres::client_program("pg_dump", Postgres::shared().port(), database))
}

#[test]
fn a_dump_is_the_same_as_a_direct_one_core() {
    if !only_weir() {
        return;
    }
    for way in WAYS {
        let (pooler, database) = filled(way);
        let pooled = text(pooler.client_program("pg_dump", &database));
        assert_eq!(pooled.len(), direct_dump(&database).len(), "{way}");
        assert!(pooled == direct_dump(&database), "{way}: the dumps differ");
        let inserts = run(pooler.client_program("pg_dump", &database).args(["--inserts", "-a"]));
        assert_eq!(inserts.matches("\nINSERT INTO").count(), 27_002 - 2, "{way}");
        pooler.wait_until_quiet(&database, 8);
    }
}

#[test]
fn parallel_dumps_and_restores_copy_a_database() {
    if !only_weir() {
        return;
    }
    for way in WAYS {
        let (pooler, database) = filled(way);
        let copy = Postgres::shared().database();
        let folder = testkit::open_folder("dump").join("files");
        run(pooler
            .client_program("pg_dump", &database)
            .args(["-F", "d", "-j", "4", "-f"])
            .arg(&folder));
        let restore = |more: &[&str]| {
            run(pooler
                .client_program("pg_restore", &copy)
                .args(["-j", "4", "-d", &copy])
                .args(more)
                .arg(&folder));
        };
        restore(&[]);
        assert!(direct_dump(&copy) == direct_dump(&database), "{way}: the copy differs");
        // Restores over the existing objects. pg_restore drops them first.
        restore(&["--clean", "--if-exists"]);
        assert!(direct_dump(&copy) == direct_dump(&database), "{way}: the second copy differs");
        // Restores with psql, in one transaction.
        let another = Postgres::shared().database();
        let script = folder.with_extension("sql");
        fs::write(&script, run(&mut pooler.client_program("pg_dump", &database)))
            .expect("our own folder");
        run(psql(pooler.client_program("psql", &another)).args(["-1", "-f"]).arg(&script));
        assert!(direct_dump(&another) == direct_dump(&database), "{way}: psql's copy differs");
    }
}

#[test]
fn maintenance_programs_reach_every_table() {
    if !only_weir() {
        return;
    }
    const TABLES: [&str; 4] = ["many", "other", "parted_low", "parted_high"];
    for way in WAYS {
        let (pooler, database) = filled(way);
        let shared = Postgres::shared();
        let value = |sql: &str| shared.sql(&database, sql)[0][0].clone().unwrap_or_default();
        let named = TABLES.map(|table| format!("'{table}'")).join(", ");
        let relations = format!(
            "SELECT string_agg(relname || ' ' || relfilenode, ',' ORDER BY oid) FROM pg_class \
             WHERE relkind = 'i' AND oid IN (SELECT indexrelid FROM pg_index WHERE indrelid IN \
             (SELECT oid FROM pg_class WHERE relname IN ({named})))"
        );
        let processed = format!(
            "SELECT count(*) FROM pg_stat_user_tables WHERE relname IN ({named}) \
             AND last_vacuum IS NOT NULL AND last_analyze IS NOT NULL"
        );
        run(pooler.client_program("vacuumdb", &database).args(["-j", "4", "--analyze", &database]));
        assert_eq!(value(&processed), "4", "{way}");
        assert_eq!(
            value("SELECT (count(*) > 0)::text FROM pg_stats WHERE tablename = 'many'"),
            "true"
        );
        run(pooler.client_program("vacuumdb", &database).args(["--analyze-in-stages", &database]));
        // Leaves out the system's tables: vacuumed in parallel they can deadlock, as vacuumdb's
        // manual says.
        let tables = ["-t", "many", "-t", "other", "-t", "parted"];
        run(pooler
            .client_program("vacuumdb", &database)
            .args(["-j", "4", "--full"])
            .args(tables)
            .arg(&database));

        let before = value(&relations);
        run(pooler.client_program("reindexdb", &database).arg(&database));
        let after = value(&relations);
        assert_eq!(before.matches(',').count(), after.matches(',').count());
        for (old, new) in before.split(',').zip(after.split(',')) {
            assert_ne!(old, new, "{way}: an index is not built anew");
        }
        run(pooler
            .client_program("reindexdb", &database)
            .args(["-j", "4", "--concurrently"])
            .args(tables)
            .arg(&database));
        let now = value(&relations);
        assert_ne!(now, after, "{way}");
        assert!(!now.contains("_ccnew") && !now.contains("_ccold"), "{way}: {now}");
        run(pooler.client_program("clusterdb", &database).arg(&database));
        pooler.wait_until_quiet(&database, 8);
    }
}

#[test]
fn psql_copies_both_ways() {
    if !only_weir() {
        return;
    }
    for way in WAYS {
        let (pooler, database) = filled(way);
        let folder = testkit::open_folder("copy");
        let pooled = |commands: &[&str]| {
            let mut command = psql(pooler.client_program("psql", &database));
            command.args(commands.iter().flat_map(|&text| ["-c", text]));
            run_any(&mut command)
        };
        let ok = |commands: &[&str]| {
            let output = pooled(commands);
            assert!(output.status.success(), "{way}: {output:?}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let file = |name: &str| folder.join(name).display().to_string();
        let direct = file("direct");
        let port = Postgres::shared().port();
        run(psql(Postgres::client_program("psql", port, &database))
            .args(["-c", &format!("\\copy many TO '{direct}'")]));
        for format in ["text", "csv", "binary"] {
            let path = file(format);
            let said = ok(&[
                &format!("\\copy many TO '{path}' (FORMAT {format})"),
                "CREATE TABLE again (LIKE many)",
                &format!("\\copy again FROM '{path}' (FORMAT {format})"),
                &format!("\\copy again TO '{}'", file("again")),
                "SELECT count(*) FROM again",
                "DROP TABLE again",
            ]);
            assert_eq!(said, "20000\n", "{way}, {format}");
            assert_eq!(
                read(Path::new(&file("again"))),
                read(Path::new(&direct)),
                "{way}, {format}"
            );
        }
        // Copies from a program's output, from a query, and into a program.
        ok(&["CREATE TABLE piped (n int)", "\\copy piped FROM PROGRAM 'seq 1 1000'"]);
        let counted = file("counted");
        ok(&[&format!(
            "\\copy (SELECT n FROM piped WHERE n > 900) TO PROGRAM 'wc -l > {counted}'"
        )]);
        assert_eq!(fs::read_to_string(counted).expect("wc's output").trim(), "100", "{way}");
        // A malformed line ends the copy, stores nothing, and leaves the connection usable.
        fs::write(file("wrong"), "1\ntwo\n3\n").expect("our own folder");
        let mut command = pooler.client_program("psql", &database);
        command.args([
            "-X",
            "-A",
            "-t",
            "-q",
            "-c",
            &format!("\\copy piped FROM '{}'", file("wrong")),
        ]);
        let output = run_any(command.args(["-c", "SELECT count(*) FROM piped"]));
        assert!(String::from_utf8_lossy(&output.stderr).contains("two"), "{way}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "1000\n", "{way}");
        pooler.wait_until_quiet(&database, 8);
    }
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn psql_watches_in_one_session() {
    if !only_weir() {
        return;
    }
    for way in WAYS {
        let (setup, database) = setup(way);
        let pooler = setup.start();
        // The command is repeated until the fifth round divides by zero.
        let script = testkit::open_folder("watch").join("script.sql");
        let commands = "CREATE SEQUENCE rounds;\nSET work_mem = '5MB';\nCREATE TEMP TABLE own (n int);\n\
                        INSERT INTO own VALUES (7);\n\
                        SELECT n, 10 / (5 - nextval('rounds')), current_setting('work_mem') FROM own \\watch 0.05\n\
                        SELECT 'after', n FROM own;\n";
        fs::write(&script, commands).expect("our own folder");
        let mut command = pooler.client_program("psql", &database);
        let output = run_any(command.args(["-X", "-A", "-t", "-q", "-f"]).arg(&script));
        let said = String::from_utf8_lossy(&output.stdout);
        let rows: Vec<_> = said.lines().filter(|line| line.contains('|')).collect();
        assert_eq!(rows, ["7|2|5MB", "7|3|5MB", "7|5|5MB", "7|10|5MB", "after|7"], "{way}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("division by zero"), "{way}");
    }
}

#[test]
fn pgbench_keeps_its_books_in_every_query_mode() {
    if !only_weir() {
        return;
    }
    for way in WAYS {
        let (setup, database) = setup(way);
        // In session mode each client needs a server.
        let servers = if way.mode == "session" { 9 } else { 4 };
        let pooler = setup.set("default_pool_size", servers).workers(2).start();
        // Fills its tables through the pooler as well: by a query on the server, and by COPY.
        for steps in ["dtGvp", "dtgvpf"] {
            run(pooler.client_program("pgbench", &database).args(["-i", "-q", "-I", steps]));
        }
        let pipeline = testkit::open_folder("pgbench").join("pipeline.sql");
        let script = "\\set n random(1, 100000)\n\\startpipeline\nBEGIN;\n\
                      UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :n;\n\
                      INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (1, 1, :n, 1, now());\n\
                      COMMIT;\n\\endpipeline\n\
                      SELECT abalance AS b FROM pgbench_accounts WHERE aid = :n \\gset\n";
        fs::write(&pipeline, script).expect("our own folder");
        let mut transactions = 0;
        // Each client has a thread, since pgbench blocks a thread until a statement is prepared.
        let mut bench = |more: &[&str]| {
            let mut command = pooler.client_program("pgbench", &database);
            let report = run(command.args(["-n", "-c", "8", "-j", "8", "-t", "25"]).args(more));
            assert!(report.contains("processed: 200/200"), "{way}, {more:?}: {report}");
            assert!(
                report.contains("failed transactions: 0 (0.000%)"),
                "{way}, {more:?}: {report}"
            );
            if !more.contains(&"-S") {
                transactions += 200;
            }
        };
        for protocol in ["simple", "extended", "prepared"] {
            bench(&["-M", protocol]);
            bench(&["-M", protocol, "-N"]);
            bench(&["-M", protocol, "-S"]);
            bench(&["-M", protocol, "-C"]);
            if protocol != "simple" {
                bench(&["-M", protocol, "-f", &pipeline.display().to_string()]);
            }
        }
        let mut client = pooler.client(&database);
        let books = "SELECT (SELECT count(*) FROM pgbench_history) || ' ' || \
                     ((SELECT sum(delta) FROM pgbench_history) = (SELECT sum(abalance) FROM pgbench_accounts))";
        assert_eq!(client.value(books), format!("{transactions} true"), "{way}");
        drop(client);
        pooler.wait_until_quiet(&database, servers);
    }
}
