//! Nodes that an API like Patroni's names, and APIs that do not work. The API is a fake, so that it
//! can do what Patroni does not.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Pooler, Postgres, Setup, eventually, frontend};

use super::{PATIENCE, cluster, farewell, node_of, until_nodes_are, write};
use crate::support;

/// The way in which the API answers.
#[derive(Clone, Debug)]
enum Reply {
    /// These bytes, and the end.
    Bytes(Vec<u8>),
    /// This list for `/cluster`, and this system identifier for `/patroni`.
    Members(String, u64),
    /// Alternately these lists, with this system identifier.
    Either([String; 2], u64),
    /// No answer.
    Silence,
    /// An answer without an end.
    Flood,
    /// An answer without an end, a byte at a time.
    Drip,
}

/// An API on a port of its own.
struct Api {
    port: u16,
    reply: Arc<Mutex<Reply>>,
    /// The number of connections so far.
    count: Arc<AtomicUsize>,
}

impl Api {
    fn new(reply: Reply) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("a bound socket").port();
        let reply = Arc::new(Mutex::new(reply));
        let shared = Arc::clone(&reply);
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let number = counter.fetch_add(1, Ordering::Relaxed);
                let reply = match shared.lock().expect("no panic").clone() {
                    Reply::Either(lists, system) => {
                        Reply::Members(lists[number % 2].clone(), system)
                    }
                    other => other,
                };
                thread::spawn(move || serve(stream, reply));
            }
        });
        Self { port, reply, count }
    }

    fn answer(&self, reply: Reply) {
        *self.reply.lock().expect("no panic") = reply;
    }
}

fn serve(mut stream: TcpStream, reply: Reply) {
    let mut head = Vec::new();
    let mut buffer = [0; 1_024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(len @ 1..) => head.extend_from_slice(&buffer[..len]),
            Ok(0) | Err(_) => return,
        }
    }
    // The client may have gone.
    let _ = match reply {
        Reply::Bytes(bytes) => stream.write_all(&bytes),
        Reply::Members(list, system) => {
            let body = match head.starts_with(b"GET /patroni ") {
                true => format!("{{\"database_system_identifier\": \"{system}\"}}"),
                false => format!("{{\"members\": [{list}]}}"),
            };
            stream.write_all(&http("200 OK", &body))
        }
        Reply::Either(..) => unreachable!("one of them"),
        Reply::Silence => stream.read(&mut buffer).map(drop),
        Reply::Flood => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n[");
            while stream.write_all(&[b' '; 65_536]).is_ok() {}
            Ok(())
        }
        Reply::Drip => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n[");
            while stream.write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        }
    };
}

fn http(status: &str, body: &str) -> Vec<u8> {
    let len = body.len();
    format!("HTTP/1.0 {status}\r\nContent-Length: {len}\r\n\r\n{body}").into_bytes()
}

/// Returns the list of these nodes, which are called a, b, c.
fn list(nodes: &[(&str, u16)]) -> String {
    let member = |(name, port): &(&str, u16)| {
        format!("{{\"name\": \"{name}\", \"host\": \"127.0.0.1\", \"port\": {port}}}")
    };
    nodes.iter().map(member).collect::<Vec<_>>().join(", ")
}

fn system_of(node: &Postgres) -> u64 {
    let rows = node.sql("postgres", "SELECT system_identifier FROM pg_control_system()");
    rows[0][0].as_ref().and_then(|text| text.parse().ok()).expect("a number")
}

fn setup(node: &Postgres, apis: &[&Api], keys: &str) -> Setup {
    let apis: Vec<_> = apis.iter().map(|api| format!("127.0.0.1:{}", api.port)).collect();
    let apis = apis.join(", ");
    let common = "password=weir-secret discovery_interval=0.1";
    Pooler::before(node)
        .set("pool_mode", "auto")
        .cluster("main", &format!("patroni='{apis}' {common} {keys}"))
        .database_at("app", "cluster=main dbname=postgres")
}

