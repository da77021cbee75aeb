//! The installed files: by `make install`, as a Debian package, in a container.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support;
use testkit::{is_root, open_folder, pooler_binary};

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(name)
}

#[test]
fn an_installation_has_all_its_files_and_spares_the_configuration_core() {
    if !support::only_weir() {
        return;
    }
    let root = open_folder("install");
    let install = || {
        let mut command = Command::new(packaging("install"));
        command.env("BINARY", pooler_binary()).env("DESTDIR", &root);
        support::run(command.env("PREFIX", "/opt/weir").env("SYSCONFDIR", "/opt/etc"));
    };
    install();
    let read = |name: &str| {
        std::fs::read_to_string(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let unit = read("opt/weir/lib/systemd/system/weir.service");
    assert!(unit.contains("\nExecStart=/opt/weir/bin/weir /opt/etc/weir/weir.ini\n"), "{unit}");
    assert!(unit.contains("\nType=notify\n"), "{unit}");
    assert!(
        unit.contains("\nExecReload=/opt/weir/lib/weir/reload /opt/etc/weir/weir.ini\n"),
        "{unit}"
    );
    assert!(read("opt/weir/lib/weir/reload").contains("\nweir=/opt/weir/bin/weir\n"));
    assert!(read("opt/weir/bin/weir-replace").contains("/opt/weir/lib/weir/reload"));
    assert!(read("opt/weir/share/weir/weir.service.d/tmp.conf").contains("PrivateTmp=no"));
    let unit = read("opt/weir/lib/systemd/system/weir-pgbouncer.service");
    assert!(unit.contains("/opt/weir/bin/weir /opt/etc/pgbouncer/pgbouncer.ini\n"), "{unit}");
    assert!(read("opt/weir/lib/systemd/system/weir.socket").contains("[Socket]"));
    assert!(read("opt/weir/share/man/man1/weir.1").contains(".SH SIGNALS"));
    assert!(read("opt/weir/share/man/man5/weir.ini.5").contains("\n.B pool_mode\n"));
    for completion in ["bash-completion/completions/weir", "zsh/site-functions/_weir"] {
        assert!(read(&format!("opt/weir/share/{completion}")).contains("check-config"));
    }
    assert!(read("opt/etc/logrotate.d/weir").contains("postrotate"));
    assert!(read("opt/weir/share/weir/prometheus/weir.rules.yml").contains("alert: WeirDown"));
    assert!(read("opt/weir/share/weir/prometheus/weir-dashboard.json").contains("weir_clients"));
    let config = root.join("opt/etc/weir/weir.ini");
    assert!(read("opt/etc/weir/weir.ini").contains("auth_file = /opt/etc/weir/userlist.txt"));
    support::run(Command::new(packaging("try-links")).arg(&root));
    let binary = root.join("opt/weir/bin/weir");
    assert!(support::run(Command::new(&binary).arg("-V")).contains("Weir"));

    std::fs::write(&config, "changed").expect("our own folder");
    install();
    assert_eq!(read("opt/etc/weir/weir.ini"), "changed");
}

/// Weir accepts the configuration that is installed first, and runs in auto mode with it.
#[test]
fn the_configuration_that_is_installed_is_valid() {
    if !support::only_weir() {
        return;
    }
    let text = std::fs::read_to_string(packaging("weir.ini")).expect("it is part of the project");
    let folder = open_folder("config");
    std::fs::write(folder.join("userlist.txt"), "").expect("our own folder");
    let path = folder.join("weir.ini");
    let folder = folder.display().to_string();
    // systemd creates the folder of the socket.
    let text = text.replace("@SYSCONFDIR@/weir", &folder).replace("/run/weir", &folder);
    std::fs::write(&path, text).expect("our own folder");
    let text = support::run(Command::new(pooler_binary()).arg("check-config").arg(path));
    assert!(text.contains("Pool mode\n  auto\n"), "{text}");
}

/// Tries packages on a throw-away copy of this machine, and expects that it says these things. It
/// needs root and Debian.
fn tries(script: &str, done: &[&str]) {
    if !support::only_weir() || !is_root() || !Path::new("/usr/bin/dpkg-deb").exists() {
        return;
    }
    // It ends with this test, and leaves nothing outside of the test's folder.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(packaging(script)).arg(pooler_binary());
    let tried = command.env("TMPDIR", open_folder("try")).output().expect("bash");
    let said = String::from_utf8_lossy(&tried.stdout);
    assert!(tried.status.success(), "{said}\n{}", String::from_utf8_lossy(&tried.stderr));
    for step in done {
        assert!(said.contains(&format!("try: {step}\n")), "not {step}:\n{said}");
    }
}

#[test]
fn the_debian_package_is_installed_started_upgraded_and_removed() {
    tries("try", &["installed and started", "upgraded and started again", "removed and purged"]);
}

/// A copy of this machine that systemd has booted, with an unedited PostgreSQL of Debian's.
#[test]
fn users_of_the_debian_package_find_that_it_works() {
    tries(
        "try-systemd",
        &[
            "installed, and logged in with a password",
            "used the console as root",
            "opened an address for other machines",
            "survived mistakes and a crash",
            "hardened, and opened by drop-ins",
            "replaced the process",
            "kept a client with TLS",
            "upgraded without a lost client",
            "upgraded with weir.socket",
            "served with the configuration of PgBouncer",
            "removed",
        ],
    );
}

/// A cluster of Debian's `pg_createcluster`, none of whose files is edited.
#[test]
fn one_line_gives_a_debian_cluster_a_pooler() {
    tries(
        "try-builtin",
        &[
            "started with one line",
            "served a role with a password",
            "served a role with peer",
            "said what is missing without the program",
            "removed, and dropped the cluster",
        ],
    );
}

#[test]
fn the_program_needs_no_library_that_a_bare_debian_lacks() {
    if !support::only_weir() {
        return;
    }
    let program = pooler_binary();
    let listing = support::run(Command::new("readelf").arg("--dynamic").arg(program));
    let needed: Vec<_> = listing.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(!needed.is_empty());
    for line in needed {
        let known = ["[libc.so.", "[libm.so.", "[libgcc_s.so.", "[ld-linux"];
        assert!(known.iter().any(|library| line.contains(library)), "{line}");
    }
}
