//! Runs a program of the operator's: a command of a cluster (`fence_command` and others), or a
//! `password_command`. Each run has a limit of time, and a process group of its own that is killed at
//! the limit.

use std::{
    io::{self, PipeReader, Read as _},
    os::fd::AsRawFd as _,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tokio::task;

use crate::exchange::hub::lock;
use net::sys::process;

/// The interval at which a program is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// The time for the rest of an explanation. Another process may have the pipe of the program.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// The time for the rest of a result. The processes that could write more have been killed.
const REST: Duration = Duration::from_secs(1);
/// The time for the end of a program that has been killed. One that waits for a disk takes longer.
const DEATH: Duration = Duration::from_secs(1);
/// The number of bytes of the output that are kept for its last line.
const LAST_LINE_BYTES_MAX: usize = 1_000;

/// The use of a program's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// The last line is the reason for a failure. All of it is read, because a server that the program
    /// starts may keep writing.
    Explains,
    /// Standard output is the result, of at most so many bytes. It may be a secret, so it never is in
    /// an error. Messages of errors are not read. Processes that the program leaves are killed.
    IsResult(usize),
}

/// Runs a program. Returns its output if that is the result.
///
/// # Errors
/// When it cannot be started, fails, prints too much, or takes longer than `limit`: it is killed then.
/// Also when a result is not complete.
pub(crate) async fn run(
    program: Command,
    limit: Duration,
    output: Output,
) -> Result<Vec<u8>, String> {
    let done = task::spawn_blocking(move || run_here(program, limit, output)).await;
    done.unwrap_or_else(|error| Err(error.to_string()))
}

fn run_here(mut program: Command, limit: Duration, output: Output) -> Result<Vec<u8>, String> {
    use std::os::unix::process::CommandExt as _;
    let (reader, writer) = io::pipe().map_err(in_words)?;
    let errors = match output {
        Output::Explains => writer.try_clone().map_err(in_words)?.into(),
        Output::IsResult(_) => {
            process::set_nonblocking(reader.as_raw_fd()).map_err(in_words)?;
            Stdio::null()
        }
    };
    program.stdin(Stdio::null()).stdout(writer).stderr(errors).process_group(0);
    let child = program.spawn().map_err(in_words)?;
    // Closes our ends of the pipe, which would keep it open.
    drop(program);
    match output {
        Output::Explains => explained(child, limit, reader).map(|()| Vec::new()),
        Output::IsResult(max) => result(child, limit, Taking { reader, taken: Vec::new(), max }),
    }
}

fn explained(child: Child, limit: Duration, reader: PipeReader) -> Result<(), String> {
    let listening = Listening::begin(reader);
    let mut child = until_ended(child, limit, || Ok(()))?;
    let status = child.wait().map_err(in_words)?;
    match last_line(&listening.end()) {
        _ if status.success() => Ok(()),
        Some(line) => Err(format!("{status}: {line}")),
        None => Err(status.to_string()),
    }
}

fn result(child: Child, limit: Duration, mut taking: Taking) -> Result<Vec<u8>, String> {
    let mut child = until_ended(child, limit, || taking.take().map(drop))?;
    // A process that it has left would keep the pipe open.
    let _ = process::kill_group(child.id());
    let status = child.wait().map_err(in_words)?;
    match status.success() {
        true => taking.rest(),
        false => Err(status.to_string()),
    }
}

/// Waits for the end of the program. Kills it if it takes too long, or if `look` returns an error. The
/// number of a program that has ended is its own until `wait` is called, and so is that of its group.
fn until_ended(
    child: Child,
    limit: Duration,
    mut look: impl FnMut() -> Result<(), String>,
) -> Result<Child, String> {
    let began = Instant::now();
    let why = loop {
        if process::has_ended(child.id()).map_err(in_words)? {
            return Ok(child);
        }
        if let Err(why) = look() {
            break why;
        }
        if began.elapsed() >= limit {
            break format!("it did not end within {} s", limit.as_secs_f64());
        }
        thread::sleep(LOOK);
    };
    Err(match kill(child, process::kill_group) {
        Ok(()) => why,
        Err(error) => format!("{why}, and it cannot be killed: {error}"),
    })
}

/// Kills a program, and waits for its end for a short time. A thread waits longer.
///
/// # Errors
/// When it runs as another user (`sudo`).
fn kill(mut child: Child, kill_group: impl Fn(u32) -> io::Result<()>) -> io::Result<()> {
    let killed = kill_group(child.id());
    let began = Instant::now();
    while killed.is_ok() && began.elapsed() < DEATH {
        if let Ok(Some(_)) = child.try_wait() {
            return killed;
        }
        thread::sleep(LOOK);
    }
    // Without a thread, it stays in the list of processes after its end.
    let _ = thread::Builder::new().spawn(move || child.wait());
    killed
}

fn in_words(error: io::Error) -> String {
    error.to_string()
}

/// The output of a program, as far as it is read, if it is the result.
struct Taking {
    reader: PipeReader,
    taken: Vec<u8>,
    max: usize,
}

