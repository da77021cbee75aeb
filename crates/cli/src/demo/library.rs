//! `weir demo --library`: the server loads the library `weir`, and a client holds a lock that its
//! own texts do not show.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Child, ChildStdin, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use super::{
    child::{self, TICK},
    cluster::Cluster,
    names::LOOPBACK,
    terminal::{go_on, say},
};
use crate::sys;

const PATIENCE: Duration = Duration::from_secs(20);
const REASON: &str = "advisory lock";
/// The tables. A trigger takes an advisory lock of the session.
const TABLE: &str = "\
CREATE TABLE orders (id int);
CREATE FUNCTION lock_orders() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_advisory_lock(7); RETURN NEW; END';
CREATE TRIGGER lock_orders BEFORE INSERT ON orders
    FOR EACH ROW EXECUTE FUNCTION lock_orders();
";
const INSERT: &str = "INSERT INTO orders VALUES (1);";

/// Reads the library, which may be in a folder that only root can read.
///
/// # Errors
/// With a hint, when the file cannot be read.
pub(super) fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(file).with_context(|| {
        format!("could not read {} (\"make extension\" builds it)", file.display())
    })
}

/// The client that holds the lock. It ends when dropped.
#[derive(Debug)]
pub(super) struct Holder {
    child: Child,
    _input: Option<ChildStdin>,
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lets a client take the lock, and shows what the console says about it.
///
/// # Errors
/// When the console does not show the lock.
pub(super) fn show(cluster: &Cluster, port: u16) -> anyhow::Result<Holder> {
    cluster.sql(TABLE)?;
    let mut psql = cluster.client("psql", LOOPBACK, port);
    psql.args(["-X", "-q"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    sys::tie_to_us(&mut psql, libc::SIGKILL);
    let mut child = child::start(&mut psql)?;
    let mut input = child.stdin.take();
    if let Some(input) = &mut input {
        writeln!(input, "{INSERT}").context("psql")?;
    }
    let holder = Holder { child, _input: input };
    let begin = Instant::now();
    loop {
        go_on()?;
        let pins = pins(cluster, port)?;
        if pins.contains(REASON) {
            say("The server loads the library weir. A client has inserted a row:\n");
            say(&format!("    {INSERT}\n"));
            say(
                "A trigger has taken an advisory lock of the session. The text does not show that,",
            );
            say("but the server's report does. So the client keeps its server (SHOW PINS):\n");
            say(&pins);
            return Ok(holder);
        }
        if begin.elapsed() > PATIENCE {
            bail!("SHOW PINS does not show the lock:\n{pins}");
        }
        thread::sleep(TICK);
    }
}

fn pins(cluster: &Cluster, port: u16) -> anyhow::Result<String> {
    let mut psql = cluster.client("psql", LOOPBACK, port);
    psql.env("PGDATABASE", "pgbouncer").args(["-X", "-c", "SHOW PINS"]);
    child::run(psql, "")?.success("SHOW PINS")
}
