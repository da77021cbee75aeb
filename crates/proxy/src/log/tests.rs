use std::{cell::Cell, env, fmt, fs, process};

use super::*;

fn line_of(level: Level, message: fmt::Arguments<'_>) -> String {
    let mut text = String::new();
    line::with(false, level, None, message, |line| text = line.text.to_owned());
    text
}

/// `YYYY-MM-DD HH:MM:SS.mmm ZONE [PID] LEVEL message`, as readers of PgBouncer's log split it.
#[test]
fn a_line_has_the_shape_of_pgbouncer() {
    let line = line_of(Level::Warning, format_args!("pooler error: {}", "no such user"));
    let (stamp, rest) = line.split_at(23);
    for (i, c) in stamp.chars().enumerate() {
        match i {
            4 | 7 => assert_eq!(c, '-', "{line}"),
            10 => assert_eq!(c, ' ', "{line}"),
            13 | 16 => assert_eq!(c, ':', "{line}"),
            19 => assert_eq!(c, '.', "{line}"),
            _ => assert!(c.is_ascii_digit(), "{line}"),
        }
    }
    let (zone, rest) = rest.strip_prefix(' ').unwrap().split_once(' ').unwrap();
    assert!(!zone.is_empty(), "{line}");
    assert_eq!(rest, format!("[{}] WARNING pooler error: no such user\n", process::id()));
}

#[test]
fn a_line_end_in_a_message_cannot_forge_a_line() {
    let line = line_of(Level::Log, format_args!("user={}", "a\nb\r\0c"));
    assert!(line.ends_with("LOG user=a b  c\n"), "{line:?}");
}

fn json_of(about: Option<&About<'_>>, message: fmt::Arguments<'_>) -> serde_json::Value {
    let mut text = String::new();
    line::with(true, Level::Log, about, message, |line| text = line.text.to_owned());
    assert!(text.ends_with("}\n") && text.matches('\n').count() == 1, "{text:?}");
    assert!(text.len() <= 8192 + 64, "{}", text.len());
    serde_json::from_str(&text).unwrap()
}

#[test]
fn json_has_a_field_for_each_part() {
    let address = "10.1.2.3:5432";
    let about = About {
        side: 'S',
        number: Some(26),
        database: "shop",
        user: "(nouser)",
        address: &address,
    };
    let line = json_of(Some(&about), format_args!("closing because: {}", "evicted"));
    assert_eq!(line["level"], "LOG");
    assert_eq!(line["pid"], process::id());
    assert_eq!(line["connection"], "S-0x1a");
    assert_eq!((&line["database"], &line["address"]), (&"shop".into(), &address.into()));
    assert_eq!(line["message"], "closing because: evicted");
    assert!(line.get("user").is_none(), "{line}");
    let time = line["time"].as_str().unwrap();
    assert_eq!((time.len(), &time[10..11]), ("2026-11-25T20:05:47.123+00:00".len(), "T"), "{time}");
    assert_eq!(about.to_string(), "S-0x1a: shop/(nouser)@10.1.2.3:5432");
}

#[test]
fn json_survives_hostile_names_and_cuts_between_characters() {
    let hostile = "a\"}\n{\"b\\\u{7f}\u{85}\0é";
    let about =
        About { side: 'C', number: None, database: hostile, user: hostile, address: &hostile };
    let line = json_of(Some(&about), format_args!("{hostile}"));
    for field in ["database", "user", "address", "message"] {
        assert_eq!(line[field], hostile, "{field}");
    }
    let long = "\"é\u{1}".repeat(9000);
    let about = About { side: 'C', number: None, database: &long, user: &long, address: &long };
    let line = json_of(Some(&about), format_args!("{long}"));
    assert!(long.starts_with(line["message"].as_str().unwrap()), "{line}");
}

#[test]
fn a_long_message_is_cut_between_characters() {
    let line = line_of(Level::Log, format_args!("{}", "é".repeat(9000)));
    assert!(line.len() <= 8192 && line.len() > 8180, "{}", line.len());
    assert!(line.ends_with("é\n"));
}

#[test]
fn a_line_logged_within_a_line_does_not_panic() {
    struct Chatty;
    impl fmt::Display for Chatty {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            line_of(Level::Log, format_args!("inner"));
            f.write_str("outer")
        }
    }
    assert!(line_of(Level::Log, format_args!("{Chatty}")).ends_with("LOG outer\n"));
}

fn configure_for(file: &Path, verbose: u32) -> Result<(), LogFileError> {
    configure(&Global { logfile: file.display().to_string(), verbose, ..Global::default() })
}

/// Returns how many descriptors this process has of the file.
fn files_at(path: &Path) -> usize {
    let all = fs::read_dir("/proc/self/fd").unwrap().flatten();
    all.filter(|fd| fs::read_link(fd.path()).is_ok_and(|found| found == path)).count()
}

/// One test for all global state: early lines, the level, the file, its reopening.
#[test]
fn the_file_is_reopened_and_the_level_obeyed() {
    let dir = env::temp_dir().join(format!("weir-log-{}", process::id()));
    fs::create_dir(&dir).unwrap();
    let (path, rotated) = (dir.join("log"), dir.join("log.1"));
    init(false, 0);
    crate::warning!("before the file was open");
    assert!(!path.exists());
    configure_for(&path, 0).unwrap();
    let early = fs::read_to_string(&path).unwrap();
    assert!(early.contains("WARNING before the file was open\n"), "{early}");

    let formatted = Cell::new(0);
    let count = || {
        formatted.set(formatted.get() + 1);
        formatted.get()
    };
    crate::debug!("not shown {}", count());
    crate::log!("first {}", count());
    fs::rename(&path, &rotated).unwrap();
    crate::log!("second {}", count());
    configure_for(&path, 1).unwrap();
    crate::debug!("third {}", count());
    crate::noise!("not shown {}", count());

    let old = fs::read_to_string(&rotated).unwrap();
    let new = fs::read_to_string(&path).unwrap();
    assert!(old.contains("LOG first 1\n") && old.contains("LOG second 2\n"), "{old}");
    assert!(new.contains("DEBUG third 3\n") && !new.contains("not shown"), "{new}");

    assert!(configure_for(&dir, 2).is_err());
    crate::error!("the log goes on");
    crate::noise!("and says what it is to say");
    let new = fs::read_to_string(&path).unwrap();
    assert!(new.contains("ERROR the log goes on\n"), "{new}");
    assert!(new.contains("NOISE and says what it is to say\n"), "{new}");

    let open = files_at(&path);
    forget_files();
    crate::error!("for standard error only");
    assert_eq!((fs::read_to_string(&path).unwrap(), files_at(&path)), (new, open));
    init(false, 1);
    configure(&Global { verbose: 0, ..Global::default() }).unwrap();
    assert!(enabled(Level::Debug) && !enabled(Level::Noise));
    configure(&Global { verbose: 2, ..Global::default() }).unwrap();
    init(true, 0);
    assert!(enabled(Level::Noise), "the configuration asks for it still");
    configure(&Global { verbose: 0, ..Global::default() }).unwrap();
    fs::remove_dir_all(&dir).unwrap();
}
