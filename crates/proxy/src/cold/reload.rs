//! Applies a new configuration, as a whole or not at all.

use std::{
    path::PathBuf,
    sync::{Arc, PoisonError},
};

use config::{AuthType, Cluster, Config, ConfigError, Global, Node};
use engine::journal::EventKind;

use crate::{
    cold::{
        controller::{Control, Controller},
        files,
    },
    error,
    exchange::{hub::lock, listener, mail::ShellMail},
    log, warning,
};
use net::{sys::process, tls::TlsContexts};

/// Why the configuration was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error("there is no configuration file")]
    NoFile,
    #[error("config file loading failed")]
    Mistakes(ConfigError),
    /// Everything was applied except these parts, whose files or addresses cannot be used.
    #[error("{}", .0.join(", "))]
    Partly(Vec<String>),
}

impl Controller {
    /// Reads the configuration again and puts it in force. Reads files, so it is not for a
    /// thread that must not wait for the disk. Returns what has changed, a line for each. The caller
    /// passes the result to [`Controller::conclude_reload`].
    ///
    /// # Errors
    /// When there is no file or it has mistakes, the old configuration stays in force, but users and
    /// rules are read again, so that a role which was locked out does not stay. When an
    /// additional file cannot be used, its old content stays in force, and everything else is
    /// applied. The reasons have been logged.
    pub fn reload(&self) -> Result<Vec<String>, ReloadError> {
        let control = &self.0;
        // SIGHUP may come during a RELOAD: one after the other, so the last one counts.
        let _one_at_a_time = control.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let running = self.config();
        let loaded = config_path(control, &running.global)
            .ok_or(ReloadError::NoFile)
            .and_then(|path| Config::load(&path).map_err(ReloadError::Mistakes));
        let mut config = match loaded {
            Ok(config) => config,
            Err(error) => {
                let _already_an_error = reopen_log(&running.global);
                if let ReloadError::Mistakes(mistakes) = &error {
                    mistakes.mistakes.iter().for_each(|mistake| error!("{mistake}"));
                }
                warning!("{error}");
                reread_access(control, &running);
                return Err(error);
            }
        };
        config.keep_discovered(&running);
        let mut kept = config.keep_unread(&running);
        let mut tls_kept = None;
        match TlsContexts::load(&config) {
            Ok(contexts) => control.shared.set_tls(contexts),
            Err(error) => {
                let what = "TLS configuration could not be reloaded, keeping old configuration";
                error!("TLS setup failed: {error}");
                error!("{what}");
                config.keep_tls(&running);
                tls_kept = Some(what.to_owned());
            }
        }
        for name in config.keep_forced_users(&running) {
            warning!("{name}: losing forced user not supported, keeping old setting");
        }
        for key in config.global.keep_boot_only(&running.global) {
            warning!("{key} was changed; the change takes effect at the next start");
        }
        if let Some(what) = bound_clients(&mut config) {
            warning!("{what}");
        }
        report(&config);
        for line in kept.iter().cloned().chain(config.set_in_vain()) {
            warning!("{line}");
        }
        let changes = config.changes(&running);
        kept.extend(put_in_force(control, Arc::new(config)));
        kept.extend(tls_kept);
        if kept.is_empty() { Ok(changes) } else { Err(ReloadError::Partly(kept)) }
    }

    /// Waits until the addresses for metrics have been tried, and records the result of a reload.
    ///
    /// # Errors
    /// Those of the reload, and when metrics are not served at all their addresses.
    pub async fn conclude_reload(
        &self,
        reloaded: Result<Vec<String>, ReloadError>,
    ) -> Result<Vec<String>, ReloadError> {
        let faults = self.address_faults().await;
        let reloaded = match reloaded {
            Ok(_) if !faults.is_empty() => Err(ReloadError::Partly(faults)),
            Err(ReloadError::Partly(kept)) => {
                Err(ReloadError::Partly(kept.into_iter().chain(faults).collect()))
            }
            other => other,
        };
        let mut last = self.0.reload.lock().unwrap_or_else(PoisonError::into_inner);
        last.succeeded = reloaded.is_ok();
        if last.succeeded {
            last.success_at = self.now();
        }
        match &reloaded {
            Ok(changes) => self.note(EventKind::Reload, &changes.join("; ")),
            Err(error) => self.note(EventKind::ReloadFailed, &error.to_string()),
        }
        reloaded
    }

    /// Waits until the addresses for metrics, health checks and PCP have been tried. Returns why
    /// some cannot be served.
    pub async fn address_faults(&self) -> Vec<String> {
        self.0.doors.faults().await
    }

    /// Puts the nodes of a cluster in force that Weir has found. Without effect if the cluster is not
    /// configured as `before` any more.
    pub(crate) fn set_nodes(&self, cluster: &str, before: &Cluster, nodes: Vec<Node>) {
        let control = &self.0;
        let _one_at_a_time = control.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let mut config = Config::clone(&self.config());
        if let Some(own) = config.clusters.get_mut(cluster)
            && own == before
        {
            own.nodes = nodes;
            distribute(control, Arc::new(config));
        }
    }

