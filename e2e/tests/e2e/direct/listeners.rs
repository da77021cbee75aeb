//! Many clients that listen: their backends go back to the lobby.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use testkit::{RawClient, eventually, frontend};

use super::{Direct, PATIENCE, execute};
use crate::auto::listen::{hear, said};
use crate::support;

impl Direct {
    /// Returns the number of logins at PostgreSQL so far.
    fn logins(&self) -> usize {
        self.pooler.log().matches("new connection to server").count()
    }

    fn cl_active(&self) -> usize {
        self.column("cl_active").parse().expect("a number")
    }
}

const SIZE: u32 = 4;
const LISTENERS: usize = 300;

#[test]
fn clients_that_listen_cost_no_logins_and_hold_up_nobody() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(SIZE);
    let mut clients = direct.clients(LISTENERS);
    let over = AtomicBool::new(false);
    let mut other = direct.client();
    std::thread::scope(|scope| {
        // Another client of the pool is served meanwhile.
        let other = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !over.load(Ordering::SeqCst) {
                let begun = Instant::now();
                assert_eq!(other.value("SELECT 1"), "1");
                longest = longest.max(begun.elapsed());
                std::thread::yield_now();
            }
            longest
        });
        let end = End(&over);
        for (number, client) in clients.iter_mut().enumerate() {
            // The state of one must not be seen by another one that gets its backend.
            let own =
                format!("SET work_mem = '{}kB'; LISTEN everybody; LISTEN c{number}", 64 + number);
            let statement = frontend::parse("own", &format!("SELECT {number}"));
            client.send([statement, frontend::sync(), frontend::query(&own)].concat());
        }
        for client in &mut clients {
            client.set_timeout(PATIENCE);
            client.read_to_ready();
            assert!(client.read_to_ready().iter().all(|message| message.error().is_none()));
        }
        drop(end);
        let longest = other.join().expect("it is served");
        assert!(longest < Duration::from_secs(5), "{longest:?}");
    });
    direct.until_nobody_is_pinned();
    let logins = direct.logins();
    // One of them is the connection that listens.
    assert!(logins <= SIZE as usize + 1, "{logins} logins\n{}", direct.pooler.log());
    assert_eq!(direct.column("data_path"), "direct");
    direct.postgres.sql(&direct.database, "NOTIFY everybody, 'all'");
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(hear(client, 1), ["all"]);
        if number % 10 == 0 {
            assert_eq!(client.value("SHOW work_mem"), format!("{}kB", 64 + number));
            client.send([execute("own"), frontend::sync()].concat());
            let answer = client.read_to_ready();
            let row = answer.iter().find(|message| message.tag == b'D').expect("a row").row();
            assert_eq!(row[0].as_deref(), Some(&*number.to_string()));
        }
    }
    let mut new = direct.client();
    assert_eq!(new.value("SHOW work_mem"), "4MB");
    assert_eq!(new.value("SELECT count(*) FROM pg_prepared_statements"), "0");
    assert_eq!(new.value("SELECT count(*) FROM pg_listening_channels()"), "0");
    assert!(direct.backends().len() <= SIZE as usize + 1);
    drop(clients);
    eventually("they have left", PATIENCE, || (direct.cl_active() == 2).then_some(()));
}

/// Reads up to ReadyForQuery. Returns false if there is an error, or the connection has ended.
fn is_served(client: &mut RawClient) -> bool {
    loop {
        match client.try_read() {
            Ok(Some(message)) if message.error().is_some() => return false,
            Ok(Some(message)) if message.tag == b'Z' => return true,
            Ok(Some(_)) => {}
            Ok(None) => return false,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return false,
            Err(error) => panic!("a client is not served: {error}"),
        }
    }
}

/// Connects, listens, and leaves or stays, until it is `over`. A client may be lost.
fn come_and_listen(direct: (u16, &str), over: &AtomicBool, count: &AtomicUsize) -> Vec<RawClient> {
    let (port, database) = direct;
    let mut stay = Vec::new();
    for number in 0.. {
        if over.load(Ordering::SeqCst) {
            break;
        }
        let mut client = RawClient::connect(port);
        let startup = frontend::startup(&[("user", "app"), ("database", database)]);
        client.send([startup, frontend::query("LISTEN steady")].concat());
        client.set_timeout(PATIENCE);
        if is_served(&mut client) && is_served(&mut client) {
            count.fetch_add(1, Ordering::SeqCst);
            if number % 8 == 0 {
                stay.push(client);
            }
        }
    }
    stay
}

