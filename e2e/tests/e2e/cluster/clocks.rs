//! The wall clock of Weir's machine is set, forward and back. A library that is loaded before libc answers
//! for the clock. It adds the seconds that a file holds, and so only Weir notices.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::eventually;

use super::hooks::{check_no_errors, check_rows, write_during};
use super::{PATIENCE, until_nodes_are};
use crate::{routing, support};

const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long step(void)
{
    char text[32] = {0};
    int file = open(getenv("CLOCK_STEP"), O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    if (read(file, text, sizeof text - 1) < 0)
        text[0] = 0;
    close(file);
    return atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int end = syscall(SYS_clock_gettime, clock, now);
    if (end == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += step();
    return end;
}

int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec spec;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &spec);
    now->tv_sec = spec.tv_sec;
    now->tv_usec = spec.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *where)
{
    struct timespec spec;
    clock_gettime(CLOCK_REALTIME, &spec);
    if (where)
        *where = spec.tv_sec;
    return spec.tv_sec;
}
"#;

const DAY: i64 = 86_400;

/// A clock that can be set.
struct Clock {
    library: PathBuf,
    step: PathBuf,
}

impl Clock {
    fn new() -> Self {
        let folder = testkit::open_folder("clock");
        let [source, library, step] = ["clock.c", "clock.so", "step"].map(|name| folder.join(name));
        fs::write(&source, LIBRARY).expect("our own folder");
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O1", "-o"]).args([&library, &source]);
        support::run(&mut compile);
        let clock = Self { library, step };
        clock.set(0);
        clock
    }

    /// Sets it so many seconds later than the real one.
    fn set(&self, seconds: i64) {
        let draft = self.step.with_extension("draft");
        fs::write(&draft, seconds.to_string()).expect("our own folder");
        fs::rename(draft, &self.step).expect("our own folder");
    }
}

fn in_words(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn a_wall_clock_that_is_set_changes_no_verdict() {
    if !support::only_weir() {
        return;
    }
    let nodes = routing::cluster(2);
    let [a, b, c] = &nodes[..] else { unreachable!("three nodes") };
    let clock = Clock::new();
    let pooler =
        routing::setup(&nodes, "sample_interval=0.2 health_timeout=0.5", "max_staleness=5")
            .environment("LD_PRELOAD", in_words(&clock.library))
            .environment("CLOCK_STEP", in_words(&clock.step))
            .start();
    let mut reader = routing::until_routed(&pooler, a);
    // The date would also change at midnight.
    let year = |pooler: &testkit::Pooler| {
        let last = pooler.log().lines().last().unwrap_or_default().to_owned();
        last.chars().take(4).collect::<String>()
    };
    let this_year = year(&pooler);
    let places = || [1, 2].map(|_| pooler.admin("SHOW NODES").column("state").join(" "));
    let told = write_during(&pooler, || {
        for (at, days) in [400, -400, 3_650, 0].into_iter().enumerate() {
            clock.set(days * DAY);
            // The library works: the log has the other year.
            pooler.admin("SHOW VERSION");
            eventually("the log has the year of the clock", PATIENCE, || {
                drop(pooler.client("app"));
                ((year(&pooler) == this_year) == (days == 0)).then_some(())
            });
            // Nobody is down, and reads see the writes of their session.
            assert_eq!(places(), ["writable readable readable"; 2].map(str::to_owned));
            for own in 0..50 {
                let id = at * 50 + own;
                reader.rows(&format!("INSERT INTO acts VALUES ({id}, 'clock')"));
                let sum = "SELECT count(*) FROM acts WHERE act = 'clock'";
                assert_eq!(reader.value(sum), (id + 1).to_string());
            }
            eventually("reads go to a standby", PATIENCE, || {
                (reader.value("SELECT here()") != a.port().to_string()).then_some(())
            });
        }
    });
    check_no_errors(&told);
    check_rows(a, &told);
    assert_eq!(pooler.admin("SHOW FAILOVERS").column("to_node"), ["a"]);
    assert!(!pooler.log().contains("is down"), "{}", pooler.log());

    // A primary that is lost while the clock is years back is replaced all the same.
    clock.set(-400 * DAY);
    a.stop();
    until_nodes_are(&pooler, &["down", "unfit", "unfit"]);
    b.promote();
    c.follow(b);
    until_nodes_are(&pooler, &["down", "writable", "readable"]);
    let mut client = pooler.client("app");
    assert_eq!(client.value("/* weir: primary */ SELECT here()"), b.port().to_string());
}