    /// Sets a global key until the next reload (SET). Returns a text for the operator if the value
    /// has no effect yet. As in PgBouncer, a key that is only read at start is accepted without
    /// effect.
    ///
    /// # Errors
    /// When the key does not exist or the value is invalid; the log has the reason, too. A key and
    /// a certificate that do not match are no error, because the second of them may still be set.
    /// Until then the old ones are used.
    pub fn set(&self, key: &str, value: &str) -> Result<Option<String>, String> {
        self.try_set(key, value).inspect_err(|reason| error!("{reason}"))
    }

    fn try_set(&self, key: &str, value: &str) -> Result<Option<String>, String> {
        let control = &self.0;
        let _one_at_a_time = control.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let running = self.config();
        let mut config = Config::clone(&running);
        // Mistakes in the files were reported before.
        config.warnings.clear();
        config.errors.clear();
        (config.auth_file_unread, config.hba_unread, config.pcp_users_unread) =
            (false, false, false);
        config.set(key, value).map_err(|reason| reason.to_string())?;
        // Rules and LDAP options that let nobody in are refused. Unusable users are accepted, as in
        // PgBouncer.
        let concerns_ldap = key == "auth_ldap_options"
            || key == "auth_type" && config.global.auth_type == AuthType::Ldap;
        let unusable = match () {
            () if config.hba_unread => Some(config::HBA_KEPT),
            () if concerns_ldap && config.ldap_is_unusable() => Some(config::LDAP_KEPT),
            () => None,
        };
        if let Some(reason) = unusable {
            report(&config);
            return Err(reason.to_owned());
        }
        config.keep_unread(&running);
        let mut notice = None;
        if key == "max_client_conn" {
            notice = bound_clients(&mut config);
        }
        if Global::concerns_tls(key) {
            match TlsContexts::load(&config) {
                Ok(contexts) => control.shared.set_tls(contexts),
                // A key may be set before or after its certificate.
                Err(error) if error.is_mismatch && Global::is_tls_identity(key) => {
                    warning!("{error}");
                    let what = "TLS settings could not be applied, still using old configuration";
                    notice = Some(what.to_owned());
                    control.shared.set_tls(control.shared.tls().until_they_fit(&running, &config));
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        report(&config);
        let log_kept = put_in_force(control, Arc::new(config));
        Ok(notice.or(log_kept))
    }
}

/// Lowers `max_client_conn` to what the limit of files allows. Returns what was done.
fn bound_clients(config: &mut Config) -> Option<String> {
    let limit = process::file_limit().map_or(u64::MAX, |(limit, _)| limit);
    files::bound_clients(config, limit)
}

/// Reads the files with users and rules again, which an old configuration names.
fn reread_access(control: &Control, running: &Config) {
    let mut config = Config::clone(running);
    config.reread_access();
    let kept = config.keep_unread(running);
    report(&config);
    kept.iter().for_each(|line| warning!("{line}"));
    let _already_an_error = put_in_force(control, Arc::new(config));
}

fn report(config: &Config) {
    config.warnings.iter().for_each(|oddity| warning!("{oddity}"));
    config.errors.iter().for_each(|mistake| error!("{mistake}"));
}

fn config_path(control: &Control, running: &Global) -> Option<PathBuf> {
    running.conffile.as_ref().map(PathBuf::from).or_else(|| control.config_path.clone())
}

/// Returns a text for the console if the log file cannot be opened.
fn put_in_force(control: &Control, config: Arc<Config>) -> Option<String> {
    let log_kept = reopen_log(&config.global);
    listener::tune(&control.shared.listeners, &config.global);
    distribute(control, config);
    log_kept
}

/// Changes the pools first, then the workers. So a worker with the new configuration finds pools
/// with the new settings. Databases that were removed are dropped, with all their connections.
fn distribute(control: &Control, config: Arc<Config>) {
    let shared = &control.shared;
    let before = control.config.read().unwrap_or_else(PoisonError::into_inner).clone();
    shared.hub.set_config(&before, Arc::clone(&config));
    *control.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&config);
    lock(&shared.ended).keep(config.global.connection_timings);
    shared.tell_all(|| ShellMail::Config(Arc::clone(&config)));
    control.doors.change();
    control.clusters.change();
    control.passwords.change();
    let mut gone: Vec<String> = before.databases.keys().cloned().collect();
    gone.extend(shared.hub.pools().iter().map(|pool| lock(pool).key.database.clone()));
    gone.sort();
    gone.dedup();
    gone.retain(|name| config.database(name).is_none() && before.database(name).is_some());
    for name in &gone {
        warning!(
            "dropping database '{name}' as it does not exist anymore or inactive auto-database"
        );
    }
    let gone: Arc<[String]> = gone.into();
    shared.tell_all(|| ShellMail::Kill(Arc::clone(&gone)));
}

/// Reopens the log file, which may have been rotated. Failed reloads do so too, so the new file has
/// the reason.
///
/// Returns a text for the console if the file cannot be opened.
fn reopen_log(global: &Global) -> Option<String> {
    let error = log::configure(global).err()?;
    error!("{error}");
    Some("logfile could not be opened, keeping the old log".to_owned())
}
