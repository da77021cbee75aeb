//! `weir bench -i`: the four tables of the built-in scripts, as `pgbench -i` makes them. The
//! accounts are copied with FREEZE, so the following VACUUM need not rewrite them, which would take
//! longer than everything else.

mod accounts;

use std::{sync::Arc, time::Instant};

use self::accounts::Accounts;
use crate::{options::Options, session::Session, target::Target};

const BRANCHES: u64 = 1;
const TELLERS: u64 = 10;
const ACCOUNTS: u64 = 100_000;
/// From this scale on, account numbers need more than 32 bits.
const SCALE_BIGINT: u32 = 20_000;

const TABLES: &str = "pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers";

/// # Errors
/// When the server cannot be reached, or returns an error.
pub(crate) fn initialize(options: &Options, target: &Arc<Target>) -> Result<(), String> {
    let (mut session, _) = Session::open(target)
        .map_err(|error| format!("{error}\ncould not create connection for initialization"))?;
    let scale = options.scale.unwrap_or(1);
    let begun = Instant::now();
    let mut times = Vec::new();
    let mut timed = |name: &str, step: &mut dyn FnMut() -> Result<(), String>| {
        let begun = Instant::now();
        step()?;
        times.push(format!("{name} {:.2} s", begun.elapsed().as_secs_f64()));
        Ok::<(), String>(())
    };
    timed("drop tables", &mut || drop_tables(&mut session))?;
    timed("create tables", &mut || create_tables(&mut session, scale))?;
    timed("client-side generate", &mut || generate(&mut session, options, scale))?;
    if !options.no_vacuum {
        timed("vacuum", &mut || vacuum(&mut session))?;
    }
    timed("primary keys", &mut || primary_keys(&mut session))?;
    eprintln!("done in {:.2} s ({}).", begun.elapsed().as_secs_f64(), times.join(", "));
    Ok(())
}

fn all(session: &mut Session, commands: &[&str]) -> Result<(), String> {
    commands.iter().try_for_each(|command| {
        let failed = |error| format!("query failed: {error}\nQuery was: {command}");
        session.query(command).map(drop).map_err(failed)
    })
}

fn drop_tables(session: &mut Session) -> Result<(), String> {
    eprintln!("dropping old tables...");
    all(session, &[&format!("drop table if exists {TABLES}")])
}

fn create_tables(session: &mut Session, scale: u32) -> Result<(), String> {
    eprintln!("creating tables...");
    let number = if scale >= SCALE_BIGINT { "bigint" } else { "int" };
    let fill = "with (fillfactor=100)";
    all(
        session,
        &[
            &format!(
                "create table pgbench_history(tid int,bid int,aid {number},delta int,\
                 mtime timestamp,filler char(22))"
            ),
            &format!(
                "create table pgbench_tellers(tid int not null,bid int,tbalance int,\
                 filler char(84)) {fill}"
            ),
            &format!(
                "create table pgbench_accounts(aid {number} not null,bid int,abalance int,\
                 filler char(84)) {fill}"
            ),
            &format!(
                "create table pgbench_branches(bid int not null,bbalance int,filler char(88)) \
                 {fill}"
            ),
        ],
    )
}

/// FREEZE requires a table that was created or truncated in the same transaction.
fn generate(session: &mut Session, options: &Options, scale: u32) -> Result<(), String> {
    eprintln!("generating data (client-side)...");
    all(session, &["begin", &format!("truncate table {TABLES}")])?;
    let scale = u64::from(scale);
    small_table(session, "pgbench_branches", scale * BRANCHES, |bid| format!("{bid}\t0\t\\N\n"))?;
    small_table(session, "pgbench_tellers", scale * TELLERS, |tid| {
        format!("{tid}\t{}\t0\t\\N\n", (tid - 1) / TELLERS + 1)
    })?;
    let mut accounts = Accounts::new(scale * ACCOUNTS, options.quiet);
    session
        .copy("copy pgbench_accounts from stdin with (freeze on)", |lines| accounts.fill(lines))?;
    all(session, &["commit"])
}

fn small_table(
    session: &mut Session,
    table: &str,
    rows: u64,
    line: impl Fn(u64) -> String,
) -> Result<(), String> {
    let mut next = 1;
    session.copy(&format!("copy {table} from stdin with (freeze on)"), |lines| {
        lines.extend_from_slice(line(next).as_bytes());
        next += 1;
        next <= rows
    })
}

fn vacuum(session: &mut Session) -> Result<(), String> {
    eprintln!("vacuuming...");
    all(
        session,
        &[
            "vacuum analyze pgbench_branches",
            "vacuum analyze pgbench_tellers",
            "vacuum analyze pgbench_accounts",
            "vacuum analyze pgbench_history",
        ],
    )
}

fn primary_keys(session: &mut Session) -> Result<(), String> {
    eprintln!("creating primary keys...");
    all(
        session,
        &[
            "alter table pgbench_branches add primary key (bid)",
            "alter table pgbench_tellers add primary key (tid)",
            "alter table pgbench_accounts add primary key (aid)",
        ],
    )
}
