//! One capacity for the servers of all pools, with replacement of the least recently used one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use testkit::{RawClient, eventually, poll_until, send_signal};

use crate::requirement::Requirement;
use crate::results::{Table, Verdict};
use crate::run::Run;
use crate::site::{PATIENCE, Path, Site, Wish, pid, quit};

pub(crate) const ALL: &[Requirement] = &[
    Requirement { name: "lru over all pools", show: lru },
    Requirement { name: "idle servers are no reason to refuse", show: full },
    Requirement { name: "busy servers are never evicted", show: busy },
    Requirement { name: "slots of superusers stay free", show: reserved },
    Requirement { name: "an evicted backend that dies slowly", show: slow },
];

const CAPACITY: usize = 32;
/// The longest wait for a server whose place a stopped backend has.
const SERVED_WITHIN: Duration = Duration::from_secs(3);
const DATABASE: &str = "bsu";
const ADMIN: &str = "mshelton";
const USERS: [&str; 3] = ["dbuser1", "dbuser2", "dbuser3"];
const ALL_USERS: [&str; 4] = [ADMIN, USERS[0], USERS[1], USERS[2]];

/// Returns a site with the capacity. PostgreSQL has exactly as many slots for ordinary roles, and one
/// for the superuser that watches.
fn site(path: Path) -> Site {
    let slots = CAPACITY + 1 + 3;
    let wish = Wish::new(&[DATABASE], &USERS)
        .superuser(ADMIN)
        .key("max_server_connections", CAPACITY)
        .setting(&format!("max_connections = {slots}\nsuperuser_reserved_connections = 3"));
    Site::start(path, &wish)
}

/// Watches the backends of the database.
struct Watch(RawClient);

impl Watch {
    fn new(site: &Site) -> Self {
        Self(site.superuser("postgres"))
    }

    /// Returns the backends of each user, in the order of their process ids.
    fn backends(&mut self) -> BTreeMap<String, Vec<u32>> {
        let sql = format!(
            "SELECT usename, pid FROM pg_stat_activity WHERE datname = '{DATABASE}' \
             AND backend_type = 'client backend' ORDER BY pid"
        );
        let mut all = BTreeMap::<_, Vec<_>>::new();
        for row in self.0.rows(&sql) {
            let mut words = row.into_iter().map(|word| word.expect("not NULL"));
            let (user, pid) = (words.next().expect("a name"), words.next().expect("a number"));
            all.entry(user).or_default().push(pid.parse().expect("a number"));
        }
        all
    }

    fn counts(&mut self) -> [usize; 4] {
        let all = self.backends();
        ALL_USERS.map(|user| all.get(user).map_or(0, Vec::len))
    }

    fn total(&mut self) -> usize {
        self.counts().iter().sum()
    }
}

/// So many clients of a user, each of which holds a server. Returns them with their servers' process
/// ids, in the order in which they got them.
fn spawn(site: &Site, user: &str, count: usize) -> Vec<(RawClient, u32)> {
    let mut clients: Vec<_> = (0..count).map(|_| site.client(user, DATABASE)).collect();
    let mut held = Vec::new();
    for mut client in clients.drain(..) {
        client.rows("BEGIN");
        let server = pid(&mut client);
        held.push((client, server));
    }
    held
}

/// Each client runs its ten queries and leaves, in order.
fn finish(held: Vec<(RawClient, u32)>) -> Vec<u32> {
    held.into_iter()
        .map(|(mut client, server)| {
            for number in 0..10 {
                client.rows(&format!("INSERT INTO entries VALUES ({number})"));
            }
            client.rows("COMMIT");
            quit(client);
            server
        })
        .collect()
}

