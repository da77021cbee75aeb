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
/// When a step is unknown, or the server returns an error.
pub(crate) fn initialize(options: &Options, target: &Arc<Target>) -> Result<(), String> {
    let steps = steps(options)?;
    let (mut session, _) = Session::open(target)
        .map_err(|error| format!("{error}\ncould not create connection for initialization"))?;
    let scale = options.scale.unwrap_or(1);
    let begun = Instant::now();
    let mut times = Vec::new();
    for step in steps {
        let step_begun = Instant::now();
        let name = match step {
            'd' => drop_tables(&mut session),
            't' => create_tables(&mut session, options, scale),
            'g' => generate(&mut session, options, scale),
            'G' => generate_on_server(&mut session, scale),
            'v' => vacuum(&mut session),
            'p' => primary_keys(&mut session),
            _ => foreign_keys(&mut session),
        }?;
        times.push(format!("{name} {:.2} s", step_begun.elapsed().as_secs_f64()));
    }
    eprintln!("done in {:.2} s ({}).", begun.elapsed().as_secs_f64(), times.join(", "));
    Ok(())
}

fn steps(options: &Options) -> Result<Vec<char>, String> {
    let mut steps: Vec<char> = options.init_steps.chars().filter(|step| *step != ' ').collect();
    if let Some(step) = steps.iter().find(|step| !"dtgGvpf".contains(**step)) {
        return Err(format!(
            "unrecognized initialization step \"{step}\"\n\
             Allowed step characters are: \"d\", \"t\", \"g\", \"G\", \"v\", \"p\", \"f\"."
        ));
    }
    if options.no_vacuum {
        steps.retain(|step| *step != 'v');
    }
    if options.foreign_keys && !steps.contains(&'f') {
        steps.push('f');
    }
    Ok(steps)
}

fn all(session: &mut Session, commands: &[&str]) -> Result<(), String> {
    commands.iter().try_for_each(|command| {
        let failed = |error| format!("query failed: {error}\nQuery was: {command}");
        session.query(command).map(drop).map_err(failed)
    })
}

fn drop_tables(session: &mut Session) -> Result<&'static str, String> {
    eprintln!("dropping old tables...");
    all(session, &[&format!("drop table if exists {TABLES}")])?;
    Ok("drop tables")
}

fn create_tables(
    session: &mut Session,
    options: &Options,
    scale: u32,
) -> Result<&'static str, String> {
    eprintln!("creating tables...");
    let kind = if options.unlogged_tables { "unlogged table" } else { "table" };
    let number = if scale >= SCALE_BIGINT { "bigint" } else { "int" };
    let fill = format!("with (fillfactor={})", options.fillfactor);
    all(
        session,
        &[
            &format!(
                "create {kind} pgbench_history(tid int,bid int,aid {number},delta int,\
                 mtime timestamp,filler char(22))"
            ),
            &format!(
                "create {kind} pgbench_tellers(tid int not null,bid int,tbalance int,\
                 filler char(84)) {fill}"
            ),
            &format!(
                "create {kind} pgbench_accounts(aid {number} not null,bid int,abalance int,\
                 filler char(84)) {fill}"
            ),
            &format!(
                "create {kind} pgbench_branches(bid int not null,bbalance int,filler char(88)) \
                 {fill}"
            ),
        ],
    )?;
    Ok("create tables")
}

/// FREEZE requires a table that was created or truncated in the same transaction.
fn generate(session: &mut Session, options: &Options, scale: u32) -> Result<&'static str, String> {
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
    all(session, &["commit"])?;
    Ok("client-side generate")
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

fn generate_on_server(session: &mut Session, scale: u32) -> Result<&'static str, String> {
    eprintln!("generating data (server-side)...");
    let scale = u64::from(scale);
    all(
        session,
        &[
            "begin",
            &format!("truncate table {TABLES}"),
            &format!(
                "insert into pgbench_branches(bid,bbalance) \
                 select bid, 0 from generate_series(1, {}) as bid",
                scale * BRANCHES
            ),
            &format!(
                "insert into pgbench_tellers(tid,bid,tbalance) \
                 select tid, (tid - 1) / {TELLERS} + 1, 0 from generate_series(1, {}) as tid",
                scale * TELLERS
            ),
            &format!(
                "insert into pgbench_accounts(aid,bid,abalance,filler) \
                 select aid, (aid - 1) / {ACCOUNTS} + 1, 0, '' from generate_series(1, {}) as aid",
                scale * ACCOUNTS
            ),
            "commit",
        ],
    )?;
    Ok("server-side generate")
}

fn vacuum(session: &mut Session) -> Result<&'static str, String> {
    eprintln!("vacuuming...");
    all(
        session,
        &[
            "vacuum analyze pgbench_branches",
            "vacuum analyze pgbench_tellers",
            "vacuum analyze pgbench_accounts",
            "vacuum analyze pgbench_history",
        ],
    )?;
    Ok("vacuum")
}

fn primary_keys(session: &mut Session) -> Result<&'static str, String> {
    eprintln!("creating primary keys...");
    all(
        session,
        &[
            "alter table pgbench_branches add primary key (bid)",
            "alter table pgbench_tellers add primary key (tid)",
            "alter table pgbench_accounts add primary key (aid)",
        ],
    )?;
    Ok("primary keys")
}

fn foreign_keys(session: &mut Session) -> Result<&'static str, String> {
    eprintln!("creating foreign keys...");
    let key = |table: &str, column: &str, other: &str| {
        format!(
            "alter table pgbench_{table} add constraint pgbench_{table}_{column}_fkey \
             foreign key ({column}) references pgbench_{other}"
        )
    };
    all(
        session,
        &[
            &key("tellers", "bid", "branches"),
            &key("accounts", "bid", "branches"),
            &key("history", "bid", "branches"),
            &key("history", "tid", "tellers"),
            &key("history", "aid", "accounts"),
        ],
    )?;
    Ok("foreign keys")
}