#[track_caller]
fn until_trouble_is(pooler: &Pooler, part: &str) {
    eventually(&format!("the trouble is {part:?}"), PATIENCE, || {
        let clusters = pooler.admin("SHOW CLUSTERS");
        clusters.only("source_error").contains(part).then_some(())
    });
}

#[test]
fn an_api_that_does_not_work_leaves_the_nodes_as_they_were_known() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let members = list(&[("a", a.port()), ("b", b.port())]);
    let good = Reply::Members(members.clone(), system_of(a));
    let api = Api::new(good.clone());
    let other = format!("host=127.0.0.1 port={} dbname=postgres", a.port());
    let setup = setup(a, &[&api], "health_timeout=0.5").database_at("other", &other);
    let pooler = setup.start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let mut client = pooler.client("app");
    let mut elsewhere = pooler.client("other");
    write(&mut client, "before");
    let elsewhere_in_the_cluster = list(&[("a", b.port()), ("x", 1)]);
    for (reply, trouble) in [
        (Reply::Silence, "no answer within 0.5 s"),
        (Reply::Drip, "no answer within 0.5 s"),
        (Reply::Bytes(Vec::new()), "no valid answer: connection closed"),
        (Reply::Bytes(b"SSH-2.0-OpenSSH\r\n".to_vec()), "no valid answer: "),
        (Reply::Bytes([b"HTTP/1.1 200 OK\r\nX: ", &[b'x'; 100_000][..]].concat()), "no valid"),
        (Reply::Flood, "no valid answer: length limit exceeded"),
        (Reply::Bytes(http("200 OK", "<html>")), "it is not a list of members: expected value"),
        (Reply::Bytes(http("200 OK", &"[".repeat(100_000))), "it is not a list of members: "),
        (Reply::Bytes(http("200 OK", "{\"members\": []}")), "no member has an address"),
        (Reply::Bytes(http("503 Unavailable", "no etcd")), "503 Service Unavailable: no etcd"),
        (
            Reply::Bytes(b"HTTP/1.1 301 Moved\r\nLocation: /elsewhere\r\n\r\n".to_vec()),
            "HTTP status 301",
        ),
        (
            Reply::Members(elsewhere_in_the_cluster, 1),
            "it belongs to another cluster, with the system identifier 1 and not ",
        ),
    ] {
        api.answer(reply);
        until_trouble_is(&pooler, trouble);
        until_nodes_are(&pooler, &["writable", "readable"]);
        write(&mut client, "meanwhile");
        assert_eq!(elsewhere.value("SELECT 1"), "1");
        assert_eq!(node_of(&mut pooler.client("app")), a.port());
    }
    // One line for all of it.
    let said = "its nodes stay as they were known";
    assert_eq!(pooler.log().matches(said).count(), 1, "{}", pooler.log());
    // A reload does not forget the nodes.
    pooler.reload();
    until_nodes_are(&pooler, &["writable", "readable"]);
    assert_eq!(node_of(&mut client), a.port());
    api.answer(good);
    pooler.log_contains("cluster main: its nodes can be found again");
    until_trouble_is(&pooler, "");
}

/// The roles in a list are not believed, nor that a node belongs to the cluster.
#[test]
fn an_api_that_lies_about_the_nodes_is_not_believed() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let stranger = Postgres::start_unrelated().with_standbys(0).remove(0);
    let member = |name: &str, role: &str, node: &Postgres| {
        let port = node.port();
        format!(
            "{{\"name\": \"{name}\", \"role\": \"{role}\", \"state\": \"running\", \"host\": \
             \"127.0.0.1\", \"port\": {port}, \"timeline\": 99}}"
        )
    };
    let says = |members: &[String]| Reply::Members(members.join(", "), system_of(a));
    let api = Api::new(says(&[member("a", "leader", a), member("b", "replica", b)]));
    let pooler = setup(a, &[&api], "sample_interval=0.2").start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let mut client = pooler.client("app");
    // A standby and a stranger are the leaders, as after a mistake in etcd.
    api.answer(says(&[
        member("a", "replica", a),
        member("b", "leader", b),
        member("c", "leader", &stranger),
    ]));
    let shown = until_nodes_are(&pooler, &["writable", "readable", "unfit"]);
    assert!(shown.column("reason")[2].starts_with("system identifier "), "{shown:?}");
    // The names of two nodes are changed round.
    api.answer(says(&[member("b", "replica", a), member("a", "leader", b)]));
    eventually("the names are new", PATIENCE, || {
        let shown = pooler.admin("SHOW NODES").with("state", "writable");
        (shown.column("node") == ["b"]).then_some(())
    });
    for _ in 0..10 {
        assert_eq!(node_of(&mut pooler.client("app")), a.port());
    }
    assert_eq!(node_of(&mut client), a.port());
}

