//! Asks an LDAP server whether a password is right, by a bind with it, as PostgreSQL does (chapter
//! "LDAP Authentication").
//!
//! Weir does the TLS (rustls). The trusted authorities, and whether they are required, come from
//! OpenLDAP's configuration, as for PgBouncer (`conf.rs`). Without one, the system's authorities
//! are used.

mod conf;

use std::{env, fs, io, path::Path, sync::Arc, time::Duration};

use config::ldap::{Find, LdapOptions, Scope};
use ldap3::{
    Ldap, LdapConnAsync, LdapConnSettings, LdapError, Scope as Ldap3Scope, SearchEntry,
    SearchResult, StdStream,
};
use rustls::{
    ClientConfig,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use tokio::{io::Interest, net::TcpStream, task, time};
use x509::{Anchors, Certificate};

use self::conf::{Conf, Demand};
use crate::warning;
use net::tls::{ServerVerifier, system_anchors};

/// The maximum time for connecting to one server, including TLS.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// The maximum time for each reply of a server.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// Why the password is not accepted.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("could not connect to LDAP server \"{0}\": {1}")]
    Connect(String, String),
    #[error("could not perform initial LDAP bind for ldapbinddn \"{0}\": {1}")]
    FirstBind(String, LdapError),
    #[error("could not search LDAP for filter \"{0}\": {1}")]
    Search(String, LdapError),
    #[error("LDAP login failed for user {0}: {1}")]
    Wrong(String, LdapError),
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
    #[error("invalid character in user name for LDAP authentication")]
    Name,
    #[error("LDAP user \"{0}\" does not exist")]
    Nobody(String),
    #[error("LDAP user \"{0}\" is not unique")]
    Several(String),
}

impl Trouble {
    /// Has a server refused the user or the password? If not, the password was not checked.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Wrong(_, error) => matches!(error, LdapError::LdapResult { .. }),
            Self::Name | Self::Nobody(_) | Self::Several(_) => true,
            Self::Connect(..) | Self::FirstBind(..) | Self::Search(..) | Self::Tls(_) => false,
        }
    }
}

/// Is this the user's password? None if no server could check it.
pub(super) async fn accepts(options: &LdapOptions, user: &str, password: &str) -> Option<bool> {
    match bind_as(options, user, password).await {
        Ok(()) => Some(true),
        Err(trouble) => {
            warning!("{trouble}");
            trouble.is_refusal().then_some(false)
        }
    }
}

async fn bind_as(options: &LdapOptions, user: &str, password: &str) -> Result<(), Trouble> {
    let name = match &options.find {
        Find::Between { prefix, suffix } => format!("{prefix}{user}{suffix}"),
        Find::Search { base, scope, bind_dn, bind_password, filter } => {
            let filter = filter_for(filter, user).ok_or(Trouble::Name)?;
            let mut ldap = connect(options).await?;
            bind(&mut ldap, bind_dn, bind_password)
                .await
                .map_err(|error| Trouble::FirstBind(bind_dn.clone(), error))?;
            let found = search(&mut ldap, base, *scope, &filter, user).await;
            // The result does not matter: the password was checked.
            let _ = ldap.unbind().await;
            if let Err(Trouble::Nobody(_)) = &found {
                // Another bind hides whether the user exists, which the time would reveal.
                let mut ldap = connect(options).await?;
                let _ = bind(&mut ldap, &format!("cn=nobody,{base}"), password).await;
                let _ = ldap.unbind().await;
            }
            found?
        }
    };
    let mut ldap = connect(options).await?;
    let bound = bind(&mut ldap, &name, password).await;
    let _ = ldap.unbind().await;
    bound.map_err(|error| Trouble::Wrong(name, error))
}

/// Binds with a password. A bind without one is anonymous and proves nothing (RFC 4513, 5.1.2); the
/// engine refuses empty passwords.
async fn bind(ldap: &mut Ldap, name: &str, password: &str) -> Result<(), LdapError> {
    ldap.with_timeout(ANSWER_PATIENCE).simple_bind(name, password).await?.success().map(drop)
}

/// Returns the filter for this user. Returns None if its name has a character that could change the
/// search (PostgreSQL's rule).
fn filter_for(filter: &str, user: &str) -> Option<String> {
    let is_plain = !user.contains(['*', '(', ')', '\\', '/']);
    is_plain.then(|| filter.replace("$username", user))
}

/// Returns the name of the only matching entry.
async fn search(
    ldap: &mut Ldap,
    base: &str,
    scope: Scope,
    filter: &str,
    user: &str,
) -> Result<String, Trouble> {
    let scope = match scope {
        Scope::Base => Ldap3Scope::Base,
        Scope::One => Ldap3Scope::OneLevel,
        Scope::Sub => Ldap3Scope::Subtree,
    };
    let no_attributes = vec!["1.1"];
    let searched = ldap.with_timeout(ANSWER_PATIENCE).search(base, scope, filter, no_attributes);
    let (entries, _) = searched
        .await
        .and_then(SearchResult::success)
        .map_err(|error| Trouble::Search(filter.to_owned(), error))?;
    let mut entries =
        entries.into_iter().filter(|entry| !entry.is_ref() && !entry.is_intermediate());
    match (entries.next(), entries.next()) {
        (None, _) => Err(Trouble::Nobody(user.to_owned())),
        (Some(_), Some(_)) => Err(Trouble::Several(user.to_owned())),
        (Some(one), None) => Ok(SearchEntry::construct(one).dn),
    }
}

