//! Compiles `extension/lobby.c`, and writes the constants of `lobby.h` for Rust.

use std::{env, fmt::Write as _, fs, path::Path};

const FOLDER: &str = "../../extension";

fn main() {
    let [source, header] = ["lobby.c", "lobby.h"].map(|name| format!("{FOLDER}/{name}"));
    for path in [&source, &header, "src/backend.c"] {
        println!("cargo::rerun-if-changed={path}");
    }
    // The linker takes the second one for the tests only.
    cc::Build::new()
        .files([&source, "src/backend.c"])
        .include(FOLDER)
        .std("gnu11")
        .compile("lobby");
    let text = fs::read_to_string(header).expect("lobby.h can be read");
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&out).join("lobby.rs"), constants(&text)).expect("OUT_DIR can be written");
}

/// Returns the values of all enums, and the numbers that the header defines.
fn constants(header: &str) -> String {
    let mut out = String::new();
    let text = without_comments(header);
    for body in text.split("typedef enum ").skip(1) {
        let names = body.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
        let (names, _) = names.expect("an enum has braces");
        for (value, name) in names.split(',').map(str::trim).enumerate() {
            define(&mut out, name, &value.to_string());
        }
    }
    for line in text.lines() {
        if let Some((name, value)) = line.strip_prefix("#define ").and_then(|it| it.split_once(' '))
            && is_number(value)
        {
            define(&mut out, name, value.trim());
        }
    }
    out
}

fn define(out: &mut String, name: &str, value: &str) {
    assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{name}");
    writeln!(out, "pub(crate) const {name}: u32 = {value};").expect("a string can grow");
}

/// Is this a sum or product of numbers? It means the same in Rust.
fn is_number(value: &str) -> bool {
    value.chars().all(|sign| sign.is_ascii_hexdigit() || "x +-*()".contains(sign))
}

fn without_comments(text: &str) -> String {
    let mut parts = text.split("/*");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| out + part.split_once("*/").map_or("", |(_, rest)| rest))
}