#[test]
fn another_api_is_asked_if_the_first_one_does_not_work() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(0);
    let [a] = &nodes[..] else { unreachable!("one node") };
    let [silent, good] =
        [Reply::Silence, Reply::Members(list(&[("a", a.port())]), system_of(a))].map(Api::new);
    let pooler = setup(a, &[&silent, &good], "health_timeout=0.3").start();
    until_nodes_are(&pooler, &["writable"]);
    assert_eq!(pooler.admin("SHOW CLUSTERS").only("source_error"), "");
}

#[test]
fn without_nodes_clients_are_told_why() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(0);
    let [a] = &nodes[..] else { unreachable!("one node") };
    let api = Api::new(Reply::Bytes(http("500 Oops", "it is broken")));
    let pooler = setup(a, &[&api], "failover_wait=1").start();
    until_trouble_is(&pooler, "it is broken");
    let clusters = pooler.admin("SHOW CLUSTERS");
    assert_eq!(clusters.only("reason"), "its nodes are not known yet");
    let mut client = testkit::RawClient::connect(pooler.port());
    client.send(frontend::startup(&[("user", "app"), ("database", "app")]));
    let error = farewell(&mut client);
    assert_eq!((error.severity(), error.code()), ("FATAL", "57P03"));
    let expected = format!(
        "cluster main has no primary: its nodes are not known: Patroni at 127.0.0.1:{}: HTTP status \
         500 Internal Server Error: it is broken",
        api.port
    );
    assert_eq!(error.message(), expected);
    api.answer(Reply::Members(list(&[("a", a.port())]), system_of(a)));
    let began = Instant::now();
    assert_eq!(node_of(&mut pooler.client("app")), a.port());
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[test]
fn found_nodes_come_and_go_but_the_primary_stays() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(2);
    let [a, b, c] = &nodes[..] else { unreachable!("three nodes") };
    let system = system_of(a);
    let [at_a, at_b, at_c] = [("a", a.port()), ("b", b.port()), ("c", c.port())];
    let members = |nodes: &[(&str, u16)]| Reply::Members(list(nodes), system);
    let api = Api::new(members(&[at_a, at_b]));
    let mut pooler = setup(a, &[&api], "sample_interval=0.2").start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let mut pinned = pooler.client("app");
    pinned.rows("CREATE TEMP TABLE mine (number int)");
    let backend = pinned.value("SELECT pg_backend_pid()");
    api.answer(members(&[at_b, at_c, at_a]));
    until_nodes_are(&pooler, &["writable", "readable", "readable"]);
    // Patroni does not list a lost primary any more, and has not promoted another one.
    api.answer(members(&[at_c]));
    until_nodes_are(&pooler, &["writable", "readable"]);
    assert_eq!(pooler.admin("SHOW NODES").column("node"), ["a", "c"]);
    assert_eq!(pinned.value("SELECT pg_backend_pid()"), backend);
    // The new process knows the nodes, although it finds none.
    api.answer(Reply::Silence);
    pooler.take_over();
    until_nodes_are(&pooler, &["writable", "readable"]);
    assert_eq!(pinned.value("SELECT pg_backend_pid()"), backend);
    assert_eq!(pooler.admin("SHOW NODES").column("node"), ["a", "c"]);
    api.answer(members(&[at_c]));
    a.stop();
    c.promote();
    eventually("a has gone", PATIENCE, || {
        (pooler.admin("SHOW NODES").column("node") == ["c"]).then_some(())
    });
    until_nodes_are(&pooler, &["writable"]);
    assert_eq!(node_of(&mut pooler.client("app")), c.port());
    let failovers = pooler.admin("SHOW FAILOVERS");
    assert_eq!(failovers.column("to_node").last(), Some(&"c"));
}

