use super::*;

fn parsed(line: &str) -> Result<Invocation, String> {
    parse(line.split(' ').map(OsString::from))
}

fn run(options: RunOptions) -> Result<Invocation, String> {
    Ok(Invocation::Run { options, config: "a.ini".into() })
}

#[test]
fn pgbouncers_convention_works() {
    let plain = RunOptions::default();
    let daemon = RunOptions { daemon: true, ..plain.clone() };
    let talkative = RunOptions { verbose: 2, ..plain.clone() };
    let user = RunOptions { user: Some("pg".into()), ..plain.clone() };
    for (line, options) in [
        ("weir a.ini", plain.clone()),
        ("weir -- a.ini", plain.clone()),
        ("weir -d a.ini", daemon.clone()),
        ("weir a.ini -d", daemon.clone()),
        ("weir -d -d a.ini", daemon.clone()),
        ("weir --daemon a.ini", daemon.clone()),
        ("weir --dae a.ini", daemon.clone()),
        ("weir -vv a.ini", talkative.clone()),
        ("weir -v a.ini --verbose", talkative),
        ("weir -q a.ini", RunOptions { quiet: true, ..plain.clone() }),
        ("weir -R a.ini", RunOptions { reboot: true, ..plain }),
        ("weir -u pg a.ini", user.clone()),
        ("weir -upg a.ini", user.clone()),
        ("weir --user=pg a.ini", user.clone()),
        ("weir a.ini --user pg", user.clone()),
        ("weir -u other -u pg a.ini", user.clone()),
        ("weir -dqupg a.ini", RunOptions { daemon: true, quiet: true, ..user }),
    ] {
        assert_eq!(parsed(line), run(options), "{line}");
    }
}

#[test]
fn a_supervised_start_names_a_descriptor() {
    let supervised = RunOptions { supervised: Some(7), ..RunOptions::default() };
    assert_eq!(parsed("weir --supervised 7 a.ini"), run(supervised));
    for line in [
        "weir --supervised 2 a.ini",
        "weir --supervised x a.ini",
        "weir --supervised 7",
        "weir --supervised 7 -d a.ini",
        "weir --supervised 7 -R a.ini",
        "weir --supervised 7 demo",
    ] {
        assert!(parsed(line).is_err(), "{line}");
    }
}

#[test]
fn no_file_and_two_files_get_pgbouncers_text() {
    for line in ["/usr/bin/weir -d", "/usr/bin/weir a.ini b.ini"] {
        assert_eq!(
            parsed(line).unwrap_err(),
            "/usr/bin/weir: no configuration file specified\n\
             Try \"/usr/bin/weir --help\" for more information.\n",
            "{line}"
        );
    }
}

#[test]
fn the_name_alone_gets_the_usage_and_the_demo() {
    let text = parsed("/usr/bin/weir").unwrap_err();
    assert!(text.starts_with("/usr/bin/weir: no configuration file specified\n\nUsage: weir "));
    assert!(text.contains("\"weir demo\" shows") && text.contains("--help\" for more"), "{text}");
}

#[test]
fn help_explains_a_command_or_a_key() {
    let Ok(Invocation::Print(text)) = parsed("weir help demo") else { panic!("no text") };
    assert!(text.contains("throw-away PostgreSQL") && text.contains("--bench"), "{text}");
    assert_eq!(parsed("weir help user"), Ok(Invocation::Help { topic: "user".into() }));
}

#[test]
fn the_manual_page_of_the_keys_is_printed() {
    let Ok(Invocation::Print(text)) = parsed("weir help --manual") else { panic!("no text") };
    assert!(text.starts_with(".TH WEIR.INI 5") && text.contains(".B pool_mode\n"), "{text}");
    assert!(parsed("weir help --manual pool_mode").is_err());
}

#[test]
fn a_completion_has_the_commands_and_the_keys() {
    for shell in ["bash", "zsh", "fish"] {
        let Ok(Invocation::Print(text)) = parsed(&format!("weir completion {shell}")) else {
            panic!("no text")
        };
        for word in [
            "check-config",
            "--connect",
            "--bench",
            "pool_mode",
            "--daemon",
            "zsh",
            "reconnect",
            "pools",
        ] {
            assert!(text.contains(word), "{shell}: {word}: {text}");
        }
    }
    assert!(parsed("weir completion tcsh").is_err());
}

#[test]
fn a_mistake_is_named_and_points_to_the_help() {
    for (line, named) in [
        ("weir -x a.ini", "invalid option -- 'x'"),
        ("weir --nope a.ini", "unrecognized option '--nope'"),
        ("weir --quiet=1 a.ini", "option '--quiet' doesn't allow an argument"),
        ("weir -u", "option requires an argument -- 'u'"),
        ("weir --user", "option '--user' requires an argument"),
        ("weir demo --bench 0", "0"),
        ("weir demo --bench", "option '--bench' requires an argument"),
        ("weir a.ini demo", "no configuration file specified"),
        ("weir -d demo", "-d and -R need a configuration file"),
    ] {
        let text = parsed(line).unwrap_err();
        let (first, second) = text.split_once('\n').unwrap();
        assert!(first.starts_with("weir: ") && first.contains(named), "{line}: {text}");
        assert!(!first.contains("error:"), "{line}: {text}");
        assert_eq!(second, "Try \"weir --help\" for more information.\n", "{line}");
    }
}

