//! Steps about one kind of object of a session: cursors, temporary tables, locks, channels.

use super::{Generator, forgotten, unbound};
use crate::script::Request;

/// The number of names in a text of `many_names`, besides `app.kept`.
const NAMES_MANY: usize = 300;
/// PostgreSQL's function `length(text)`.
const LENGTH: u32 = 1317;
const CHANNELS: [&str; 2] = ["news", "weather"];

impl Generator {
    pub(super) fn prepared(&mut self, session: usize) {
        // Scripts may use names of the protocol's statements only with `shares_names`, since
        // special limits apply to them.
        let name = match self.shares_names {
            true => *self.dice.of(&["q", "a", "b"]),
            false => *self.dice.of(&["q", "r"]),
        };
        let text = *self.dice.of(&[
            "SELECT name FROM place",
            "SELECT current_setting('work_mem')",
            "SELECT * FROM public.changing",
            "INSERT INTO public.t VALUES (9, 'nine')",
        ]);
        let sql = match self.dice.below(8) {
            0..=2 => format!("PREPARE {name} AS {text}"),
            3 => format!("PREPARE {name}(int) AS SELECT $1 + 1"),
            4 => format!("DEALLOCATE {name}"),
            5 => format!("EXECUTE {name}(4)"),
            _ => format!("EXECUTE {name}"),
        };
        self.say(session, sql);
    }

    pub(super) fn cursor(&mut self, session: usize) {
        let is_inside = self.sessions[session].may_be_inside;
        match self.dice.below(6) {
            0 | 1 if is_inside => {
                self.say(session, "DECLARE k CURSOR FOR SELECT generate_series(1, 5)");
            }
            0 | 1 => self.take(
                session,
                true,
                "BEGIN; DECLARE k CURSOR FOR SELECT n FROM generate_series(1, 5) n; FETCH 2 FROM k",
            ),
            2 => self.take(
                session,
                false,
                "DECLARE h CURSOR WITH HOLD FOR SELECT generate_series(1, 4)",
            ),
            _ => self.say_one(
                session,
                &["FETCH 2 FROM k", "FETCH h", "CLOSE k", "CLOSE h", "CLOSE ALL", "MOVE 1 FROM k"],
            ),
        }
    }

    pub(super) fn temporary(&mut self, session: usize) {
        match self.dice.below(8) {
            0 | 1 => self.take(session, false, "CREATE TEMP TABLE mine AS SELECT 1 AS a"),
            2 => self.take(session, false, "CREATE TEMP VIEW place AS SELECT 'temporary' AS name"),
            3 => self.say(session, "CREATE TEMP TABLE brief ON COMMIT DROP AS SELECT 1 AS a"),
            4 => self
                .say_one(session, &["DROP TABLE mine", "DROP VIEW pg_temp.place", "DISCARD TEMP"]),
            5 => self.say_one(session, &["INSERT INTO mine VALUES (2)", "TRUNCATE mine"]),
            _ => self.say_one(session, &["SELECT count(*) FROM mine", "SELECT name FROM place"]),
        }
    }

    pub(super) fn lock(&mut self, session: usize) {
        let key = self.dice.below(3);
        match self.dice.below(6) {
            0 | 1 => self.take(session, false, format!("SELECT pg_try_advisory_lock({key})")),
            2 => self.say(session, format!("SELECT pg_advisory_unlock({key})")),
            3 => self.say(session, "SELECT pg_advisory_unlock_all()"),
            4 => self.say(session, format!("SELECT pg_try_advisory_xact_lock({key})")),
            _ => self.say(
                session,
                "SELECT objid, mode FROM pg_locks WHERE locktype = 'advisory' AND objid < 9 AND \
                 database = (SELECT oid FROM pg_database WHERE datname = current_database()) ORDER BY 1, 2",
            ),
        }
    }