#[test]
fn a_list_that_always_changes_is_not_asked_for_more_often() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(0);
    let [a] = &nodes[..] else { unreachable!("one node") };
    let alone = ("a", a.port());
    let lists = [list(&[alone]), list(&[alone, ("b", 1)])];
    let api = Api::new(Reply::Members(lists[0].clone(), system_of(a)));
    let keys = "discovery_interval=0.5 sample_interval=0.1";
    let pooler = setup(a, &[&api], keys).start();
    until_nodes_are(&pooler, &["writable"]);
    let before = api.count.load(Ordering::Relaxed);
    let began = Instant::now();
    api.answer(Reply::Either(lists, system_of(a)));
    eventually("both lists were seen", PATIENCE, || {
        (pooler.log().matches("its nodes are").count() > 4).then_some(())
    });
    let asked = api.count.load(Ordering::Relaxed) - before;
    let intervals = began.elapsed().as_millis() / 500 + 1;
    // A new list costs a second question.
    assert!(asked as u128 <= 2 * intervals, "{asked} questions in {:?}", began.elapsed());
    assert_eq!(node_of(&mut pooler.client("app")), a.port());
}

#[test]
fn a_switchover_that_patroni_refuses_is_over_at_once() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let api = Api::new(Reply::Members(list(&[("a", a.port()), ("b", b.port())]), system_of(a)));
    let pooler = setup(a, &[&api], "discovery_interval=60").start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let refused = |reply: Reply| {
        api.answer(reply);
        let error = pooler.try_admin("SWITCHOVER app TO b").error.expect("it is refused");
        assert_eq!(node_of(&mut pooler.client("app")), a.port());
        error.message().to_owned()
    };
    let at = format!("Patroni at 127.0.0.1:{}", api.port);
    let no_candidate = http("412 Precondition Failed", "no good candidates have been found");
    assert_eq!(
        refused(Reply::Bytes(no_candidate)),
        format!(
            "switchover failed: {at}: HTTP status 412 Precondition Failed: no good candidates have \
             been found"
        )
    );
    assert_eq!(
        refused(Reply::Bytes(http("401 Unauthorized", "no auth header received"))),
        format!("switchover failed: {at}: HTTP status 401 Unauthorized: no auth header received")
    );
    let began = Instant::now();
    assert_eq!(
        refused(Reply::Bytes(http("503 Service Unavailable", "Switchover failed"))),
        format!(
            "switchover failed: node a is still the primary: {at}: HTTP status 503 Service \
             Unavailable: Switchover failed"
        )
    );
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn the_check_of_a_configuration_finds_the_nodes() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(0);
    let [a] = &nodes[..] else { unreachable!("one node") };
    let api = Api::new(Reply::Members(list(&[("a", a.port())]), system_of(a)));
    let pooler = setup(a, &[&api], "health_timeout=0.5").start();
    let check = || {
        let mut command = Command::new(testkit::pooler_binary());
        command.args(["check-config", "--connect"]).arg(pooler.configuration());
        let output = command.output().expect("weir runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = check();
    assert!(said.contains("cluster main: patroni names the nodes a"), "{said}");
    assert!(said.contains("cluster main: node a: logged in as weir"), "{said}");
    let text = format!("nodes by Patroni at 127.0.0.1:{}", api.port);
    assert!(said.contains(&text), "{said}");
    api.answer(Reply::Silence);
    let said = check();
    assert!(said.contains("no answer within 0.5 s"), "{said}");
}
