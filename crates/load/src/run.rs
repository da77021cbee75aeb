//! A run from its beginning to its report: it reads the scale of the tables, starts the threads and
//! collects their figures.

use std::{
    fs,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64, mpsc},
    thread,
    time::{Duration, Instant},
};

use crate::{
    options::Options,
    plan::{self, Plan},
    progress::Progress,
    report::{Outcome, Report},
    session::Session,
    stats::{Published, Stats},
    target::Target,
    worker::{Common, Word, work},
};

/// Open files besides the clients' connections: standard streams, each thread's epoll, a session, a
/// file or two.
const OTHER_FILES: u64 = 16;

/// # Errors
/// Why there was no run, or why it did not complete.
pub(crate) fn run(options: &Options, target: &Arc<Target>) -> Result<ExitCode, String> {
    let parsed = plan::parse(options)?;
    check_open_files(options)?;
    let (mut session, address) = Session::open(target)
        .map_err(|error| format!("{error}\ncould not create connection for setup"))?;
    let scale = match parsed.is_builtin {
        true => branches(&mut session, options, target)?,
        false => options.scale.unwrap_or(1),
    };
    let plan = Plan::new(options, target, parsed, scale);
    println!("weir bench ({})", env!("CARGO_PKG_VERSION"));
    if !options.no_vacuum {
        vacuum(&mut session);
    }
    drop(session);

    let common = Common {
        address,
        published: (0..plan.threads).map(|_| Published::default()).collect(),
        aborted: AtomicU64::new(0),
        first_error: Mutex::new(None),
    };
    let (stats, times) = measure(&plan, &common, Progress::new(options))?;
    let first_error = common.first_error.into_inner().unwrap_or_else(PoisonError::into_inner);
    let outcome = Outcome { stats, connecting: times.0, running: times.1, first_error };
    let report = Report { plan: &plan, scale, outcome: &outcome };
    print!("{}", report.to_text());
    if let Some(file) = &options.json {
        let text = format!("{:#}\n", report.to_json());
        fs::write(file, text)
            .map_err(|error| format!("could not write \"{}\": {error}", file.display()))?;
    }
    if outcome.stats.aborted == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("weir bench: error: Run was aborted; the above results are incomplete.");
    Ok(ExitCode::from(2))
}

fn check_open_files(options: &Options) -> Result<(), String> {
    let limit = net::raise_open_files().map_err(|error| format!("getrlimit failed: {error}"))?;
    let wanted = u64::from(options.clients) + u64::from(options.jobs) + OTHER_FILES;
    if wanted <= limit {
        return Ok(());
    }
    Err(format!(
        "need at least {wanted} open files, but system limit is {limit}\nHINT:  Reduce number of \
         clients, or use limit/ulimit to increase the system limit."
    ))
}

/// Returns the scale of the tables, which is the number of branches.
fn branches(session: &mut Session, options: &Options, target: &Target) -> Result<u32, String> {
    let rows = session.query("select count(*) from pgbench_branches").map_err(|error| {
        format!(
            "could not count number of branches: {error}\nHINT:  Perhaps you need to do \
             initialization (\"weir bench -i\") in database \"{}\".",
            target.database
        )
    })?;
    let count = rows.first().and_then(|row| row.first()?.as_ref()?.parse().ok()).unwrap_or(0);
    if count == 0 {
        return Err("invalid count(*) from pgbench_branches: \"0\"".to_owned());
    }
    if options.scale.is_some_and(|scale| scale != count) {
        eprintln!(
            "weir bench: warning: scale option ignored, using count from pgbench_branches table \
             ({count})"
        );
    }
    Ok(count)
}

/// Vacuums the tables, to remove traces of an earlier run. Missing tables do not matter to users'
/// own scripts.
fn vacuum(session: &mut Session) {
    eprint!("starting vacuum...");
    for command in ["vacuum pgbench_branches", "vacuum pgbench_tellers", "truncate pgbench_history"]
    {
        if let Err(error) = session.query(command) {
            eprintln!("weir bench: {error}\n(ignoring this error and continuing anyway)");
        }
    }
    eprintln!("end.");
}

/// Runs all threads. Returns how long the logins took, and how long the run lasted.
fn measure(
    plan: &Plan,
    common: &Common,
    mut progress: Progress,
) -> Result<(Stats, (Duration, Duration)), String> {
    let (words, heard) = mpsc::channel();
    thread::scope(|scope| {
        let begun = Instant::now();
        let mut gates = Vec::new();
        for number in 0..plan.threads {
            let (gate, go) = mpsc::channel();
            gates.push(gate);
            let words = words.clone();
            thread::Builder::new()
                .name(format!("bench-{number}"))
                .spawn_scoped(scope, move || work(plan, common, number, &words, &go))
                .map_err(|error| format!("could not create thread: {error}"))?;
        }
        for _ in 0..plan.threads {
            match heard.recv() {
                Ok(Word::Ready) => {}
                Ok(Word::Failed(error)) => return Err(error),
                Ok(Word::Done(_)) | Err(_) => return Err("a thread ended too early".to_owned()),
            }
        }
        let start = Instant::now();
        for gate in &gates {
            // A thread that no longer reads has reported its reason.
            let _ = gate.send(start);
        }
        let mut stats = Stats::default();
        let mut left = plan.threads;
        while left > 0 {
            match heard.recv_timeout(progress.pause(start)) {
                Ok(Word::Done(own)) => {
                    stats.add(&own);
                    left -= 1;
                }
                Ok(Word::Failed(error)) => return Err(error),
                Ok(Word::Ready) => {}
                Err(mpsc::RecvTimeoutError::Timeout) => progress.tell(start, common),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err("a thread ended too early".to_owned());
                }
            }
        }
        Ok((stats, (start - begun, start.elapsed())))
    })
}
