//! Clients of two workers whose settings contradict each other, on a few servers, which go from worker
//! to worker: nobody finds what is another's.

use testkit::{Postgres, RawClient, frontend};

use crate::support;

const CLIENTS: usize = 24;
const SERVERS: usize = 3;
const ROUNDS: usize = 40;

/// One client's session, and what it should be.
struct Player {
    client: RawClient,
    number: usize,
    /// What it has set last.
    value: usize,
}

impl Player {
    fn sets(&mut self, value: usize) -> String {
        self.value = value;
        let (number, zone) = (self.number, value % 12);
        format!(
            "SET work_mem = '{value}kB'; SET app.own = '{number}/{value}'; SET search_path = s{number}; \
             SET TimeZone = 'Etc/GMT+{zone}'"
        )
    }

    /// All of its settings, as one transaction shows them.
    #[track_caller]
    fn check(&mut self, round: usize) {
        let (number, value) = (self.number, self.value);
        let shown = self.client.rows(
            "SELECT current_setting('work_mem'), current_setting('app.own'), \
             current_setting('search_path'), current_setting('TimeZone')",
        );
        let expected = [
            format!("{value}kB"),
            format!("{number}/{value}"),
            format!("s{number}"),
            format!("Etc/GMT+{}", value % 12),
        ];
        assert_eq!(shown, [expected.map(Some)], "client {number}, round {round}");
    }

    /// Something of its own in each round, which must not be another's.
    #[track_caller]
    fn play(&mut self, round: usize) {
        let number = self.number;
        match (round * 7 + number) % 6 {
            0 => {
                let sql = self.sets(1000 + round * CLIENTS + number);
                self.client.rows(&sql);
            }
            // As if it had never been.
            1 => {
                let before = self.value;
                let sql = self.sets(9999);
                self.client.rows(&format!("BEGIN; {sql}; ROLLBACK"));
                self.value = before;
            }
            2 => drop(self.client.rows("BEGIN; SET LOCAL work_mem = '77MB'; COMMIT")),
            3 => {
                let sql = format!("PREPARE mine AS SELECT {round}");
                self.client.rows(&sql);
                assert_eq!(self.client.value("EXECUTE mine"), round.to_string());
                self.client.rows("DEALLOCATE mine");
            }
            4 => {
                self.client.rows(&format!("CREATE TEMP TABLE mine AS SELECT {number} AS n"));
                assert_eq!(self.client.value("SELECT n FROM pg_temp.mine"), number.to_string());
                self.client.rows("DROP TABLE pg_temp.mine");
            }
            _ => {
                let execute = [frontend::bind("", "place", &[]), frontend::execute("", 0)].concat();
                self.client.send([execute, frontend::sync()].concat());
                let answer = self.client.read_to_ready();
                let row = answer.iter().find(|message| message.tag == b'D').expect("a row").row();
                assert_eq!(row, [Some(number.to_string())], "client {number}, round {round}");
            }
        }
        self.check(round);
    }
}

#[test]
fn nobody_finds_what_a_client_of_another_worker_has_set_core_strict() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("auto");
    let pooler = setup.workers(2).set("default_pool_size", SERVERS).start();
    let mut superuser = Postgres::shared().superuser(&database);
    let player = |number| {
        superuser.rows(&format!(
            "CREATE SCHEMA s{number}; CREATE TABLE s{number}.place AS SELECT {number} AS n; \
             GRANT ALL ON SCHEMA s{number} TO PUBLIC; GRANT ALL ON s{number}.place TO PUBLIC"
        ));
        let mut player = Player { client: pooler.client(&database), number, value: 0 };
        let sql = player.sets(1000 + number);
        player.client.rows(&sql);
        // One text for all, of another table for each.
        let parse = frontend::parse("place", "SELECT n FROM place");
        player.client.send([parse, frontend::sync()].concat());
        player.client.read_to_ready();
        player
    };
    let players: Vec<_> = (0..CLIENTS).map(player).collect();
    std::thread::scope(|scope| {
        for mut player in players {
            scope.spawn(move || (0..ROUNDS).for_each(|round| player.play(round)));
        }
    });
    assert!(pooler.admin("SHOW SERVERS").rows.len() <= SERVERS);
}
