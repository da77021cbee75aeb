//! A new configuration is put in force, or turned down as a whole.

use std::{
    path::PathBuf,
    sync::{Arc, PoisonError},
};

use config::{Config, ConfigError, Global};

use crate::{
    cold::controller::{Control, Controller},
    error,
    exchange::{hub::lock, listener, mail::ShellMail},
    log, warning,
};
use net::tls::TlsContexts;

/// Why the configuration stays as it was.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error("there is no configuration file")]
    NoFile,
    #[error("config file loading failed")]
    Mistakes(ConfigError),
    /// All is in force but for these parts, whose files cannot be used.
    #[error("{}", .0.join(", "))]
    Partly(Vec<String>),
}

impl Controller {
    /// Reads the configuration again and puts it in force. Reads files, so it is not for a
    /// thread that must not wait for the disk.
    ///
    /// # Errors
    /// When there is no file, or mistakes in it: the old configuration stays in force
    /// then. When a further file cannot be used: its old content stays in force, and so does all
    /// else that is new. Why has been logged.
    pub fn reload(&self) -> Result<(), ReloadError> {
        let control = &self.0;
        // SIGHUP may come in the middle of a RELOAD: one after the other, so that the last one counts.
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
                return Err(error);
            }
        };
        let mut kept = config.keep_unread(&running);
        let mut tls_kept = None;
        match TlsContexts::load(&config.global) {
            Ok(contexts) => control.shared.set_tls(contexts),
            Err(error) => {
                let what = "TLS configuration could not be reloaded, keeping old configuration";
                error!("TLS setup failed: {error}");
                error!("{what}");
                config.global.keep_tls(&running.global);
                tls_kept = Some(what.to_owned());
            }
        }
        for name in config.keep_forced_users(&running) {
            warning!("{name}: losing forced user not supported, keeping old setting");
        }
        for key in config.global.keep_boot_only(&running.global) {
            warning!("{key} was changed, which takes effect at the next start only");
        }
        report(&config);
        for line in kept.iter().cloned().chain(config.set_in_vain()) {
            warning!("{line}");
        }
        kept.extend(put_in_force(control, Arc::new(config)));
        kept.extend(tls_kept);
        if kept.is_empty() { Ok(()) } else { Err(ReloadError::Partly(kept)) }
    }

    /// Gives a global key another value until the next reload (SET). Returns a text for the operator
    /// if the value does not act yet. A key that only a start reads is accepted and changes nothing,
    /// as in PgBouncer.
    ///
    /// # Errors
    /// When there is no such key, or that is no value for it; why is in the log, too. A key and a
    /// certificate that do not belong to each other are no error: the second of them may still come.
    /// Until then the old ones are used.
    pub fn set(&self, key: &str, value: &str) -> Result<Option<String>, String> {
        self.try_set(key, value).inspect_err(|reason| error!("{reason}"))
    }

    fn try_set(&self, key: &str, value: &str) -> Result<Option<String>, String> {
        let control = &self.0;
        let _one_at_a_time = control.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let running = self.config();
        let mut config = Config::clone(&running);
        // Those of the files as they were before have been told.
        config.warnings.clear();
        config.errors.clear();
        (config.auth_file_unread, config.hba_unread) = (false, false);
        config.set(key, value).map_err(|reason| reason.to_string())?;
        let kept = config.keep_unread(&running);
        // Rules that cannot be used are refused. Unusable users are accepted, as in PgBouncer.
        if config.hba_unread {
            report(&config);
            return Err(kept.join(", "));
        }
        let mut notice = None;
        if Global::concerns_tls(key) {
            match TlsContexts::load(&config.global) {
                Ok(contexts) => control.shared.set_tls(contexts),
                // A new key comes before its certificate, or behind it.
                Err(error) if error.is_mismatch && Global::is_tls_identity(key) => {
                    warning!("{error}");
                    let what = "TLS settings could not be applied, still using old configuration";
                    notice = Some(what.to_owned());
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        report(&config);
        let log_kept = put_in_force(control, Arc::new(config));
        Ok(notice.or(log_kept))
    }
}

fn report(config: &Config) {
    config.warnings.iter().for_each(|oddity| warning!("{oddity}"));
    config.errors.iter().for_each(|mistake| error!("{mistake}"));
}

fn config_path(control: &Control, running: &Global) -> Option<PathBuf> {
    running.conffile.as_ref().map(PathBuf::from).or_else(|| control.config_path.clone())
}

/// First the pools, then the workers: a worker that hears of the new configuration finds the
/// pools renewed. Databases that are gone are dropped, with everybody in them.
///
/// Returns what to tell the console if the log file cannot be opened.
fn put_in_force(control: &Control, config: Arc<Config>) -> Option<String> {
    let shared = &control.shared;
    let log_kept = reopen_log(&config.global);
    listener::tune(&shared.listeners, &config.global);
    let before = control.config.read().unwrap_or_else(PoisonError::into_inner).clone();
    shared.hub.set_config(Arc::clone(&config));
    *control.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&config);
    shared.tell_all(|| ShellMail::Config(Arc::clone(&config)));
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
    log_kept
}

/// Opens the log file again, since it may have been rotated. Failed reloads do so, too: the new file
/// says why they failed.
///
/// Returns what to tell the console if the file cannot be opened.
fn reopen_log(global: &Global) -> Option<String> {
    let error = log::configure(global).err()?;
    error!("{error}");
    Some("logfile could not be opened, keeping the log there was".to_owned())
}
