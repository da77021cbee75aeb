//! The commands of the cluster, `stop_command` and others. This process has started the servers, so
//! the commands ask it by files to do their work.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
};

use anyhow::{Context as _, bail};

use super::{
    super::terminal::say,
    nodes::{NAMES, Nodes},
};

/// Tells its argument and its nodes by the name of a file, and ends as another file says, or when the
/// demo is gone. Its second argument is the demo's process.
const SCRIPT: &str = r#"ask="${0%/*}/ask.$1.$WEIR_NODE.${WEIR_NEW_NODE:-none}.$$"
: >"$ask"
while [ ! -e "$ask.answer" ]; do
    kill -0 "$2" || exit 1
    sleep 0.01
done
exit "$(cat "$ask.answer")"
"#;

pub(in crate::demo) struct Hooks {
    folder: PathBuf,
    script: PathBuf,
}

/// A command that waits.
struct Hook {
    kind: String,
    node: usize,
    new: Option<usize>,
    file: PathBuf,
}

impl Hooks {
    pub(super) fn new(scratch: &Path) -> anyhow::Result<Self> {
        let folder = scratch.join("hooks");
        fs::create_dir(&folder).context("could not create the folder of commands")?;
        let script = folder.join("hook");
        fs::write(&script, SCRIPT).context("could not write the script of commands")?;
        Ok(Self { folder, script })
    }

    /// Returns the keys of the cluster.
    pub(in crate::demo) fn keys(&self) -> String {
        let (script, demo) = (self.script.display(), process::id());
        let key = |kind| format!("{kind}_command='sh {script} {kind} {demo}'");
        ["stop", "start", "rejoin", "fence"].map(key).join(" ")
    }

    /// Carries out a command that waits, if there is one.
    pub(super) fn serve(&self, nodes: &mut Nodes) -> anyhow::Result<()> {
        let Some(Hook { kind, node, new, file }) = self.asked() else { return Ok(()) };
        let done = match kind.as_str() {
            "stop" => nodes.stop(node),
            "start" => nodes.start(node),
            "fence" => nodes.kill(node),
            "rejoin" => nodes.rejoin(node, new),
            _ => bail!("an unknown command: {kind}"),
        };
        if let Err(error) = &done {
            say(&format!("{kind}_command failed for node {}: {error:#}", NAMES[node]));
        }
        self.answer(&file, done.is_ok())
    }

    /// Returns a command that waits, if there is one.
    fn asked(&self) -> Option<Hook> {
        let files = fs::read_dir(&self.folder).ok()?.flatten().map(|entry| entry.path());
        files.filter_map(hook).next()
    }

    /// Ends a command that waits, with this outcome.
    fn answer(&self, file: &Path, is_done: bool) -> anyhow::Result<()> {
        // Renamed, so that the script never reads half of it.
        let draft = self.folder.join("draft");
        fs::write(&draft, if is_done { "0" } else { "1" }).context("could not answer a command")?;
        let answer = PathBuf::from(format!("{}.answer", file.display()));
        fs::rename(draft, answer).context("could not answer a command")?;
        fs::remove_file(file).context("could not remove an answered command")
    }
}

fn hook(file: PathBuf) -> Option<Hook> {
    let name = file.file_name()?.to_str()?.to_owned();
    let [ask, kind, node, new, pid] = name.split('.').collect::<Vec<_>>()[..] else { return None };
    let at = |name: &str| NAMES.iter().position(|known| *known == name);
    let is_one = ask == "ask" && pid.bytes().all(|byte| byte.is_ascii_digit());
    let (kind, node, new) = (kind.to_owned(), at(node)?, at(new));
    is_one.then_some(Hook { kind, node, new, file })
}