impl Taking {
    /// Takes what the pipe has. Returns true at the end of the output.
    fn take(&mut self) -> Result<bool, String> {
        let mut buffer = [0; 4096];
        loop {
            match self.reader.read(&mut buffer) {
                Ok(0) => return Ok(true),
                Ok(len) => self.taken.extend_from_slice(&buffer[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(in_words(error)),
            }
            if self.taken.len() > self.max {
                return Err(format!("its output is longer than {} bytes", self.max));
            }
        }
    }

    /// Returns the whole output of a program that has ended.
    fn rest(mut self) -> Result<Vec<u8>, String> {
        let ended = Instant::now();
        while !self.take()? {
            if ended.elapsed() >= REST {
                return Err("a process that it has left keeps its output open".to_owned());
            }
            thread::sleep(LOOK);
        }
        Ok(self.taken)
    }
}

/// The thread that reads the explanation of a program.
struct Listening {
    said: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Listening {
    fn begin(mut reader: PipeReader) -> Self {
        let said = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&said);
        let thread = thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok(len @ 1..) = reader.read(&mut buffer) {
                let mut kept = lock(&kept);
                kept.extend_from_slice(&buffer[..len]);
                let surplus = kept.len().saturating_sub(LAST_LINE_BYTES_MAX);
                kept.drain(..surplus);
            }
        });
        Self { said, thread }
    }

    /// Returns the end of the output of a program that has ended.
    fn end(self) -> Vec<u8> {
        let ended = Instant::now();
        while !self.thread.is_finished() && ended.elapsed() < LAST_WORDS {
            thread::sleep(LOOK);
        }
        std::mem::take(&mut lock(&self.said))
    }
}

/// Returns the last line with a visible character. An error message cannot have a zero byte, and a
/// terminal obeys other control characters.
fn last_line(output: &[u8]) -> Option<String> {
    let output = String::from_utf8_lossy(output);
    let plain = |line: &str| line.replace(char::is_control, " ").trim().to_owned();
    output.lines().rev().map(plain).find(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn shell(command: &str) -> Command {
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(command);
        shell
    }

    fn explained(command: &str, limit: Duration) -> Result<Vec<u8>, String> {
        run_here(shell(command), limit, Output::Explains)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_command_fails_with_its_last_line() {
        assert_eq!(explained("echo fine", LONG), Ok(Vec::new()));
        let failed = explained("echo first; echo it is broken >&2; exit 3", LONG);
        assert_eq!(failed, Err("exit status: 3: it is broken".to_owned()));
        // The process that is left has the pipe.
        let began = Instant::now();
        let failed = explained("sleep 5 & exit 1", LONG);
        assert_eq!(failed, Err("exit status: 1".to_owned()));
        assert!(began.elapsed() < Duration::from_secs(4));
    }

    #[test]
    fn a_result_is_in_no_error() {
        let result = |command| run_here(shell(command), LONG, Output::IsResult(10));
        assert_eq!(result("printf 1234567890; echo more >&2"), Ok(b"1234567890".to_vec()));
        assert_eq!(result("echo secret; exit 3"), Err("exit status: 3".to_owned()));
        let too_long = Err("its output is longer than 10 bytes".to_owned());
        assert_eq!(result("printf 12345678901"), too_long);
        assert_eq!(result("yes"), too_long);
        assert_eq!(result("yes; sleep 60"), too_long);
    }

    #[test]
    fn a_process_that_a_result_has_left_is_killed() {
        // `sleep` has the pipe.
        let number = run_here(shell("sleep 60 & echo $!"), LONG, Output::IsResult(10)).unwrap();
        let number = String::from_utf8(number).unwrap();
        let began = Instant::now();
        // The state `Z` is that of a process that has ended.
        while let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", number.trim()))
            && !stat.contains(" Z ")
        {
            assert!(began.elapsed() < Duration::from_secs(30), "{stat}");
            thread::sleep(LOOK);
        }
    }

    #[test]
    fn a_result_is_refused_while_another_process_can_add_to_it() {
        // The other process has a group of its own, and the pipe.
        let command = "exec 3>&1; setsid -f sh -c 'echo ready; exec sleep 5 >&3' | read ready; \
                       printf secr";
        let refused = run_here(shell(command), LONG, Output::IsResult(10));
        assert_eq!(refused, Err("a process that it has left keeps its output open".to_owned()));
    }

    #[test]
    fn a_program_that_cannot_be_killed_is_not_waited_for() {
        let child = shell("sleep 60").spawn().unwrap();
        let number = child.id();
        let began = Instant::now();
        let refused = kill(child, |_| Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(began.elapsed() < Duration::from_secs(30));
        let own = Command::new("/bin/sh").arg("-c").arg(format!("kill -9 {number}")).status();
        assert!(own.unwrap().success());
        // A thread waits for it.
        while fs::exists(format!("/proc/{number}")).unwrap() {
            assert!(began.elapsed() < Duration::from_secs(59));
            thread::sleep(LOOK);
        }
    }

    #[test]
    fn the_last_line_has_no_control_character() {
        for (output, expected) in [
            (&b""[..], None),
            (b"\n \n\0\0\n", None),
            (b"one\ntwo", Some("two")),
            (b"one\n\0\0two\r\n\0", Some("two")),
            (b"\x1b[2Jred\xff", Some("[2Jred\u{fffd}")),
        ] {
            assert_eq!(last_line(output).as_deref(), expected, "{output:?}");
        }
    }

    #[test]
    fn a_command_that_hangs_is_killed() {
        let failed = explained("sleep 60", Duration::from_millis(20));
        assert_eq!(failed, Err("it did not end within 0.02 s".to_owned()));
    }
}
