//! Commands of the operator that ask the test what to do, and writers that notice every loss.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Pooler, Postgres, RawClient, frontend, poll_until};

/// Tells its arguments by the name of a file, and ends as another file says.
const SCRIPT: &str = r#"ask="$0.$1.$WEIR_NODE.$$"
: >"$ask.asked"
while [ ! -e "$ask.answered" ]; do sleep 0.01; done
rm "$ask.asked"
exit "$(cat "$ask.answered")""#;

/// The commands of one cluster.
pub(super) struct Hooks {
    folder: PathBuf,
}

impl Hooks {
    pub(super) fn new() -> Self {
        let folder = testkit::open_folder("hooks");
        let script = folder.join("hook");
        fs::write(&script, SCRIPT).expect("our own folder");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("our own file");
        Self { folder }
    }

    /// Returns the keys of a cluster that uses these commands.
    pub(super) fn keys(&self, kinds: &[&str]) -> String {
        let script = self.folder.join("hook");
        let key = |kind: &&str| format!("{kind}_command='sh {} {kind}'", script.display());
        kinds.iter().map(key).collect::<Vec<_>>().join(" ")
    }

    /// Is such a command waiting?
    pub(super) fn is_asked(&self, kind: &str, node: &str) -> bool {
        self.asked(kind, node).is_some()
    }

    /// Waits until a command of this kind is run about this node, does the work, and has the
    /// command end with this status.
    #[track_caller]
    pub(super) fn serve(&self, kind: &str, node: &str, status: u32, work: impl FnOnce()) {
        let asked = poll_until(Duration::from_secs(60), || self.asked(kind, node));
        let asked = asked.unwrap_or_else(|| panic!("{kind}_command is not run for {node}"));
        work();
        self.answer(&asked, status);
    }

    /// Returns a command that waits: its kind, its node, and its question.
    pub(super) fn next(&self) -> Option<(String, String, String)> {
        let files = fs::read_dir(&self.folder).expect("our own folder").flatten();
        files.filter_map(|file| file.file_name().into_string().ok()).find_map(|name| {
            let parts: Vec<_> = name.split('.').collect();
            let ["hook", kind, node, _, "asked"] = parts[..] else { return None };
            let asked = (kind.to_owned(), node.to_owned(), name.clone());
            (!self.is_answered(&name)).then_some(asked)
        })
    }

    /// Returns the question of a command that waits.
    pub(super) fn asked(&self, kind: &str, node: &str) -> Option<String> {
        let prefix = format!("hook.{kind}.{node}.");
        let mut files = fs::read_dir(&self.folder).expect("our own folder").flatten();
        files.find_map(|file| {
            let name = file.file_name().into_string().ok()?;
            let is_it = name.starts_with(&prefix) && name.ends_with(".asked");
            (is_it && !self.is_answered(&name)).then_some(name)
        })
    }

    /// Has the command end with this status.
    pub(super) fn answer(&self, asked: &str, status: u32) {
        let answer = asked.replace(".asked", ".answered");
        // Renamed, so that the script never reads half of it.
        let draft = self.folder.join("draft");
        fs::write(&draft, status.to_string()).expect("our own folder");
        fs::rename(draft, self.folder.join(answer)).expect("our own folder");
    }

    fn is_answered(&self, asked: &str) -> bool {
        self.folder.join(asked.replace(".asked", ".answered")).exists()
    }
}

/// The writers' findings.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Rows that were acknowledged, by their texts.
    pub(super) acknowledged: Vec<String>,
    /// Errors, each with the row.
    pub(super) errors: Vec<(String, String)>,
    /// When the last write began that has failed.
    pub(super) failed_at: Option<Instant>,
    pub(super) longest: Duration,
}

/// No writer has noticed anything.
#[track_caller]
pub(super) fn check_no_errors(told: &[Told]) {
    let errors: Vec<_> = told.iter().flat_map(|writer| &writer.errors).collect();
    assert!(errors.is_empty(), "{errors:?}");
}

