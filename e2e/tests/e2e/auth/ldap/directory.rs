//! A real LDAP server, Debian's slapd, with a few users.

use std::fmt::Write as _;
use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use testkit::{Identity, Role, eventually, folder, free_port, give_away, mortal_command};

const BASE: &str = "dc=example,dc=net";
/// The user that may search.
pub(crate) const READER: &str = "cn=reader,dc=example,dc=net";
pub(crate) const READER_PASSWORD: &str = "the reader's own secret";

/// A running LDAP server. It is ended when dropped.
pub(crate) struct Directory {
    pub(crate) port: u16,
    pub(crate) tls_port: u16,
    child: Child,
}

impl Directory {
    /// Starts a server with these users, whose passwords are those in PostgreSQL. If `secure`, it
    /// refuses passwords without TLS.
    pub(crate) fn start(people: &[&Role], own: &Identity, secure: bool) -> Self {
        let (port, tls_port) = (free_port(), free_port());
        let folder = folder("ldap");
        let conf = folder.join("slapd.conf");
        write(&conf, &configuration(&folder, own, secure));
        let data = folder.join("data");
        fs::create_dir(&data).expect("our own folder");
        give_away(&data);
        let ldif = folder.join("people.ldif");
        write(&ldif, &entries(people));
        let added =
            mortal_command("/usr/sbin/slapadd").arg("-f").arg(&conf).arg("-l").arg(&ldif).output();
        let added = added.expect("slapadd: see scripts/setup");
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
        let urls = format!("ldap://127.0.0.1:{port}/ ldaps://127.0.0.1:{tls_port}/");
        // Setting a debug level keeps slapd in the foreground.
        let child = mortal_command("/usr/sbin/slapd")
            .args(["-d", "0", "-h", &urls, "-f"])
            .arg(&conf)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("slapd: see scripts/setup");
        eventually("slapd listens", Duration::from_secs(60), || {
            TcpStream::connect(("127.0.0.1", tls_port)).ok()
        });
        Self { port, tls_port, child }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns options that compose the name of the user's entry.
pub(crate) fn bind_options(port: u16) -> String {
    format!("ldapserver=127.0.0.1 ldapport={port} {}", names())
}

/// Returns the text before and after the user's name in the name of its entry.
pub(crate) fn names() -> String {
    format!("ldapprefix=\"uid=\" ldapsuffix=\",ou=people,{BASE}\"")
}

/// Returns options that search for the entry. `more` says as which user and how.
pub(crate) fn search(port: u16, more: &str) -> String {
    format!("ldapserver=127.0.0.1 ldapport={port} ldapbasedn=\"{BASE}\" {more}")
}

/// Returns options for searching as the reader.
pub(crate) fn reader() -> String {
    format!("ldapbinddn=\"{READER}\" ldapbindpasswd=\"{READER_PASSWORD}\"")
}

pub(crate) fn url(port: u16) -> String {
    format!("ldapurl=\"ldap://127.0.0.1:{port}/{BASE}?uid?sub\" {}", reader())
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).expect("our own folder");
    give_away(path);
}

fn configuration(folder: &Path, own: &Identity, secure: bool) -> String {
    let folder = folder.display();
    let (certificate, key) = (own.certificate(), own.key());
    let security = if secure { "security simple_bind=128" } else { "" };
    format!(
        "include /etc/ldap/schema/core.schema\n\
         include /etc/ldap/schema/cosine.schema\n\
         include /etc/ldap/schema/inetorgperson.schema\n\
         modulepath /usr/lib/ldap\n\
         moduleload back_mdb\n\
         pidfile {folder}/pid\n\
         TLSCertificateFile {certificate}\n\
         TLSCertificateKeyFile {key}\n\
         {security}\n\
         database mdb\n\
         suffix \"{BASE}\"\n\
         directory {folder}/data\n\
         access to attrs=userPassword by anonymous auth by * none\n\
         access to * by dn.exact=\"{READER}\" read by anonymous auth by * none\n"
    )
}

fn entries(people: &[&Role]) -> String {
    let mut ldif = format!(
        "dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: example\n\n\
         dn: ou=people,{BASE}\nobjectClass: organizationalUnit\nou: people\n\n\
         dn: {READER}\nobjectClass: organizationalRole\nobjectClass: simpleSecurityObject\n\
         cn: reader\nuserPassword: {READER_PASSWORD}\n\n"
    );
    for Role { name, password, .. } in people {
        write!(
            ldif,
            "dn: uid={name},ou=people,{BASE}\nobjectClass: inetOrgPerson\nuid: {name}\n\
             cn: {name}\nsn: everybody\nmail: {name}\nuserPassword: {password}\n\n"
        )
        .expect("a string grows");
    }
    ldif
}