/// Connects to the first server that can be reached.
async fn connect(options: &LdapOptions) -> Result<Ldap, Trouble> {
    if options.ldaps && options.start_tls {
        // OpenLDAP's library has this text, too.
        return Err(Trouble::Tls("ldaptls=1 within ldaps: TLS is already started".to_owned()));
    }
    let tls = match options.ldaps || options.start_tls {
        true => Some(tls().await?),
        false => None,
    };
    let mut reasons = Vec::new();
    for server in &options.servers {
        let connected = connect_to(options, server, tls.clone());
        match time::timeout(CONNECT_PATIENCE, connected).await {
            Ok(Ok(ldap)) => return Ok(ldap),
            Ok(Err(error)) => reasons.push(error.to_string()),
            Err(_) => reasons.push("timed out".to_owned()),
        }
    }
    Err(Trouble::Connect(options.servers.join(" "), reasons.join(", ")))
}

async fn connect_to(
    options: &LdapOptions,
    server: &str,
    tls: Option<Arc<ClientConfig>>,
) -> Result<Ldap, LdapError> {
    let scheme = if options.ldaps { "ldaps" } else { "ldap" };
    let url = format!("{scheme}://{server}:{}", options.port());
    let stream = TcpStream::connect(format!("{server}:{}", options.port())).await?.into_std()?;
    let watched = TcpStream::from_std(stream.try_clone()?)?;
    let mut settings = LdapConnSettings::new().set_std_stream(StdStream::Tcp(stream));
    if let Some(tls) = tls {
        settings = settings.set_starttls(options.start_tls).set_config(tls);
    }
    // If the server closes the connection, ldap3 itself waits forever for a reply to StartTLS.
    let (connection, ldap) = tokio::select! {
        biased;
        connected = LdapConnAsync::with_settings(settings, &url) => connected?,
        closed = end_of(&watched) => {
            closed?;
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    };
    task::spawn(async move {
        // Errors show when the connection is used.
        let _ = connection.drive().await;
    });
    Ok(ldap)
}

/// Returns when the other side has closed the connection. Received bytes stay unread.
async fn end_of(stream: &TcpStream) -> io::Result<()> {
    while !stream.ready(Interest::READABLE).await?.is_read_closed() {
        // Wait for the next event.
        let _ = stream.try_io(Interest::READABLE, || {
            Err::<(), _>(io::Error::from(io::ErrorKind::WouldBlock))
        });
    }
    Ok(())
}

/// Reads the files each time, so a replaced certificate is used at once.
async fn tls() -> Result<Arc<ClientConfig>, Trouble> {
    let verifier = task::spawn_blocking(verifier).await;
    let verifier = verifier.map_err(|error| Trouble::Tls(error.to_string()))?;
    let verifier = verifier.map_err(|error| Trouble::Tls(error.to_string()))?;
    let config = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .map_err(|error| Trouble::Tls(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn verifier() -> io::Result<ServerVerifier> {
    let file = |place: &Path| String::from_utf8(config::read_file(place).ok()?).ok();
    let conf = Conf::read(|name| env::var(name).ok(), file);
    let anchors = match conf.demand {
        Demand::Any => None,
        Demand::Good => Some(authorities(&conf)?),
    };
    Ok(ServerVerifier { anchors, checks_name: true })
}

fn authorities(conf: &Conf) -> io::Result<Anchors> {
    if conf.ca_file.is_none() && conf.ca_folder.is_none() {
        return Ok(system_anchors());
    }
    let mut found = Vec::new();
    if let Some(file) = &conf.ca_file {
        found = certificates(file)?;
    }
    if let Some(folder) = &conf.ca_folder {
        // The folder may contain other files.
        for entry in fs::read_dir(folder)? {
            found.extend(certificates(&entry?.path()).unwrap_or_default());
        }
    }
    Ok(Anchors::new(found))
}

fn certificates(file: &Path) -> io::Result<Vec<Certificate>> {
    let failed =
        |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", file.display()));
    let text = config::read_file(file).map_err(|error| failed(&error))?;
    let ders = CertificateDer::pem_slice_iter(&text);
    ders.map(|der| {
        let der = der.map_err(|error| failed(&error))?;
        Certificate::read(&der).map_err(|error| failed(&error))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_name_cannot_change_the_search() {
        let filter = "(&(uid=$username)(class=person))";
        let found = filter_for(filter, "jane doe");
        assert_eq!(found.as_deref(), Some("(&(uid=jane doe)(class=person))"));
        for name in ["*", "jane)(uid=*", "jane\\2a", "a/b", "("] {
            assert_eq!(filter_for(filter, name), None, "{name}");
        }
    }
}
