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
