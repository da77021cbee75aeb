//! Files on disk.

use std::fs;
use std::path::{Path, PathBuf};

use config::{AccessPolicy, Config, Host};

/// A folder that is removed at the end of its test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("config-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_name_of_the_file_tells_its_format() {
    let folder = Folder::new("format");
    let toml = folder.write("weir.toml", "listen_port = 1\n[databases.a]\nhost = \"h\"\n");
    let ini = folder.write("pooler.conf", "[pgbouncer]\nlisten_port=1\n[databases]\na=host=h\n");
    let (toml, ini) = (Config::load(&toml).unwrap(), Config::load(&ini).unwrap());
    assert_eq!(toml.databases, ini.databases);
    assert_eq!(toml.databases["a"].hosts, [Host::Tcp("h".into())]);
    assert_eq!(toml.path, Some(folder.0.join("weir.toml")));
    assert!(ini.global.conffile.unwrap().ends_with("pooler.conf"));
}

#[test]
fn auth_file_and_includes_are_read_from_disk() {
    let folder = Folder::new("auth");
    let users = folder.write("users.txt", "\"a\" \"b\"\nbroken\n");
    let more = folder.write("more.ini", &format!("auth_file = {}\n", users.display()));
    let text = format!("[pgbouncer]\n%include {}\n", more.display());
    let config = Config::load(&folder.write("p.ini", &text)).unwrap();
    assert_eq!(config.auth_file.users["a"], "b");
    let error = config.errors[0].to_string();
    assert!(error.ends_with("users.txt:2: broken auth file, the rest of the file is not read"));
}

#[test]
fn the_users_of_the_tools_are_read_and_a_port_without_users_is_named() {
    let folder = Folder::new("pcp");
    let file = folder.write("pcp.conf", &format!("admin:{}\n", "0a".repeat(16)));
    let load = |file: &Path| {
        let text = format!("[pgbouncer]\npcp_port = 9898\npcp_file = {}\n", file.display());
        Config::load(&folder.write("p.ini", &text)).unwrap()
    };
    let warnings =
        |config: Config| config.warnings.iter().map(ToString::to_string).collect::<Vec<_>>();
    let config = load(&file);
    assert_eq!((config.pcp_users.0.len(), &*config.pcp_users.0[0].name), (1, "admin"));
    assert_eq!(warnings(config), Vec::<String>::new());
    let empty = warnings(load(&folder.write("empty", "# nobody\n")));
    assert!(empty[0].ends_with("pcp_file names no user, so nobody can log in"), "{empty:?}");
    let gone = warnings(load(&folder.0.join("gone")));
    assert!(gone[0].ends_with("could not open pcp_file: No such file or directory"), "{gone:?}");
}