/// Has eight clients write until `work` is done. Half of them write in transactions.
pub(super) fn write_during(pooler: &Pooler, work: impl FnOnce()) -> Vec<Told> {
    let is_over = AtomicBool::new(false);
    let written: [AtomicU64; 8] = Default::default();
    thread::scope(|scope| {
        let writer = |number: usize| {
            let (is_over, written) = (&is_over, &written);
            scope.spawn(move || {
                let mut told = Told::default();
                let mut client = connect(pooler);
                for at in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let row = format!("{number}-{at}");
                    let began = Instant::now();
                    match write(&mut client, number.is_multiple_of(2), &row) {
                        Ok(()) => {
                            told.acknowledged.push(row);
                            written[number].fetch_add(1, Ordering::Relaxed);
                        }
                        Err((why, is_closed)) => {
                            told.errors.push((row, why));
                            told.failed_at = Some(began);
                            if is_closed {
                                client = connect(pooler);
                            }
                        }
                    }
                    told.longest = told.longest.max(began.elapsed());
                }
                told
            })
        };
        let writers: Vec<_> = (0..written.len()).map(writer).collect();
        // Also if a check fails: the scope waits for its threads.
        let _end = End(&is_over);
        let all_write = || {
            let counts = || written.iter().map(|count| count.load(Ordering::Relaxed));
            let before: Vec<_> = counts().collect();
            testkit::eventually("each client writes", Duration::from_secs(30), || {
                counts().zip(&before).all(|(now, before)| now > before + 12).then_some(())
            });
        };
        all_write();
        work();
        all_write();
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().expect("it does not panic")).collect()
    })
}

/// Ends the writers.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn connect(pooler: &Pooler) -> RawClient {
    connect_to(pooler, "app")
}

/// Logs in when the pooler lets clients in.
pub(super) fn connect_to(pooler: &Pooler, database: &str) -> RawClient {
    testkit::eventually("a client is let in", Duration::from_secs(60), || {
        pooler.login("app", database, "app-secret").ok()
    })
}

/// Writes a row. Returns the error, and whether the connection has ended.
fn write(client: &mut RawClient, in_transaction: bool, row: &str) -> Result<(), (String, bool)> {
    let insert = format!("INSERT INTO acts VALUES (inet_server_port(), '{row}')");
    let statements = match in_transaction {
        false => vec![insert],
        true => vec!["BEGIN".to_owned(), insert, "COMMIT".to_owned()],
    };
    for statement in statements {
        if let Err((why, is_closed)) = run(client, &statement) {
            let is_closed = is_closed || in_transaction && run(client, "ROLLBACK").is_err();
            return Err((why, is_closed));
        }
    }
    Ok(())
}

/// Runs a statement. Returns the error, and whether the connection has ended.
fn run(client: &mut RawClient, statement: &str) -> Result<(), (String, bool)> {
    let closed = |why: &dyn ToString| (why.to_string(), true);
    client.try_send(frontend::query(statement)).map_err(|error| closed(&error))?;
    let mut outcome = Ok(());
    loop {
        let message = client.try_read().map_err(|error| closed(&error))?;
        let Some(message) = message else {
            return Err(outcome.err().map_or(closed(&"closed"), |(why, _)| (why, true)));
        };
        if message.tag == b'E'
            && let Some(error) = message.error()
        {
            outcome = Err((format!("{} {}", error.code(), error.message()), false));
        }
        if message.tag == b'Z' {
            return outcome;
        }
    }
}

/// Checks that each acknowledged row is there once, and no row twice. Returns the longest wait.
#[track_caller]
pub(super) fn check_rows(primary: &Postgres, told: &[Told]) -> Duration {
    let rows = primary.sql("postgres", "SELECT act, count(*) FROM acts GROUP BY act");
    let counts: HashMap<_, u64> = rows
        .into_iter()
        .filter_map(|row| Some((row[0].clone()?, row[1].as_ref()?.parse().ok()?)))
        .collect();
    let count = |row: &str| counts.get(row).copied().unwrap_or_default();
    for writer in told {
        for row in &writer.acknowledged {
            assert_eq!(count(row), 1, "row {row} was acknowledged");
        }
        for (row, why) in &writer.errors {
            assert!(count(row) <= 1, "row {row} is there {} times: {why}", count(row));
        }
    }
    let longest = told.iter().map(|writer| writer.longest).max();
    longest.unwrap_or_default()
}
