//! `weir demo --cluster` on a terminal: its keys, and the ways in which it ends.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use testkit::{eventually, pooler_binary};

use crate::support::{only_weir, run};

/// The demo copies a killed node anew.
const PATIENCE: Duration = Duration::from_secs(90);
const CTRL_C: &str = "\x03";

/// A demo on a terminal of its own, which is made by `script`.
struct Demo {
    folder: PathBuf,
    script: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<String>>,
}

impl Demo {
    /// Starts it, and waits for its first table.
    fn start() -> Self {
        let folder = testkit::open_folder("demo-keys");
        let command = format!("exec {} demo --cluster", pooler_binary().display());
        let mut script = Command::new("script")
            .args(["--quiet", "--return", "--flush", "--command", &command, "/dev/null"])
            .env("TMPDIR", &folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script of util-linux");
        let keys = script.stdin.take().expect("a pipe was asked for");
        let mut output = script.stdout.take().expect("a pipe was asked for");
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = Arc::clone(&screen);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(len @ 1..) = output.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..len]);
                shown.lock().expect("no panic").push_str(&text);
            }
        });
        let demo = Self { folder, script, keys, screen };
        demo.until_nodes_are("the first table", |states| {
            states == ["writable", "readable", "readable"]
        });
        demo
    }

    fn screen(&self) -> String {
        self.screen.lock().expect("no panic").clone()
    }

    fn press(&mut self, key: &str) {
        self.keys.write_all(key.as_bytes()).expect("script reads");
    }

    /// Presses a key, and waits until the demo says so.
    fn press_and_see(&mut self, key: &str, words: &str) {
        let before = self.screen().len();
        self.press(key);
        eventually(words, PATIENCE, || self.screen()[before..].contains(words).then_some(()));
    }

    /// Returns the words of a node's line in the last whole table.
    fn node(&self, name: &str) -> Option<Vec<String>> {
        let screen = self.screen();
        let (tables, _) = screen.rsplit_once("clients  ")?;
        let line = tables.lines().rfind(|line| line.starts_with(&format!("node {name}  ")))?;
        Some(line.split_whitespace().map(str::to_owned).collect())
    }

    /// Returns the states of the nodes, and their timelines.
    fn states(&self) -> Option<[(String, String); 3]> {
        let state = |name| {
            let words = self.node(name)?;
            let timeline = words.iter().position(|word| word == "timeline")?;
            Some((words[3..timeline].join(" "), words.get(timeline + 1)?.clone()))
        };
        Some([state("a")?, state("b")?, state("c")?])
    }

    #[track_caller]
    fn until_nodes_are(&self, what: &str, are: impl Fn([&str; 3]) -> bool) {
        eventually(what, PATIENCE, || {
            let states = self.states()?;
            are([&states[0].0, &states[1].0, &states[2].0]).then_some(())
        });
    }

    /// Returns the bytes by which a node lags, once the table has them.
    fn lag(&self, name: &str) -> u64 {
        eventually("a lag", PATIENCE, || {
            let words = self.node(name)?;
            let at = words.iter().position(|word| word == "lag")?;
            words.get(at + 1)?.parse().ok()
        })
    }

    /// Returns the log of its pooler.
    fn log(&self) -> String {
        let folders = fs::read_dir(&self.folder).expect("it is there").flatten();
        folders
            .filter_map(|folder| fs::read_to_string(folder.path().join("weir.log")).ok())
            .collect()
    }

    /// Waits for the end.
    #[track_caller]
    fn end(&mut self) -> ExitStatus {
        let ended = || self.script.try_wait().expect("our own child");
        eventually("script ends", PATIENCE, ended)
    }

    /// Waits until no process and no file of the demo is left.
    #[track_caller]
    fn until_nothing_is_left(&self) {
        eventually("nothing is left", Duration::from_secs(40), || {
            let files = fs::read_dir(&self.folder).expect("it is there").count();
            (files == 0 && processes(&self.folder).is_empty()).then_some(())
        });
    }
}

impl Drop for Demo {
    /// Ends what a failed test leaves.
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
        for pid in processes(&self.folder) {
            let _ = Command::new("kill").args(["-KILL", &pid]).status();
        }
        print!("{}", tail(&self.screen()));
    }
}

fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n") + "\n"
}

/// Returns the arguments of a process, each followed by a zero byte.
fn arguments(pid: &str) -> String {
    let content = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&content).into_owned()
}

/// Returns the processes that work in this folder, or name it in their arguments or environment.
fn processes(folder: &Path) -> Vec<String> {
    let name = folder.display().to_string();
    let has = |path: PathBuf| {
        let content = fs::read(path).unwrap_or_default();
        String::from_utf8_lossy(&content).contains(&name)
    };
    let all = fs::read_dir("/proc").expect("Linux").flatten();
    let all = all.filter_map(|entry| entry.file_name().into_string().ok());
    let all = all.filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit()));
    let is_of_it = |pid: &String| {
        let process = Path::new("/proc").join(pid);
        let works_there =
            fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
        works_there || has(process.join("cmdline")) || has(process.join("environ"))
    };
    all.filter(is_of_it).collect()
}

