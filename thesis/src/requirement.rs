//! A requirement of the thesis, and how it is shown.

use std::panic;
use std::sync::{Mutex, PoisonError};

use crate::results::{Results, Verdict};
use crate::run::Run;
use crate::site::Path;

/// A requirement. Its name says in words what is required.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requirement {
    pub(crate) name: &'static str,
    /// Shows it on one path, or says why it cannot hold there.
    pub(crate) show: fn(&Run, Path) -> Verdict,
}

impl Requirement {
    /// Shows the requirement on each of its paths, and prints a line for each.
    pub(crate) fn show(&self, run: &Run, results: &mut Results) {
        for path in Path::ALL {
            let verdict = guarded(|| (self.show)(run, path));
            results.add(format!("{}, {}", self.name, path.name()), verdict);
        }
    }
}

/// The text and the place of the first panic of the present requirement, in any thread.
static PANIC: Mutex<String> = Mutex::new(String::new());

fn with_panic<R>(act: impl FnOnce(&mut String) -> R) -> R {
    act(&mut PANIC.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Keeps the text of each panic for the line of its requirement.
pub(crate) fn catch_panics() {
    panic::set_hook(Box::new(|info| {
        let text = info.to_string().replace('\n', " ");
        with_panic(|kept| {
            if kept.is_empty() {
                *kept = text;
            }
        });
    }));
}

/// Runs a demonstration. A panic is a failure of the requirement, or of the machine.
fn guarded(show: impl FnOnce() -> Verdict) -> Verdict {
    with_panic(String::clear);
    // A panic drops the site, which stops its servers.
    let shown = panic::catch_unwind(panic::AssertUnwindSafe(show));
    shown.unwrap_or_else(|_| Verdict::Failed(with_panic(std::mem::take)))
}