/// The scenario in which the thesis verified its replacement: five steps of clients, and the number
/// of servers that each user has afterwards.
fn lru(run: &Run, path: Path) -> Verdict {
    const STEPS: [(&str, usize, [usize; 4]); 5] = [
        (ADMIN, 32, [32, 0, 0, 0]),
        (USERS[0], 16, [16, 16, 0, 0]),
        (USERS[1], 8, [8, 16, 8, 0]),
        (ADMIN, 4, [8, 16, 8, 0]),
        (USERS[2], 8, [4, 12, 8, 8]),
    ];
    let site = site(path);
    site.sql(DATABASE, "CREATE TABLE entries (n int); GRANT ALL ON entries TO PUBLIC");
    let mut watch = Watch::new(&site);
    let mut table =
        Table::new(["step", "clients", "user", "servers of each user", "of the thesis"]);
    let mut used = Vec::new();
    let mut wrong = Vec::new();
    for (number, (user, count, expected)) in STEPS.into_iter().enumerate() {
        used.push(finish(spawn(&site, user, count)));
        // A backend that was told to end may need a moment for it.
        let is_settled = |seen: [usize; 4]| match path {
            Path::Proxied | Path::Builtin => seen == expected,
            Path::Direct => seen.iter().sum::<usize>() <= CAPACITY,
        };
        poll_until(PATIENCE, || is_settled(watch.counts()).then_some(()));
        let seen = watch.counts();
        let step = number + 1;
        let words = [seen, expected].map(|counts| counts.map(|one| one.to_string()).join("/"));
        let is_right = match path {
            Path::Proxied | Path::Builtin => seen == expected,
            // A server may just have left for a client that needs it no longer.
            Path::Direct => (CAPACITY - 1..=CAPACITY).contains(&seen.iter().sum()),
        };
        if !is_right {
            wrong.push(format!("step {step}: {} and not {}", words[0], words[1]));
        }
        let [seen, expected] = words;
        table.row([step.to_string(), count.to_string(), user.to_owned(), seen, expected]);
    }
    table.write(&format!("lru-{}", path.file()), run);
    let left = watch.backends();
    let of = |user: &str| left.get(user).cloned().unwrap_or_default();
    let sorted = |pids: &[u32]| {
        let mut pids = pids.to_vec();
        pids.sort_unstable();
        pids
    };
    let counts = watch.counts().map(|one| one.to_string()).join("/");
    if path == Path::Direct {
        // A lobby opens another backend while a client waits for one that is being opened.
        if !used[3].iter().all(|pid| of(ADMIN).contains(pid)) {
            wrong.push(format!("{ADMIN} has {:?} and not {:?}", of(ADMIN), used[3]));
        }
        let figure = format!(
            "{counts}: a lobby opens backends ahead of need; the four used last survive; {}",
            wrong.join("; ")
        );
        return Verdict::of(wrong.is_empty(), figure.trim_end_matches("; ").to_owned());
    }
    if of(ADMIN) != sorted(&used[3]) {
        wrong.push(format!("{ADMIN} has {:?} and not {:?}", of(ADMIN), sorted(&used[3])));
    }
    if of(USERS[0]) != sorted(&used[1][4..]) {
        wrong.push(format!("{} has {:?}; in order: {:?}", USERS[0], of(USERS[0]), used[1]));
    }
    let figure = format!("{counts}, the survivors by process id; {}", wrong.join("; "));
    Verdict::of(wrong.is_empty(), figure.trim_end_matches("; ").to_owned())
}

/// Idle servers of one user fill the capacity, and all slots of PostgreSQL. Each login of another
/// user succeeds.
fn full(run: &Run, path: Path) -> Verdict {
    let site = site(path);
    site.sql(DATABASE, "CREATE TABLE entries (n int); GRANT ALL ON entries TO PUBLIC");
    let mut watch = Watch::new(&site);
    let (mut longest, mut most) = (Duration::ZERO, 0);
    let rounds = run.count(30, 6);
    for round in 0..rounds {
        let user = USERS[round % 3];
        let mut held = Vec::new();
        for number in 0..CAPACITY {
            let mut client = match site.login(user, DATABASE) {
                Ok(client) => client,
                Err(e) => {
                    return Verdict::Failed(format!("login {number} of round {round}: {e:?}"));
                }
            };
            let began = Instant::now();
            if let Some(e) = client.query("BEGIN").error {
                return Verdict::Failed(format!("client {number} of round {round}: {e:?}"));
            }
            longest = longest.max(began.elapsed());
            held.push((client, 0));
        }
        most = most.max(watch.total());
        finish(held);
    }
    let total = settled(&mut watch);
    let figure = format!(
        "{} logins by eviction, none refused; longest wait {} ms; at most {most} servers, {total} at the end",
        (rounds - 1) * CAPACITY,
        longest.as_millis()
    );
    Verdict::of(most <= CAPACITY + 1 && total == CAPACITY, figure)
}

