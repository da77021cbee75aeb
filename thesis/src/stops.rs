//! PostgreSQL stops, whatever servers a pool has.

use std::time::{Duration, Instant};

use testkit::{RawClient, poll_until};

use crate::requirement::Requirement;
use crate::results::{Table, Verdict};
use crate::run::Run;
use crate::site::{Path, Site, Wish, quit};

pub(crate) const ALL: &[Requirement] = &[Requirement { name: "postgresql stops", show: stops }];

const DATABASE: &str = "bsu";
const USER: &str = "dbuser1";
const SERVERS: usize = 32;
const FAST_WITHIN: Duration = Duration::from_secs(2);
/// Longer than the `server_idle_timeout` of the site.
const SMART_WITHIN: Duration = Duration::from_secs(20);

/// Each way of stopping with no server, with idle and with busy ones.
fn stops(run: &Run, path: Path) -> Verdict {
    let mut table = Table::new(["pg_ctl stop", "servers", "milliseconds", "processes left"]);
    let mut wrong = Vec::new();
    let mut longest = [Duration::ZERO; 3];
    for (way, (mode, signal)) in
        [("smart", "TERM"), ("fast", "INT"), ("immediate", "QUIT")].into_iter().enumerate()
    {
        for state in ["none", "32 idle", "32 busy"] {
            let wish = Wish::new(&[DATABASE], &[USER]).key("server_idle_timeout", 2);
            let site = Site::start(path, &wish);
            let mut clients: Vec<RawClient> = Vec::new();
            if state != "none" {
                clients.extend((0..SERVERS).map(|_| site.client(USER, DATABASE)));
                clients.iter_mut().for_each(|client| drop(client.rows("BEGIN")));
            }
            if state == "32 idle" {
                clients.drain(..).for_each(|mut client| {
                    client.rows("COMMIT");
                    quit(client);
                });
            }
            let began = Instant::now();
            site.signal(signal);
            if mode == "smart" {
                // PostgreSQL waits for the transactions of clients, by definition.
                clients.drain(..).for_each(|mut client| {
                    client.query("COMMIT");
                    quit(client);
                });
            }
            let has_ended = poll_until(SMART_WITHIN, || {
                (!site.socket_folder().join("data/postmaster.pid").exists()).then_some(())
            });
            let took = began.elapsed();
            poll_until(FAST_WITHIN, || site.processes().next().is_none().then_some(()));
            let left = site.processes().count();
            longest[way] = longest[way].max(took);
            let limit = if mode == "smart" { SMART_WITHIN } else { FAST_WITHIN };
            if has_ended.is_none() || took > limit || left > 0 {
                wrong.push(format!("{mode}, {state}: {} ms, {left} left", took.as_millis()));
            }
            let row = [took.as_millis().to_string(), left.to_string()];
            let [took, left] = row;
            table.row([mode.to_owned(), state.to_owned(), took, left]);
        }
    }
    table.write(&format!("stops-{}", path.file()), run);
    let [smart, fast, immediate] = longest.map(|took| took.as_millis());
    let figure = match wrong.is_empty() {
        true => format!("smart {smart} ms, fast {fast} ms, immediate {immediate} ms; none left"),
        false => wrong.join("; "),
    };
    Verdict::of(wrong.is_empty(), figure)
}
