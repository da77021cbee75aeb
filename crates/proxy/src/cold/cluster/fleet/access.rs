//! The access to etcd, by the configuration of a cluster.

use std::fs;

use config::{Cluster, EtcdApi, in_words};
use etcd::{Access, Tls};

/// Returns the access to the records of the cluster `name`.
///
/// # Errors
/// When a file cannot be read, with the key.
pub(super) fn of(name: &str, configured: &Cluster) -> Result<Access, String> {
    let user = configured.etcd_user.clone().zip(configured.etcd_password.clone());
    let is_tls = configured.etcd.iter().any(EtcdApi::is_tls);
    Ok(Access {
        urls: configured.etcd.iter().map(EtcdApi::url).collect(),
        user,
        tls: is_tls.then(|| tls(configured)).transpose()?,
        prefix: format!("{}/{name}/", configured.etcd_prefix),
    })
}

fn tls(configured: &Cluster) -> Result<Tls, String> {
    let ca = text("etcd_ca_file", &configured.etcd_ca_file)?;
    let cert = text("etcd_cert_file", &configured.etcd_cert_file)?;
    let key = text("etcd_key_file", &configured.etcd_key_file)?;
    Ok(Tls { ca, identity: cert.zip(key) })
}

/// Reads the file that `key` names, if it names one.
fn text(key: &str, file: &str) -> Result<Option<String>, String> {
    if file.is_empty() {
        return Ok(None);
    }
    let text = fs::read_to_string(file);
    text.map(Some).map_err(|error| format!("{key}: cannot read {file}: {}", in_words(&error)))
}
