//! Notes the compiler's version: counts of instructions are compared only between equal ones.

use std::process::Command;

fn main() {
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let output = Command::new(compiler).arg("-V").output();
    let version = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    println!("cargo::rustc-env=WEIR_BENCH_COMPILER={}", version.unwrap_or_default());
    println!("cargo::rerun-if-changed=build.rs");
}