#[test]
fn each_key_does_what_the_demo_says_and_the_table_shows_it() {
    if !only_weir() {
        return;
    }
    let mut demo = Demo::start();
    demo.press_and_see("s", "switching over to node b");
    demo.until_nodes_are("b is the primary", |states| {
        states == ["readable", "writable", "readable"]
    });
    assert_eq!(demo.states().expect("a table")[1].1, "2");

    demo.press_and_see("p", "pause of the replay on node a");
    eventually("a lags", PATIENCE, || (demo.lag("a") > 200_000).then_some(()));
    assert!(demo.lag("c") < 200_000, "only a is paused");
    demo.press_and_see("p", "resume of the replay on node a");
    eventually("a has caught up", PATIENCE, || (demo.lag("a") < 100_000).then_some(()));

    // No key: nothing happens until the next one.
    let before = demo.screen().len();
    demo.press("x\x1b[A\r\n0");
    demo.press_and_see("k", "killing node b");
    for words in ["switching over", "pause of", "resume of"] {
        assert!(!demo.screen()[before..].contains(words), "{words}");
    }
    demo.until_nodes_are("another primary", |[a, b, c]| {
        b != "writable" && (a == "writable" || c == "writable")
    });
    demo.until_nodes_are("b is back", |states| states[1] == "readable");
    let states = demo.states().expect("a table");
    assert!(states.iter().all(|(_, timeline)| timeline == "3"), "{states:?}");

    demo.press("q");
    assert_eq!(demo.end().code(), Some(0));
    assert!(demo.screen().contains("stopping, and removing everything"));
    demo.until_nothing_is_left();
}

#[test]
fn a_switchover_is_to_a_standby_that_replays() {
    if !only_weir() {
        return;
    }
    let mut demo = Demo::start();
    demo.press_and_see("p", "pause of the replay on node b");
    demo.press_and_see("s", "switching over to node c");
    demo.until_nodes_are("c is the primary", |states| {
        states[0] == "readable" && states[2] == "writable"
    });
    demo.press_and_see("p", "resume of the replay on node b");
    demo.until_nodes_are("b follows", |states| states == ["readable", "readable", "writable"]);
    demo.press("q");
    assert_eq!(demo.end().code(), Some(0));
    demo.until_nothing_is_left();
}

#[test]
fn the_demo_leaves_nothing_when_it_is_interrupted() {
    if !only_weir() {
        return;
    }
    let mut demo = Demo::start();
    demo.press(CTRL_C);
    assert_eq!(demo.end().code(), Some(0));
    demo.until_nothing_is_left();
}

#[test]
fn the_demo_leaves_nothing_when_it_is_interrupted_during_a_switchover() {
    if !only_weir() {
        return;
    }
    let mut demo = Demo::start();
    demo.press_and_see("s", "switching over to node b");
    eventually("it has begun", PATIENCE, || {
        demo.log().contains("switchover to node b begins").then_some(())
    });
    let interrupted = Instant::now();
    demo.press(CTRL_C);
    demo.end();
    // A command of the cluster that nobody carries out would take 30 s.
    assert!(interrupted.elapsed() < Duration::from_secs(25), "{:?}", interrupted.elapsed());
    demo.until_nothing_is_left();
}

#[test]
fn a_killed_demo_leaves_no_process() {
    if !only_weir() {
        return;
    }
    let mut demo = Demo::start();
    demo.press_and_see("k", "killing node a");
    // A command of the cluster waits for the demo meanwhile.
    eventually("a node is copied", PATIENCE, || {
        let all = processes(&demo.folder);
        all.iter().any(|pid| arguments(pid).contains("pg_basebackup")).then_some(())
    });
    let all = processes(&demo.folder);
    let is_demo = |pid: &&String| arguments(pid).split('\0').nth(1) == Some("demo");
    let pid = all.iter().find(is_demo).expect("it runs");
    run(Command::new("kill").args(["-KILL", pid]));
    demo.end();
    eventually("no process is left", Duration::from_secs(40), || {
        processes(&demo.folder).is_empty().then_some(())
    });
}

#[test]
fn the_demo_leaves_nothing_when_its_terminal_goes_away() {
    if !only_weir() {
        return;
    }
    for (key, words) in [("", ""), ("s", "switching over"), ("k", "killing node")] {
        let mut demo = Demo::start();
        demo.press_and_see(key, words);
        demo.script.kill().expect("our own child");
        demo.until_nothing_is_left();
    }
}
