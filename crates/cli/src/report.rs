//! `weir report`: the last hour of a running pooler as one page of HTML. The same page is written when
//! the process ends by a panic.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    panic,
    path::{Path, PathBuf},
    process::{self, ExitCode},
    sync::mpsc,
    thread,
    time::Duration,
};

use admin::{Answer, Incident};
use anyhow::{Context as _, anyhow};
use config::Global;
use load::Outcome;
use proxy::{Controller, error, log};

use crate::{args::ReportOptions, console, ctl, explain};

/// The time that the end of the process may wait for its page: a lock of the flight recorder may be
/// taken.
const PATIENCE: Duration = Duration::from_secs(3);

/// # Errors
/// When there is no console, or it refuses, or the file cannot be written.
pub(crate) fn run(options: &ReportOptions) -> anyhow::Result<ExitCode> {
    let place = ctl::console(&options.console).map_err(|why| anyhow!(why))?;
    let made = format!("Made by weir report on {}.", now());
    let incident = Incident::gather(made, |command| ctl::ask(&place, command).map(answer))?;
    match &options.output {
        None => explain::print(&incident.page()),
        Some(file) => {
            fs::write(file, incident.page()).with_context(|| file.display().to_string())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn answer(outcome: Outcome) -> Answer {
    let columns = outcome.columns.unwrap_or_default();
    Answer { columns: columns.into_iter().map(|column| column.name).collect(), rows: outcome.rows }
}

fn now() -> String {
    let since_epoch = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    log::local_time(i64::try_from(since_epoch.as_secs()).unwrap_or(0))
}

/// Makes a panic write the page to the folder of `logfile`, or to that of `pidfile`. Without both
/// there is no page.
pub(crate) fn write_at_panic(controller: Controller, global: &Global) {
    let Some(folder) = folder(global) else { return };
    let told = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        told(info);
        let made = format!("Made on {}, when the process ended: {info}", now());
        let (controller, folder) = (controller.clone(), folder.clone());
        let (done, written) = mpsc::channel();
        // Runs on a thread of its own, since the panicking thread may hold a lock.
        thread::spawn(move || done.send(write(&controller, made, &folder)));
        match written.recv_timeout(PATIENCE) {
            Ok(Ok(file)) => error!("fatal error: the last hour is in {}", file.display()),
            Ok(Err(error)) => error!("fatal error: no incident report: {error}"),
            Err(_) => error!("fatal error: no incident report: the flight recorder is in use"),
        }
    }));
}

fn folder(global: &Global) -> Option<PathBuf> {
    let files = [global.logfile.as_str(), global.pidfile.as_str()];
    let file = files.into_iter().find(|file| !file.is_empty())?;
    std::path::absolute(file).ok()?.parent().map(Path::to_owned)
}

/// Writes the page to a new file, which only this user can read.
fn write(controller: &Controller, made: String, folder: &Path) -> io::Result<PathBuf> {
    let file = folder.join(format!("weir-incident-{}.html", process::id()));
    let page = console::incident(controller, made).page();
    // A file of an earlier process with this id would be misleading.
    let _ = fs::remove_file(&file);
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file)?;
    out.write_all(page.as_bytes())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::env;

    use config::Config;
    use proxy::{Pooler, StartOptions};

    use super::*;

    const FOLDER: &str = "WEIR_TEST_INCIDENT_FOLDER";

    /// Runs the process that panics: this test binary, started by the test below.
    #[test]
    fn panicking_process() {
        let Some(folder) = env::var_os(FOLDER) else { return };
        let folder = PathBuf::from(folder);
        let text = format!(
            "[databases]\n[pgbouncer]\nunix_socket_dir = {0}\nlisten_addr =\npidfile = {0}/pid\n",
            folder.display()
        );
        let file = folder.join("weir.ini");
        fs::write(&file, text).unwrap();
        let config = Config::load(&file).unwrap();
        let global = config.global.clone();
        let options = StartOptions { signals: false, ..StartOptions::default() };
        let pooler = Pooler::start(config, options).unwrap();
        write_at_panic(pooler.controller(), &global);
        let died = thread::spawn(|| panic!("a <b>bug</b>")).join();
        assert!(died.is_err());
    }

    #[test]
    fn a_panic_leaves_a_page_and_a_log_line() {
        let folder = env::temp_dir().join(format!("weir-report-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let child = process::Command::new(env::current_exe().unwrap())
            .args(["--exact", "report::tests::panicking_process", "--nocapture"])
            .env(FOLDER, &folder)
            .output()
            .unwrap();
        let mut files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let page = files.find(|path| path.extension().is_some_and(|kind| kind == "html"));
        let page = page.unwrap_or_else(|| panic!("no page: {child:?}"));
        let logged = String::from_utf8_lossy(&child.stderr).into_owned();
        assert!(logged.contains(&format!("the last hour is in {}", page.display())), "{logged}");
        let text = fs::read_to_string(&page).unwrap();
        assert!(text.contains("a &lt;b&gt;bug&lt;/b&gt;"), "the panic is named, and escaped");
        assert!(text.contains("SHOW EVENTS") && text.contains("<td>start</td>"), "{text}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
