//! Nodes that fail while clients work.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use testkit::{Postgres, poll_until};

use super::crowd::Crowd;
use super::front::{Front, OnLoss, Side};
use super::nodes::{Nodes, Rig};
use crate::real::fact::{Fact, Facts, Goal, bound, fact};

static ERRORS: Fact = bound("errors", "failed statements", Goal::AtMost(0.0));
static WRITE_ERRORS: Fact = fact("errors", "failed statements");
static MOST: Fact = bound("most_errors", "failed statements of one client", Goal::AtMost(1.0));
pub(super) static GAP: Fact = fact("gap_s", "without service, s (given up at 60)");
static LIMITED_GAP: Fact = bound("gap_s", GAP.title, Goal::AtMost(8.0));
static LOST: Fact = bound("lost", "acknowledged rows that are lost", Goal::AtMost(0.0));
static DOUBLED: Fact = bound("doubled", "rows that are there twice", Goal::AtMost(0.0));

/// Statements before a fault, and after it.
const ENOUGH: u64 = 1_000;
/// The maximum time until clients are served again.
const SERVED_MAX: Duration = Duration::from_secs(60);

/// Kills a node, also one that is stopped. It may be dead already.
const FENCE: &str = r#"
pid=$(head -n 1 DATA/postmaster.pid)
case $(readlink /proc/$pid/exe) in */postgres) ;; *) exit 0 ;; esac
children=$(cat /proc/$pid/task/$pid/children)
kill -s KILL $pid || exit 1
for child in $children; do kill -s KILL $child 2>/dev/null; done
exit 0
"#;

/// Promotes a node, if the one that is lost was the primary.
const PROMOTE: &str = r#"
[ "$1" = "$2" ] || exit 0
sh "${0%/*}/fence"
PSQL -h "$3" -p "$4" -c 'SELECT pg_promote()'
"#;

/// Has a standby follow the new primary.
const FOLLOW: &str = r#"
PSQL -h "$1" -p "$2" \
    -c "ALTER SYSTEM SET primary_conninfo = 'host=$3 port=$4 user=copyist password=copyist-secret'" \
    -c 'SELECT pg_reload_conf()'
"#;

/// Kills a standby with `kill -9`.
pub(super) fn standby_killed(rig: &Rig<'_>, side: Side) -> Result<Facts> {
    let nodes = Nodes::start(rig.options)?;
    let front = Front::start(side, &nodes, &OnLoss::NOTHING)?;
    let crowd = Crowd::start(front.port(), |_| {
        "SELECT abalance FROM pgbench_accounts WHERE aid = 77".to_owned()
    });
    until_served(&crowd).context("clients are not served")?;
    nodes.standbys()[0].kill9();
    until_served(&crowd).context("clients are not served any more")?;
    Ok(vec![(&ERRORS, f64::from(crowd.errors().iter().sum::<u32>()))])
}

/// Stops all processes of the primary with SIGSTOP. Weir and Pgpool-II kill it then, and promote a
/// standby.
pub(super) fn primary_stopped(rig: &Rig<'_>, side: Side) -> Result<Facts> {
    primary_lost(rig, side, Postgres::freeze, &LIMITED_GAP)
}

/// Kills the primary with `kill -9`. Weir and Pgpool-II promote a standby.
pub(super) fn primary_killed(rig: &Rig<'_>, side: Side) -> Result<Facts> {
    primary_lost(rig, side, Postgres::kill9, &GAP)
}

fn primary_lost(
    rig: &Rig<'_>,
    side: Side,
    lose: fn(&Postgres),
    gap: &'static Fact,
) -> Result<Facts> {
    let nodes = Nodes::start(rig.options)?;
    // Weir relies on commits only if they wait for nodes by name. The commands of Pgpool-II give
    // standbys no names.
    let names = if side == Side::Pgpool { "*" } else { "b, c" };
    Nodes::set(&nodes.0, &format!("synchronous_standby_names = 'ANY 1 ({names})'"));
    let front = Front::start(side, &nodes, &fencing(nodes.primary())?)?;
    let crowd = Crowd::start(front.port(), |(client, number)| {
        format!("INSERT INTO acts VALUES ({client}, {number})")
    });
    until_served(&crowd).context("clients are not served")?;
    lose(nodes.primary());
    // Without it, the longest wait shows that.
    until_served(&crowd);
    let longest = crowd.longest_gap().min(SERVED_MAX).as_secs_f64();
    crowd.end();
    let errors = crowd.errors();
    // Its clients may wait for an answer as long as it runs.
    drop(front);
    let (lost, doubled) = nodes.compare(&crowd.into_served())?;
    Ok(vec![
        (gap, longest),
        (&WRITE_ERRORS, f64::from(errors.iter().sum::<u32>())),
        (&MOST, f64::from(errors.into_iter().max().unwrap_or_default())),
        (&LOST, lost as f64),
        (&DOUBLED, doubled as f64),
    ])
}

fn until_served(crowd: &Crowd) -> Option<()> {
    let before = crowd.served();
    poll_until(SERVED_MAX, || (crowd.served() >= before + ENOUGH).then_some(()))
}

/// Both poolers kill the primary before they promote a standby, and have the other standby follow
/// the new primary: commits wait for a standby.
fn fencing(primary: &Postgres) -> Result<OnLoss> {
    let folder = testkit::folder("fence");
    let psql = testkit::postgres_program("psql");
    let psql = format!("PGPASSWORD=weir-secret {} -X -U weir -d postgres", psql.display());
    let scripts = [
        (
            "fence",
            FENCE.replace("DATA", &primary.socket_folder().join("data").display().to_string()),
        ),
        ("promote", PROMOTE.replace("PSQL", &psql)),
        ("follow", FOLLOW.replace("PSQL", &psql)),
    ];
    for (name, text) in scripts {
        fs::write(folder.join(name), text)?;
    }
    let folder = folder.display();
    Ok(OnLoss {
        weir: format!("failover=own fence_command='sh {folder}/fence'"),
        // Pgpool-II does not look after its nodes by default.
        pgpool: format!(
            "health_check_period = 1\nhealth_check_timeout = 2\n\
             failover_command = 'sh {folder}/promote %d %P %H %r'\n\
             follow_primary_command = 'sh {folder}/follow %h %p %H %r'\n"
        ),
    })
}
