//! `--drill N`: changes of the primary one after the other, by plan and by `kill -9`, and a table of
//! what the clients noticed.

use std::process::ExitCode;

use super::super::{names::DEMO, terminal::say};
use super::{Trio, nodes::NAMES};

/// Writes of all clients before and after each change.
const WRITES: u64 = 200;

const HEAD: &str = "\
round  change      from  to  longest wait  errors  most of one client  lost  doubled  at risk  writable
-----  ----------  ----  --  ------------  ------  ------------------  ----  -------  -------  --------";

/// Runs the drill. The exit status shows whether every change passed its checks. With asynchronous
/// standbys, a kill may lose rows.
pub(super) fn run(trio: &mut Trio, rounds: u32, may_lose: bool) -> anyhow::Result<ExitCode> {
    say(HEAD);
    let mut is_good = true;
    for round in 1..=rounds {
        is_good &= one(trio, round, may_lose)?;
    }
    say(if is_good { "all checks have passed" } else { "a check has failed" });
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn one(trio: &mut Trio, round: u32, may_lose: bool) -> anyhow::Result<bool> {
    trio.until_settled()?;
    write_some(trio)?;
    let Some(from) = trio.primary() else { anyhow::bail!("there is no primary") };
    let is_planned = !round.is_multiple_of(2);
    trio.writers.begin();
    if is_planned {
        let to = (from + 1) % NAMES.len();
        if let Err(why) = trio.switch_over(to)? {
            say(&format!("the switchover has failed: {why}"));
        }
    } else {
        trio.nodes.kill(from)?;
    }
    trio.until("there is another primary", |trio| {
        trio.primary().is_some_and(|primary| primary != from)
    })?;
    write_some(trio)?;
    trio.until_settled()?;
    let told = trio.writers.told();
    let Some(to) = trio.primary() else { anyhow::bail!("there is no primary") };
    // Read after `told`: each row that it has must be there. Later rows do not count.
    let rows = trio.nodes.sql(to, DEMO, "SELECT client, number FROM writes;\n")?;
    let (lost, twice) = told.compare(&rows);
    let mut writable = 0;
    for at in 0..NAMES.len() {
        let answer = trio.nodes.sql(at, DEMO, "SELECT pg_is_in_recovery();\n")?;
        writable += u32::from(answer.trim() == "f");
    }
    let errors: u32 = told.errors.iter().sum();
    let most = told.errors.iter().copied().max().unwrap_or_default();
    let change = if is_planned { "switchover" } else { "kill -9" };
    let wait = format!("{:.3} s", told.longest.as_secs_f64());
    let risk = trio.at_risk().unwrap_or_default();
    let (from, to) = (NAMES[from], NAMES[to]);
    say(&format!(
        "{round:>5}  {change:<10}  {from:<4}  {to:<2}  {wait:>12}  {errors:>6}  {most:>18}  \
         {lost:>4}  {twice:>7}  {risk:>7}  {writable:>8}"
    ));
    if !told.last_error.is_empty() {
        say(&format!("       an error: {}", told.last_error));
    }
    let errors_max = u32::from(!is_planned);
    let loses_none = lost == 0 || may_lose && !is_planned;
    Ok(most <= errors_max && loses_none && twice == 0 && writable == 1)
}

fn write_some(trio: &mut Trio) -> anyhow::Result<()> {
    let before = trio.writers.told().acknowledged;
    trio.until("clients write", |trio| trio.writers.told().acknowledged >= before + WRITES)
}
