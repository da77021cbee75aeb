//! Tests of the crate's interface: texts in, a configuration or a list of mistakes out.

extern crate weir_config as config;

mod clusters;
mod convert;
mod data_path;
mod defaults;
mod describe;
mod docs;
mod examples;
mod include;
mod load;
mod lookup;
mod mistakes;
mod random;
mod toml;
mod url;

use std::io;
use std::path::Path;

use config::Config;

/// Fails to include a file, for texts without includes.
fn no_file(path: &Path) -> io::Result<String> {
    Err(io::Error::new(io::ErrorKind::NotFound, format!("no {}", path.display())))
}

fn ini(text: &str) -> Config {
    Config::parse_ini(text, "test.ini", &no_file).unwrap_or_else(|error| panic!("{error}"))
}

fn ini_mistakes(text: &str) -> Vec<String> {
    let error = Config::parse_ini(text, "test.ini", &no_file).expect_err("mistakes");
    error.mistakes.iter().map(ToString::to_string).collect()
}

fn toml(text: &str) -> Config {
    Config::parse_toml(text, "weir.toml").unwrap_or_else(|error| panic!("{error}"))
}

fn toml_mistakes(text: &str) -> Vec<String> {
    let error = Config::parse_toml(text, "weir.toml").expect_err("mistakes");
    error.mistakes.iter().map(ToString::to_string).collect()
}
