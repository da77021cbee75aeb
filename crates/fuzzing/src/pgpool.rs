//! Any configuration of Pgpool-II. It is refused with a line of a file, or gives a `weir.toml` that can
//! be read and has no password.

use config::Config;
use pgpool::{Settings, Sources, TextFile, convert, is_pgpool};

/// The maximum length of an input. Nested includes multiply it.
const LEN_MAX: usize = 16_384;
/// A password that no input has by chance.
const PASSWORD: &str = "watch-me-8f3a";

/// Reads a `pgpool.conf`. Parts after a NUL are `pool_hba.conf`, `pool_passwd`, `pcp.conf`, and the file
/// that every include means.
pub fn pgpool(data: &[u8]) {
    let text = String::from_utf8_lossy(&data[..data.len().min(LEN_MAX)]);
    let mut parts = text.split('\0');
    let mut part = || parts.next().unwrap_or_default();
    let (main, rules, users, operators, included) = (part(), part(), part(), part(), part());
    let _ = is_pgpool(main);
    let include = |name: &str, _: &str| match name.is_empty() {
        true => Err("it has no name".to_owned()),
        false => Ok((name.to_owned(), included.to_owned())),
    };
    let settings = match Settings::parse(main, "pgpool.conf", &include) {
        Ok(settings) => settings,
        Err(broken) => {
            assert!(broken.place.line > 0 && !broken.why.is_empty(), "{broken}");
            return;
        }
    };
    let file = |name, text| Some(TextFile { name, text });
    let done = convert(&Sources {
        name: "pgpool.conf",
        settings: &settings,
        pool_hba: file("pool_hba.conf", rules),
        pool_passwd: file("pool_passwd", users),
        pcp_conf: file("pcp.conf", operators),
        key: Some("key"),
        decrypt: &|_, bytes| (!bytes.is_empty()).then(|| PASSWORD.to_owned()),
        auth_file: "weir-users.txt",
        password_file: "weir-monitor.txt",
    });
    let done = match done {
        Ok(done) => done,
        Err(broken) => {
            assert!(!broken.why.is_empty(), "{broken}");
            return;
        }
    };
    let report = done.report.to_string();
    assert_eq!(done.report.entries.len(), settings.effective().count(), "{report}");
    if !text.contains(PASSWORD) {
        assert!(!done.toml.contains(PASSWORD) && !report.contains(PASSWORD), "a password is shown");
    }
    if let Err(error) = Config::parse_toml(&done.toml, "weir.toml") {
        panic!("{error}\n{}", done.toml);
    }
}