    pub(super) fn number(&mut self, session: usize) {
        match self.dice.below(6) {
            0 => self.say(session, "SELECT nextval('public.numbers')"),
            1 => self.say(session, "SELECT setval('public.numbers', 40)"),
            2 => self.say(session, "DISCARD SEQUENCES"),
            3 => self.take(session, false, "SELECT nextval('public.numbers'); SELECT lastval()"),
            _ => self.take(session, false, "SELECT currval('public.numbers')"),
        }
    }

    pub(super) fn listen(&mut self, session: usize) {
        let channel = *self.dice.of(&CHANNELS);
        // Each notification has a unique payload.
        let payload = format!("{session}-{}", self.steps.len());
        match self.dice.below(8) {
            0..=2 if self.sessions[session].speaks_other => {
                self.take(session, false, format!("LISTEN {channel}"));
            }
            0..=2 => {
                self.sessions[session].listens = true;
                self.say(session, format!("LISTEN {channel}"));
            }
            3 => self.say(session, format!("UNLISTEN {channel}")),
            4 => self.say(session, "UNLISTEN *"),
            5 => self.say(session, format!("SELECT pg_notify('{channel}', '{payload}')")),
            _ => self.say(session, format!("NOTIFY {channel}, '{payload}'")),
        }
    }

    pub(super) fn copy(&mut self, session: usize) {
        let (input, output) =
            ("COPY public.t FROM STDIN", "COPY (SELECT generate_series(1, 40)) TO STDOUT");
        if self.dice.once_in(3) {
            return self.say(session, output);
        }
        let mut requests = match self.dice.once_in(2) {
            true => vec![Request::query(input)],
            false => vec![
                Request::Parse { name: "", sql: input.to_owned() },
                unbound("", ""),
                Request::Execute { portal: "", rows: 0 },
            ],
        };
        let data: &[u8] =
            self.dice.of::<&[u8]>(&[&b"5\tfive\n6\tsix\n"[..], b"wrong\n", b"8\te", b""]);
        requests.push(Request::CopyData(data.to_vec()));
        requests.push(if self.dice.once_in(4) { Request::CopyFail } else { Request::CopyDone });
        if matches!(requests[0], Request::Parse { .. }) {
            requests.push(Request::Sync);
            requests.extend(forgotten());
        }
        self.write(session, requests);
    }

    pub(super) fn discard(&mut self, session: usize) {
        let texts = ["DISCARD ALL", "DISCARD ALL", "DISCARD PLANS", "DISCARD TEMP"];
        let more = ["DEALLOCATE ALL", "RESET ALL", "RESET SESSION AUTHORIZATION", "CLOSE ALL"];
        let all = [texts, more].concat();
        self.say_one(session, &all);
    }

    pub(super) fn function(&mut self, session: usize) {
        match self.dice.below(8) {
            0 => self.say(session, "SELECT public.own_set('work_mem', '9MB')"),
            1 => self.say(session, "SELECT public.own_set('app.tenant', '7')"),
            2 => self.say(session, "SELECT public.own_local('4MB'), current_setting('work_mem')"),
            3 => self.say(session, "CALL public.own_commit()"),
            4 => self.say(session, many_names()),
            5 => self.say(session, "SELECT public.own_length('abc'::bytea)"),
            6 => self.say(session, "SELECT nullif(current_setting('app.kept', true), '')"),
            _ => {
                let argument = "abc".to_owned();
                self.write(session, vec![Request::Call { function: LENGTH, argument }]);
            }
        }
    }
}

/// Returns a text with an application's setting between hundreds of other names with a dot.
fn many_names() -> String {
    let names: Vec<_> = (0..NAMES_MANY).map(|n| format!("'n.x{n}'")).collect();
    let (before, behind) = names.split_at(NAMES_MANY / 8);
    format!(
        "SELECT set_config('app.kept', 'kept', false), length(concat({})), length(concat({}))",
        before.iter().take(90).cloned().collect::<Vec<_>>().join(","),
        chunks(behind),
    )
}

/// Splits the names, since `concat` takes at most a hundred arguments.
fn chunks(names: &[String]) -> String {
    names.chunks(90).map(|some| format!("concat({})", some.join(","))).collect::<Vec<_>>().join(",")
}
