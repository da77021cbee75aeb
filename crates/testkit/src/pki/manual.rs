//! Certificates as in PostgreSQL's manual ("Creating Certificates"): a root of version 3, which
//! signs certificates of version 1.

use std::{fs, path::PathBuf, process::Command};

use super::{Identity, secure, text};
use crate::scratch;

/// A root made with the `openssl` command.
#[derive(Debug)]
pub struct ManualAuthority {
    folder: PathBuf,
    root: PathBuf,
}

impl ManualAuthority {
    pub fn new(name: &str) -> Self {
        let folder = scratch::folder("manual");
        let own = Self { root: folder.join("root.crt"), folder };
        let subject = format!("/CN={name}");
        own.openssl(&[
            "req", "-new", "-nodes", "-out", "root.csr", "-keyout", "root.key", "-subj", &subject,
        ]);
        fs::write(own.folder.join("v3_ca"), "basicConstraints=critical,CA:true\n")
            .expect("our own folder");
        own.openssl(&[
            "x509", "-req", "-in", "root.csr", "-days", "3650", "-extfile", "v3_ca", "-signkey",
            "root.key", "-out", "root.crt",
        ]);
        secure(&own.root);
        own
    }

    /// Returns the file of its own certificate.
    pub fn file(&self) -> &str {
        text(&self.root)
    }

    /// Signs a certificate of version 1 for this common name.
    pub fn issue(&self, name: &str) -> Identity {
        self.issue_for(name, &["-newkey", "rsa:2048"])
    }

    /// Signs a certificate with a key on this curve, such as `P-521`.
    pub fn issue_on(&self, name: &str, curve: &str) -> Identity {
        let curve = format!("ec_paramgen_curve:{curve}");
        self.issue_for(name, &["-newkey", "ec", "-pkeyopt", &curve])
    }

    /// Signs a certificate with a new key, which these arguments of `openssl req` describe.
    pub fn issue_for(&self, name: &str, new_key: &[&str]) -> Identity {
        let file = |ending: &str| format!("{name}.{ending}");
        let (request, key, own) = (file("csr"), file("key"), file("crt"));
        let subject = format!("/CN={name}");
        let ask = ["req", "-new", "-nodes", "-out", &request, "-keyout", &key, "-subj", &subject];
        self.openssl(&[&ask[..], new_key].concat());
        self.openssl(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-days",
            "365",
            "-CA",
            "root.crt",
            "-CAkey",
            "root.key",
            "-CAcreateserial",
            "-out",
            &own,
        ]);
        let (certificate, key) = (self.folder.join(own), self.folder.join(key));
        secure(&certificate);
        secure(&key);
        Identity { certificate, key, serial: 0 }
    }

    fn openssl(&self, args: &[&str]) {
        let mut openssl = Command::new("openssl");
        let output = openssl.current_dir(&self.folder).args(args).output().expect("openssl runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {args:?}: {said}");
    }
}