#[test]
fn commands_are_told_from_files() {
    let options = RunOptions { verbose: 1, ..RunOptions::default() };
    let url = "postgresql://h:1/";
    let serve = Invocation::Serve { options, url: Some(url.into()) };
    assert_eq!(parsed(&format!("weir -v serve {url}")), Ok(serve));
    let demo = |bench_seconds, library: Option<&str>| {
        let library = library.map(PathBuf::from);
        Ok(Invocation::Demo(DemoOptions { bench_seconds, library, cluster: None }))
    };
    let trio = |drill, max_loss| {
        let cluster = Some(ClusterDemo { drill, max_loss });
        Ok(Invocation::Demo(DemoOptions { cluster, ..DemoOptions::default() }))
    };
    assert_eq!(parsed("weir demo --cluster"), trio(None, None));
    assert_eq!(parsed("weir demo --cluster --drill 4"), trio(Some(4), None));
    assert_eq!(parsed("weir demo --cluster --drill 4 --max-loss 90"), trio(Some(4), Some(90)));
    assert!(parsed("weir demo --drill 4").is_err());
    assert!(parsed("weir demo --cluster --max-loss 90").is_err());
    assert_eq!(parsed("weir demo"), demo(None, None));
    assert_eq!(parsed("weir demo --bench 5"), demo(Some(5), None));
    assert_eq!(parsed("weir demo --library"), demo(None, Some("extension/weir.so")));
    assert_eq!(parsed("weir demo --library=a.so --bench 5"), demo(Some(5), Some("a.so")));
    assert_eq!(
        parsed("weir check-config a.ini"),
        Ok(Invocation::CheckConfig { file: "a.ini".into(), how: CheckOptions::default() })
    );
    let convert = ConvertOptions { file: "a.ini".into(), ..ConvertOptions::default() };
    assert_eq!(parsed("weir convert a.ini"), Ok(Invocation::Convert(convert.clone())));
    let convert = ConvertOptions {
        from: Some(Format::Pgpool),
        secrets: Some("/s".into()),
        pgpoolkey: Some("k".into()),
        ..convert
    };
    let line = "weir convert a.ini --from pgpool --secrets /s --pgpoolkey k";
    assert_eq!(parsed(line), Ok(Invocation::Convert(convert)));
    let pools = Invocation::Help { topic: "show pools".into() };
    assert_eq!(parsed("weir help show pools"), Ok(pools));
    assert_eq!(parsed("weir help pool_mode"), Ok(Invocation::Help { topic: "pool_mode".into() }));
    let Ok(Invocation::Run { config, .. }) = parsed("weir ./demo") else {
        panic!("a path is a file, whatever its name")
    };
    assert_eq!(config, PathBuf::from("./demo"));
}

#[test]
fn ctl_takes_the_words_of_a_command_and_where_it_goes() {
    let Ok(Invocation::Ctl(options)) = parsed("weir ctl show pools --json -h /run -p 1 -U bob")
    else {
        panic!("these are options of ctl");
    };
    assert_eq!(options.words, ["show", "pools"]);
    assert!(options.json);
    let expected = ConsoleOptions {
        config: None,
        host: Some("/run".into()),
        port: Some("1".into()),
        user: Some("bob".into()),
    };
    assert_eq!(options.console, expected);
    assert!(parsed("weir ctl").is_err());
    let Ok(Invocation::Report(options)) = parsed("weir report -h /run -p 1 -U bob -o a.html")
    else {
        panic!("these are options of report");
    };
    assert_eq!((options.console, options.output), (expected, Some("a.html".into())));
    assert!(
        matches!(parsed("weir help ctl"), Ok(Invocation::Print(text)) if text.contains("--json"))
    );
}

#[test]
fn help_and_version_are_printed() {
    for line in ["weir -h", "weir --help", "weir help"] {
        let Ok(Invocation::Print(text)) = parsed(line) else { panic!("{line}") };
        for part in ["weir [OPTION]... CONFIG", "-R, --reboot", "check-config"] {
            assert!(text.contains(part), "{line}: {text}");
        }
    }
    for line in ["weir -V", "weir --version", "weir -d -V"] {
        let Ok(Invocation::Print(text)) = parsed(line) else { panic!("{line}") };
        assert!(text.starts_with("PgBouncer 1.25.2\nWeir "), "{text}");
    }
}

#[test]
fn bench_takes_pgbenchs_options() {
    let Ok(Invocation::Bench(options)) =
        parsed("weir bench -S -c 10 -j 2 -T 5 -M prepared -h localhost -p 6432 -U app --rate=9 db")
    else {
        panic!("these are options of pgbench");
    };
    assert!(options.select_only);
    assert_eq!((options.clients, options.jobs, options.time), (10, 2, Some(5)));
    assert_eq!((options.protocol, options.rate), (load::Mode::Prepared, Some(9.0)));
    assert_eq!(options.host.as_deref(), Some("localhost"));
    assert_eq!(options.database.as_deref(), Some("db"));
    for line in ["weir bench -c 0", "weir bench -t 5 -T 5", "weir bench -R 0", "weir bench -M x"] {
        assert!(parsed(line).is_err(), "{line}");
    }
}
