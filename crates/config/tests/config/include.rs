//! `%include`.

use std::io;
use std::path::Path;

use config::{Config, ConfigError};

fn parse(files: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let include = |path: &Path| {
        let file = files.iter().find(|(name, _)| Path::new(name) == path);
        file.map(|(_, text)| (*text).to_owned()).ok_or(io::Error::from(io::ErrorKind::NotFound))
    };
    Config::parse_ini(files[0].1, files[0].0, &include)
}

fn mistakes(files: &[(&str, &str)]) -> Vec<String> {
    parse(files).expect_err("mistakes").mistakes.iter().map(ToString::to_string).collect()
}

#[test]
fn an_included_file_is_read_in_place_and_the_section_goes_on() {
    let config = parse(&[
        ("main.ini", "[pgbouncer]\n%include more.ini\nb = host=x\n[users]\n"),
        ("more.ini", "listen_port = 7000\n[databases]\na = host=y\n"),
    ]);
    let config = config.unwrap();
    assert_eq!(config.global.listen_port, 7000);
    assert_eq!(config.databases.keys().collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn the_main_section_may_be_in_an_included_file() {
    assert!(parse(&[("main.ini", "%include  more.ini \n"), ("more.ini", "[pgbouncer]\n")]).is_ok());
}

#[test]
fn a_mistake_names_the_included_file() {
    let files = [("main.ini", "[pgbouncer]\n%include more.ini\n"), ("more.ini", "\n\nnope = 1\n")];
    assert_eq!(mistakes(&files), ["more.ini:3: nope: unknown parameter: pgbouncer/nope"]);
}

#[test]
fn ten_levels_are_allowed_and_no_more() {
    let names: Vec<_> = (0..12).map(|level| format!("{level}.ini")).collect();
    let texts: Vec<_> = (0..12)
        .map(|level| match level {
            11 => "[pgbouncer]\n".to_owned(),
            level => format!("%include {}.ini\n", level + 1),
        })
        .collect();
    let files: Vec<_> =
        names.iter().map(String::as_str).zip(texts.iter().map(String::as_str)).collect();
    assert!(parse(&files[1..]).is_ok());
    assert_eq!(
        mistakes(&files),
        [
            "10.ini:1: include nesting level too deep, maximum is 10",
            "0.ini: main section missing from config file",
        ]
    );
}

#[test]
fn a_file_that_includes_itself_is_an_error() {
    let files = [("main.ini", "[pgbouncer]\n%include main.ini\n")];
    assert_eq!(mistakes(&files), ["main.ini:2: include nesting level too deep, maximum is 10"]);
}

#[test]
fn bad_directives() {
    let cases = [
        ("%include gone.ini", "could not load file \"gone.ini\": entity not found"),
        ("%include", "syntax error in configuration"),
        ("%include ", "syntax error in configuration"),
        ("%includes.ini", "syntax error in configuration"),
        ("%load x", "syntax error in configuration"),
    ];
    for (line, reason) in cases {
        let text = format!("[pgbouncer]\n{line}\n");
        assert_eq!(mistakes(&[("main.ini", &text)]), [format!("main.ini:2: {reason}")], "{line}");
    }
}