#[test]
fn a_reload_keeps_the_users_of_the_tools_if_their_file_cannot_be_read() {
    let folder = Folder::new("pcp-kept");
    let file = folder.write("pcp.conf", &format!("admin:{}\n", "0a".repeat(16)));
    let text = format!("[pgbouncer]\npcp_port = 9898\npcp_file = {}\n", file.display());
    let path = folder.write("p.ini", &text);
    let running = Config::load(&path).unwrap();
    let reload = |content: Option<&str>| {
        match content {
            Some(content) => fs::write(&file, content).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        let mut whole = Config::load(&path).unwrap();
        let kept = whole.keep_unread(&running);
        // If the configuration file has a mistake, too.
        let mut reread = running.clone();
        reread.reread_access();
        assert_eq!(reread.keep_unread(&running), kept);
        assert_eq!(reread.pcp_users, whole.pcp_users);
        (whole.pcp_users, kept)
    };
    let kept = vec!["pcp_file could not be read, keeping its users".to_owned()];
    assert_eq!(reload(Some("adm")), (running.pcp_users.clone(), kept.clone()));
    assert_eq!(reload(None), (running.pcp_users.clone(), kept));
    let (users, kept) = reload(Some("# nobody\n"));
    assert_eq!((users.0.len(), kept), (0, Vec::new()), "an empty file removes the users");
}

#[test]
fn a_missing_auth_file_keeps_users_out_and_a_missing_configuration_is_an_error() {
    let folder = Folder::new("missing");
    let gone = folder.0.join("gone");
    let text = format!("[pgbouncer]\nauth_file = {}\n", gone.display());
    let config = Config::load(&folder.write("p.ini", &text)).unwrap();
    let gone_name = gone.display();
    let expected = format!("could not open auth_file {gone_name}: No such file or directory");
    assert_eq!(config.errors[0].to_string(), expected);
    let error = Config::load(&gone).unwrap_err().to_string();
    let expected = format!("could not load file \"{gone_name}\": No such file or directory");
    assert_eq!(error, expected);
}

#[test]
fn a_comment_may_be_in_any_encoding_and_nothing_else() {
    let folder = Folder::new("encoding");
    let load = |text: &[u8]| {
        let path = folder.0.join("p.ini");
        fs::write(&path, text).unwrap();
        Config::load(&path)
    };
    let text = b"; f\xfcr uns\n[pgbouncer]\n  # \xe4\nlisten_port = 7\n";
    assert_eq!(load(text).unwrap().global.listen_port, 7);
    let error = load(b"[pgbouncer]\nlogfile = \xfc\n").unwrap_err().to_string();
    assert!(error.ends_with("p.ini\": line 2 is not in UTF-8"), "{error}");
}

#[test]
fn a_byte_order_mark_is_skipped() {
    let folder = Folder::new("mark");
    let users = folder.write("users.txt", "\u{feff}\"alice\" \"secret\"\n");
    let text = format!("\u{feff}[pgbouncer]\nauth_file = {}\n", users.display());
    let config = Config::load(&folder.write("weir.ini", &text)).unwrap();
    assert!(config.auth_file.users.contains_key("alice"));
    let toml = folder.write("weir.toml", "\u{feff}listen_port = 1\n");
    assert_eq!(Config::load(&toml).unwrap().global.listen_port, 1);
}

#[test]
fn auth_type_decides_whether_the_server_judges_passwords() {
    let folder = Folder::new("server");
    let text = "[databases]\na = host=h user=u\nb = host=h\n[pgbouncer]\nauth_type = server\n";
    let mut config = Config::load(&folder.write("p.ini", text)).unwrap();
    assert_eq!(config.access, AccessPolicy::ProvenByServer);
    assert_eq!(config.proof_database(), "b", "the users of a are all u there");
    config.set("auth_type", "trust").unwrap();
    assert_eq!(config.access, AccessPolicy::Configured);
    let mut of_url = Config::from_url("postgresql://h").unwrap();
    of_url.set("auth_type", "trust").unwrap();
    assert_eq!(of_url.access, AccessPolicy::ProvenByServer, "the URL decides");
}

#[test]
fn variables_are_replaced_in_a_toml_and_in_own_keys_of_an_ini() {
    let folder = Folder::new("variables");
    // Cargo sets this one for each test.
    let value = env!("CARGO_PKG_NAME");
    let toml = folder.write(
        "weir.toml",
        "syslog_ident = \"${CARGO_PKG_NAME}\"\n[databases.a]\nhost = \"h\"\nuser = \"u\"\n\
         password = \"x${CARGO_PKG_NAME}$${CARGO_PKG_NAME}\"\n[clusters.c]\nnodes = \"a=h\"\n\
         stop_command = \"${CARGO_PKG_NAME}\"\n",
    );
    let config = Config::load(&toml).unwrap();
    assert_eq!(config.global.syslog_ident, value);
    let password = format!("x{value}${{CARGO_PKG_NAME}}");
    assert_eq!(config.databases["a"].password.as_deref(), Some(password.as_str()));
    // A shell replaces those.
    let command = config.clusters["c"].stop_command.as_deref();
    assert_eq!(command, Some("${CARGO_PKG_NAME}"));

    let text = "[pgbouncer]\nsyslog_ident = ${CARGO_PKG_NAME}\nauth_user = ${WEIR_IS_NOT_SET}\n\
                auth_query = $${NAME}\njob_name = $1 ${1}\n[databases]\n\
                a = host=h user=u password_command='/bin/${CARGO_PKG_NAME}'\n";
    let ini = folder.write("p.ini", text);
    let config = Config::load(&ini).unwrap();
    assert_eq!(config.global.syslog_ident, "${CARGO_PKG_NAME}");
    let program = config.databases["a"].password_command.as_ref().unwrap();
    assert_eq!(program.path(), format!("/bin/{value}"));
    let taken = "${…} is taken as it is written, as PgBouncer does: Weir replaces variables in its own \
                 keys and in a weir.toml";
    let warnings = config.warnings.iter().map(ToString::to_string);
    let warnings: Vec<_> = warnings.filter(|warning| warning.ends_with(taken)).collect();
    let [first, second, third] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(first.contains("p.ini:2: syslog_ident: "), "{first}");
    assert!(second.contains("p.ini:3: auth_user: "), "{second}");
    assert!(third.contains("p.ini:4: auth_query: "), "{third}");
    // The meaning stays.
    let written = Config::load_as_written(&ini).unwrap();
    let converted = config::to_toml(&written, &Config::comments(&ini).unwrap());
    let converted = Config::load(&folder.write("weir.toml", &converted)).unwrap();
    assert_eq!(converted.global.syslog_ident, config.global.syslog_ident);
    assert_eq!(converted.databases, config.databases);
}

#[test]
fn a_mistake_repeats_no_value_of_a_variable() {
    let folder = Folder::new("hidden");
    let text = "listen_port = \"${CARGO_PKG_NAME}\"\npool_mode = \"${CARGO_PKG_NAME}\"\n\
                auth_user = \"${WEIR_IS_NOT_SET}\"\n";
    let error = Config::load(&folder.write("weir.toml", text)).unwrap_err();
    let told: Vec<_> = error.mistakes.iter().map(ToString::to_string).collect();
    let told = told.join("\n");
    for part in [
        "listen_port: \"${CARGO_PKG_NAME}\" has an invalid value for parameter listen_port",
        "pool_mode: \"${CARGO_PKG_NAME}\" has an invalid value for parameter pool_mode",
        "auth_user: the variable WEIR_IS_NOT_SET is not set in Weir's environment",
    ] {
        assert!(told.contains(part), "{told}");
    }
    assert!(!told.contains(env!("CARGO_PKG_NAME")), "{told}");
}

#[test]
fn a_mistake_repeats_no_part_of_a_secret() {
    let folder = Folder::new("part");
    let told = |password: &str| {
        let text = format!(
            "[databases.a]\nhost = \"h\"\nuser = \"u\"\npassword = \"{password}\"\n\
             [clusters.c]\nnodes = \"a=h\"\npassword = \"{password}\"\n"
        );
        let error = Config::load(&folder.write("weir.toml", &text)).unwrap_err();
        error.mistakes.iter().map(|mistake| mistake.reason.to_string()).collect::<Vec<_>>()
    };
    let rest = "is not set in Weir's environment; write $${…} for the text ${…}";
    assert_eq!(told("ab${se_cret}ef"), [(); 2].map(|()| format!("a variable in it {rest}")));
    let named = format!("the variable WEIR_IS_NOT_SET {rest}");
    assert_eq!(told("${WEIR_IS_NOT_SET}"), [named.clone(), named]);
}

#[test]
fn variables_with_secrets_are_known() {
    let folder = Folder::new("known");
    let text = "syslog_ident = \"${CARGO_PKG_VERSION}\"\n[databases.a]\nhost = \"h\"\n\
                password = \"x${CARGO_PKG_NAME}\"\n";
    let config = Config::load(&folder.write("weir.toml", text)).unwrap();
    assert_eq!(config.secret_variables.into_iter().collect::<Vec<_>>(), ["CARGO_PKG_NAME"]);
}

#[test]
fn without_the_secrets_of_the_service_the_rest_can_be_used() {
    let folder = Folder::new("rest");
    let load = |keys: &str, password: &str| {
        let text = format!("{keys}\n[databases.a]\nhost = \"h\"\nuser = \"u\"\n{password}\n");
        let error = Config::load(&folder.write("weir.toml", &text)).unwrap_err();
        error.without_secrets(&["listen_port"]).map(|config| config.global.listen_port).ok()
    };
    let variable = "password = \"${WEIR_IS_NOT_SET}\"";
    let file = "password_file = \"$CREDENTIALS_DIRECTORY/p\"";
    assert_eq!(load("listen_port = 7", variable), Some(7));
    assert_eq!(load("listen_port = 7", "password = \"a${WEIR_IS_NOT_SET}\""), Some(7));
    assert_eq!(load("listen_port = 7", "password_file = \"/nonexistent\""), Some(7));
    assert_eq!(load("listen_port = 7\nauth_file = \"${WEIR_IS_NOT_SET}\"", file), Some(7));
    assert_eq!(load("listen_port = \"${WEIR_IS_NOT_SET}\"", variable), None);
    assert_eq!(load("listen_port = \"${CARGO_PKG_NAME}\"", variable), None);
    assert_eq!(load("listen_prot = 7", variable), None);
    assert_eq!(load("listen_port = ", variable), None);
}

#[test]
fn convert_keeps_the_variables_of_a_toml() {
    let folder = Folder::new("convert");
    let text = "auth_user = \"$${CARGO_PKG_NAME}\"\n\n[databases.a]\nhost = [\"h\"]\n\
                user = \"${CARGO_PKG_NAME}\"\npassword = \"x${CARGO_PKG_NAME}\"\n";
    let file = folder.write("weir.toml", text);
    let before = Config::load(&file).unwrap();
    let written = Config::load_as_written(&file).unwrap();
    let converted = config::to_toml(&written, &Config::comments(&file).unwrap());
    for part in ["user = \"${CARGO_PKG_NAME}\"", "password = \"x${CARGO_PKG_NAME}\""] {
        assert!(converted.contains(part), "{converted}");
    }
    let after = Config::load(&folder.write("weir.toml", &converted)).unwrap();
    assert_eq!((after.global, after.databases), (before.global, before.databases));
}

#[test]
fn a_dollar_quote_before_a_brace_is_no_variable() {
    let folder = Folder::new("quote");
    let query = "SELECT $${1}$$::int[]";
    let text = format!("[databases.a]\nhost = \"h\"\nconnect_query = \"{query}\"\n");
    let config = Config::load(&folder.write("weir.toml", &text)).unwrap();
    assert_eq!(config.databases["a"].connect_query.as_deref(), Some(query));
}

#[test]
fn a_password_may_stand_in_a_file() {
    let folder = Folder::new("password");
    let file = folder.write("password", "se cret\n").display().to_string();
    let toml = |file: &str| {
        let text = format!(
            "[databases.a]\nhost = \"h\"\nuser = \"u\"\npassword_file = \"{file}\"\n\
             [clusters.c]\nnodes = \"a=h\"\npassword_file = \"{file}\"\n"
        );
        Config::load(&folder.write("weir.toml", &text))
    };
    let config = toml(&file).unwrap();
    assert_eq!(config.databases["a"].password.as_deref(), Some("se cret"));
    assert_eq!(config.clusters["c"].password.as_deref(), Some("se cret"));
    assert!(!format!("{config:?}").contains("se cret"));
    for (content, why) in [
        ("", "it has no password"),
        ("\n", "it has no password"),
        ("secret\nmore\n", "it has more than one line"),
    ] {
        fs::write(&file, content).unwrap();
        let error = toml(&file).unwrap_err();
        let told: Vec<_> = error.mistakes.iter().map(ToString::to_string).collect();
        let expected =
            |entry| format!("{file}: {entry}.password_file: could not read the password: {why}");
        assert_eq!(told, [expected("a"), expected("c")]);
    }
    assert!(toml("/nonexistent").unwrap_err().mistakes[0].to_string().contains("No such file"));
}

#[test]
fn a_password_has_one_source_and_a_user() {
    let mistakes = |settings: &str| {
        let text = format!("[databases]\na = host=h {settings}\n[pgbouncer]\n");
        let error = Config::parse_ini(&text, "x.ini", &|_| unreachable!()).err();
        let mistakes = error.map(|error| error.mistakes).unwrap_or_default();
        mistakes.iter().map(|mistake| mistake.reason.to_string()).collect::<Vec<_>>()
    };
    let several = "only one of password, password_file and password_command can have the password";
    let no_user = "it needs user: the password is that of one user";
    for (settings, expected) in [
        ("user=u password_file=/f", &[][..]),
        ("user=u password_command=/f", &[]),
        ("password=p", &[]),
        ("user=u password=p password_file=/f", &[several]),
        ("user=u password_file=/f password_command=/f", &[several]),
        ("password_file=/f", &[no_user]),
        ("password_command=/f", &[no_user]),
    ] {
        assert_eq!(mistakes(settings), expected, "{settings}");
    }
}

#[test]
fn auth_file_may_be_several_files() {
    let folder = Folder::new("several");
    let one = folder.write("one", "\"a\" \"1\"\n\"b\" \"1\"\n").display().to_string();
    let two = folder.write("two", "\"b\" \"2\"\n\"c\" \"2\"\n").display().to_string();
    let users = |text: &str, name: &str| {
        let config = Config::load(&folder.write(name, text)).unwrap();
        let users = config.auth_file.users.iter();
        let users: Vec<_> = users.map(|(user, secret)| format!("{user}{secret}")).collect();
        (users.join(" "), config.auth_file_unread, config.errors.len())
    };
    let ini = format!("[pgbouncer]\nauth_file = {one}, {two}\n");
    assert_eq!(users(&ini, "p.ini"), ("a1 b2 c2".to_owned(), false, 0));
    let toml = format!("auth_file = [\"{two}\", \"{one}\"]\n");
    assert_eq!(users(&toml, "weir.toml"), ("a1 b1 c2".to_owned(), false, 0));
    let ini = format!("[pgbouncer]\nauth_file = {one}, {two}.gone\n");
    assert_eq!(users(&ini, "p.ini"), ("a1 b1".to_owned(), true, 1));
}