/// Returns the number of servers when no backend is about to end any more.
fn settled(watch: &mut Watch) -> usize {
    poll_until(PATIENCE, || (watch.total() <= CAPACITY).then_some(()));
    watch.total()
}

/// All servers are busy. A client of another user waits, and no busy server ends for it.
fn busy(_: &Run, path: Path) -> Verdict {
    let site = site(path);
    let mut watch = Watch::new(&site);
    let mut held = spawn(&site, USERS[0], CAPACITY);
    let before = watch.backends();
    // Its login may wait for a server as well.
    let late = || pid(&mut site.client(USERS[1], DATABASE));
    std::thread::scope(|scope| {
        let late = scope.spawn(late);
        poll_until(Duration::from_secs(2), || late.is_finished().then_some(()));
        if late.is_finished() {
            return Verdict::Failed(format!("the client did not wait: {:?}", late.join()));
        }
        if watch.backends() != before {
            return Verdict::Failed("a busy server has ended".to_owned());
        }
        // Each client still has its own server.
        let own = |(client, server): &mut (RawClient, u32)| pid(client) == *server;
        let kept = held.iter_mut().filter_map(|one| own(one).then_some(())).count();
        let (mut first, _) = held.remove(0);
        first.rows("COMMIT");
        quit(first);
        let served = late.join().is_ok();
        let figure = format!(
            "{kept} of {CAPACITY} clients kept theirs while one waited for 2 s; served then: {served}"
        );
        Verdict::of(kept == CAPACITY && served, figure)
    })
}

/// All ordinary slots are busy. A superuser still gets in.
fn reserved(_: &Run, path: Path) -> Verdict {
    let site = site(path);
    let mut watch = Watch::new(&site);
    let held = spawn(&site, USERS[0], CAPACITY);
    let began = Instant::now();
    // The watcher has one of the four slots beyond the capacity.
    let mut direct: Vec<_> = (0..3).map(|_| site.superuser("postgres")).collect();
    let took = began.elapsed();
    direct.iter_mut().for_each(|client| assert_eq!(client.value("SELECT 1"), "1"));
    let total = watch.total();
    drop(held);
    let figure =
        format!("{total} busy servers; three superusers logged in within {} ms", took.as_millis());
    Verdict::of(took < Duration::from_secs(1) && total == CAPACITY, figure)
}

/// The server that is evicted is stopped by SIGSTOP, and ends seconds later.
fn slow(_: &Run, path: Path) -> Verdict {
    let site = site(path);
    site.sql(DATABASE, "CREATE TABLE entries (n int); GRANT ALL ON entries TO PUBLIC");
    let mut watch = Watch::new(&site);
    let old = finish(spawn(&site, USERS[0], CAPACITY));
    let stuck = old[0];
    send_signal(stuck, "STOP");
    let began = Instant::now();
    // A superuser: PostgreSQL has a slot for it while the stopped backend keeps its own.
    let mut other = site.client(ADMIN, DATABASE);
    let own = pid(&mut other);
    let took = began.elapsed();
    let most = watch.total();
    let stays = watch.backends()[USERS[0]].contains(&stuck);
    other.rows("BEGIN");
    send_signal(stuck, "CONT");
    eventually("the evicted backend ends", PATIENCE, || {
        (!watch.backends()[USERS[0]].contains(&stuck)).then_some(())
    });
    let same = pid(&mut other) == own && own != stuck;
    other.rows("COMMIT");
    let is_own = other.value("SELECT current_user") == ADMIN;
    let total = watch.total();
    let figure = format!(
        "served after {} ms; {most} servers meanwhile, {total} afterwards; mixed up: {}",
        took.as_millis(),
        !(same && is_own)
    );
    // A direct pool may have closed another one as well, since this one did not leave in time.
    let within = most <= CAPACITY + 1 && (CAPACITY - 1..=CAPACITY).contains(&total);
    let within = within && took < SERVED_WITHIN;
    Verdict::of(stays && same && is_own && within, figure)
}
