//! Copies the source of `cluster` with all mutants woven in, and writes a test for each mutant.

#[allow(dead_code, unreachable_pub, reason = "the library has the list, too")]
mod list;
#[path = "../../mutants/src/weave.rs"]
mod weave;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const SOURCE: &str = "../cluster/src";

fn main() {
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("cargo sets it"));
    for path in ["src", SOURCE, "../mutants/src/weave.rs"] {
        println!("cargo:rerun-if-changed={path}");
    }
    let copy = out.join("source");
    if copy.exists() {
        fs::remove_dir_all(&copy).expect("the last copy is ours");
    }
    let is_missing = |file: &str| !Path::new(SOURCE).join(file).is_file();
    let mut misfits: Vec<Option<String>> = list::mutants()
        .map(|mutant| {
            let change = mutant.changes.iter().find(|change| is_missing(change.file))?;
            Some(format!("mutant {}: there is no {SOURCE}/{}", mutant.name, change.file))
        })
        .collect();
    copy_dir(Path::new(SOURCE), &copy, Path::new(""), &mut misfits);
    let mut tests = String::new();
    for (at, mutant) in list::mutants().enumerate() {
        let outcome = match &misfits[at] {
            Some(why) => {
                println!("cargo:warning={why}");
                format!("panic!(\"{{}}\", {why:?})")
            }
            None => format!("crate::caught_mutant({at})"),
        };
        let _ = writeln!(tests, "#[test]\nfn {}() {{\n    {outcome}\n}}", mutant.name);
    }
    fs::write(out.join("tests.rs"), tests).expect("OUT_DIR can be written");
}

/// Copies a folder of the crate. `inside` is its path below the crate's source.
fn copy_dir(from: &Path, to: &Path, inside: &Path, misfits: &mut [Option<String>]) {
    fs::create_dir_all(to).expect("OUT_DIR can be written");
    for entry in fs::read_dir(from).expect("the crate is there") {
        let entry = entry.expect("the crate can be read");
        let (path, name) = (entry.path(), entry.file_name());
        let (to, inside) = (to.join(&name), inside.join(&name));
        if path.is_dir() {
            copy_dir(&path, &to, &inside, misfits);
            continue;
        }
        let file = inside.to_str().expect("names are plain");
        let source = fs::read_to_string(&path).expect("the crate can be read");
        let mut woven = weave::weave(file, &source, misfits);
        // The crate's own tests run in the crate.
        woven = woven.replace("#[cfg(test)]", "#[cfg(any())]");
        if file == "lib.rs" {
            // An included file cannot have inner attributes or inner documentation.
            let is_inner = |line: &&str| line.starts_with("//!") || line.starts_with("#![");
            woven = woven.lines().filter(|line| !is_inner(line)).collect::<Vec<_>>().join("\n");
        }
        fs::write(to, woven).expect("OUT_DIR can be written");
    }
}
