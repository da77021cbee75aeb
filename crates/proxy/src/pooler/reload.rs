//! A new configuration is put in force, or turned down as a whole.

use std::{
    path::PathBuf,
    sync::{Arc, PoisonError},
};

use config::{Config, ConfigError, Global};
use engine::settings::settings_for;

use crate::{
    controller::{Control, Controller},
    error,
    exchange::lock,
    listener, log,
    shared::ShellMail,
    warning,
};

/// Why the configuration stays as it was.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error("there is no configuration file")]
    NoFile,
    #[error("config file loading failed")]
    Mistakes(ConfigError),
}

/// Reads the file and puts it in force.
pub(crate) fn reload(controller: &Controller) -> Result<(), ReloadError> {
    let running = controller.config();
    let control = &controller.0;
    let loaded = config_path(control, &running.global)
        .ok_or(ReloadError::NoFile)
        .and_then(|path| Config::load(&path).map_err(ReloadError::Mistakes));
    let mut config = match loaded {
        Ok(config) => config,
        Err(error) => {
            if let ReloadError::Mistakes(mistakes) = &error {
                mistakes.mistakes.iter().for_each(|mistake| error!("{mistake}"));
            }
            error!("{error}");
            return Err(error);
        }
    };
    for key in config.global.keep_boot_only(&running.global) {
        warning!("{key} was changed, which takes effect at the next start only");
    }
    config.warnings.iter().for_each(|oddity| warning!("{oddity}"));
    for key in config.not_yet_effective() {
        warning!("{key} is set, but Weir does not act on it yet");
    }
    if let Err(error) = log::configure(&config.global) {
        error!("{error}");
    }
    listener::tune(&control.shared.listeners, &config.global);
    put_in_force(control, Arc::new(config));
    Ok(())
}

fn config_path(control: &Control, running: &Global) -> Option<PathBuf> {
    running.conffile.as_ref().map(PathBuf::from).or_else(|| control.config_path.clone())
}

/// First the pools, then the workers: a worker that hears of the new configuration finds the
/// pools renewed. A pool whose database is gone keeps its settings for the clients it still has.
fn put_in_force(control: &Control, config: Arc<Config>) {
    for pool in control.shared.hub.pools() {
        let key = lock(&pool).key.clone();
        if let Some(settings) = settings_for(&config, &key) {
            lock(&pool).settings = settings;
        }
    }
    *control.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&config);
    control.shared.tell_all(|| ShellMail::Config(Arc::clone(&config)));
}
