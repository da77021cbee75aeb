//! Copies the engine's source with all mutants woven in, and writes a test for each mutant.

#[allow(dead_code, unreachable_pub, reason = "the library has the list, too")]
mod list;
mod weave;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const ENGINE: &str = "../engine/src";

fn main() {
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("cargo sets it"));
    for path in ["src", ENGINE] {
        println!("cargo:rerun-if-changed={path}");
    }
    let copy = out.join("engine");
    if copy.exists() {
        fs::remove_dir_all(&copy).expect("the last copy is ours");
    }
    let mut misfits: Vec<Option<String>> = list::mutants().map(lacks_file).collect();
    copy_dir(Path::new(ENGINE), &copy, Path::new(""), &mut misfits);
    let (mut tests, mut scripted) = (String::new(), String::new());
    for (at, mutant) in list::mutants().enumerate() {
        let name = mutant.name;
        let outcome = match &misfits[at] {
            Some(why) => {
                println!("cargo:warning={why}");
                format!("panic!(\"{{}}\", {why:?})")
            }
            None => match mutant.script() {
                Some(script) => format!("crate::caught_mutant({at}, crate::{script})"),
                None => format!("crate::caught_mutant({at})"),
            },
        };
        let tests = if mutant.script().is_some() { &mut scripted } else { &mut tests };
        let _ = writeln!(tests, "#[test]\nfn {name}() {{\n    {outcome}\n}}");
    }
    fs::write(out.join("tests.rs"), tests).expect("OUT_DIR can be written");
    fs::write(out.join("scripted_tests.rs"), scripted).expect("OUT_DIR can be written");
}

/// Returns an error text if a file that the mutant changes does not exist.
fn lacks_file(mutant: &list::Mutant) -> Option<String> {
    let is_missing = |change: &&list::Change| !Path::new(ENGINE).join(change.file).is_file();
    let change = mutant.changes.iter().find(is_missing)?;
    Some(format!("mutant {}: there is no crates/engine/src/{}", mutant.name, change.file))
}

/// Copies a folder of the engine. `inside` is its path below the engine's source.
fn copy_dir(from: &Path, to: &Path, inside: &Path, misfits: &mut [Option<String>]) {
    fs::create_dir_all(to).expect("OUT_DIR can be written");
    for entry in fs::read_dir(from).expect("the engine is there") {
        let entry = entry.expect("the engine can be read");
        let (path, name) = (entry.path(), entry.file_name());
        let (to, inside) = (to.join(&name), inside.join(&name));
        if path.is_dir() {
            copy_dir(&path, &to, &inside, misfits);
            continue;
        }
        let source = fs::read_to_string(&path).expect("the engine can be read");
        let file = inside.to_str().expect("the engine's files have plain names");
        let mut woven = weave::weave(file, &source, misfits);
        // The engine's own tests run in its own crate.
        woven = woven.replace("#[cfg(test)]", "#[cfg(any())]");
        if file == "lib.rs" {
            // An included file cannot have inner attributes or inner documentation.
            let is_inner = |line: &&str| line.starts_with("//!") || line.starts_with("#![");
            woven = woven.lines().filter(|line| !is_inner(line)).collect::<Vec<_>>().join("\n");
        }
        fs::write(&to, woven).expect("OUT_DIR can be written");
    }
}