/// Ends the flood, also if the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Servers are on their way between the lobby and the clients that listen while something happens to
/// them.
#[track_caller]
fn goes_on_after(rounds: usize, happens: impl Fn(&mut Direct)) {
    if !support::only_weir() {
        return;
    }
    let mut direct = Direct::start_with(3, |setup| setup.workers(2).set("server_login_retry", 1));
    let (port, database) = (direct.pooler.port(), direct.database.clone());
    let (over, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let come = || come_and_listen((port, &database), &over, &count);
        let floods: Vec<_> = (0..3).map(|_| scope.spawn(come)).collect();
        let end = End(&over);
        for _ in 0..rounds {
            let before = count.load(Ordering::SeqCst);
            eventually("more clients listen", PATIENCE, || {
                (count.load(Ordering::SeqCst) > before + 20).then_some(())
            });
            happens(&mut direct);
        }
        let before = count.load(Ordering::SeqCst);
        eventually("clients listen on", PATIENCE, || {
            (count.load(Ordering::SeqCst) > before + 20).then_some(())
        });
        drop(end);
        floods.into_iter().for_each(|flood| drop(flood.join().expect("it ends")));
    });
    direct.until_nobody_is_pinned();
    let mut client = direct.client();
    client.rows("LISTEN steady");
    direct.until_nobody_is_pinned();
    direct.postgres.sql(&direct.database, "NOTIFY steady, 'last'");
    client.read_until(|message| said(message).is_some_and(|(_, _, told)| told == "last"));
    // A lobby that nobody used was not handed over, and a trial may have had no room.
    eventually("the pool is direct", PATIENCE, || {
        drop(direct.client());
        (direct.column("data_path") == "direct").then_some(())
    });
    // No server is lost: all of them work at the same time.
    let mut busy = direct.clients(3);
    for client in &mut busy {
        client.rows("BEGIN");
    }
    eventually("the pool has its size", PATIENCE, || (direct.backends().len() <= 4).then_some(()));
}

#[test]
fn backends_may_end_on_their_way_back() {
    goes_on_after(10, |direct| {
        let text = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                    WHERE datname = current_database() AND pid <> pg_backend_pid()";
        direct.postgres.sql(&direct.database, text);
    });
}

#[test]
fn servers_may_be_replaced_on_their_way_back() {
    goes_on_after(10, |direct| {
        direct.pooler.admin("RECONNECT");
    });
}

#[test]
fn a_pooler_may_be_suspended_while_servers_are_on_their_way_back() {
    goes_on_after(6, |direct| {
        // It ends with the connection to the console.
        direct.pooler.admin("SUSPEND");
    });
}

#[test]
fn another_process_may_take_over_while_servers_are_on_their_way_back() {
    goes_on_after(4, |direct| {
        assert_eq!(direct.pooler.take_over().code(), Some(0), "{}", direct.pooler.log());
    });
}

#[test]
fn a_pool_may_be_paused_while_servers_are_on_their_way_back() {
    goes_on_after(10, |direct| {
        direct.pooler.admin(&format!("PAUSE {}", direct.database));
        direct.pooler.admin(&format!("RESUME {}", direct.database));
    });
}

/// A backend on its way waits five seconds for Weir. If it has given up, the lobby does not wait for
/// it.
#[test]
fn weir_may_stand_still_while_servers_are_on_their_way_back() {
    goes_on_after(2, |direct| {
        direct.pooler.signal("STOP");
        std::thread::sleep(Duration::from_secs(6));
        direct.pooler.signal("CONT");
    });
}

/// It was opened for transaction mode, which knows no channels.
#[test]
fn a_client_keeps_no_server_of_another_mode() {
    if !support::only_weir() {
        return;
    }
    let mut direct = Direct::start_with(2, |setup| setup.set("pool_mode", "transaction"));
    let mut client = direct.client();
    client.rows("LISTEN steady");
    direct.until_pinned_as(&["direct pool"]);
    direct.pooler.reconfigure(|ini| ini.set("pool_mode", "auto"));
    direct.pooler.reload();
    // It leaves after a transaction whose backend knows of the mode. The listener then hears for it,
    // and it is warned that it may have missed something.
    client.set_timeout(PATIENCE);
    eventually("it leaves", PATIENCE, || {
        client.send(frontend::query("SELECT 1"));
        client.read_to_ready().iter().any(|message| message.tag == b'N').then_some(())
    });
    direct.postgres.sql(&direct.database, "NOTIFY steady, 'heard'");
    client.read_until(|message| said(message).is_some_and(|(_, _, told)| told == "heard"));
    assert_eq!(direct.client().value("SELECT 2"), "2");
}
