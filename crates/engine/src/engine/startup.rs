//! The settings in a client's startup packet: which are taken, which are dropped, which are refused
//! (`track_extra_parameters`, `ignore_startup_parameters`, `application_name_add_host`).

use wire::startup::{self, StartupPacket};

use super::Engine;
use crate::ids::ClientId;
use crate::shell::{Exchange, Io};
use crate::vars::Vars;

const APPLICATION_NAME: &str = "application_name";
/// What a client is called that has no name, where addresses are added to names.
const NAMELESS: &[u8] = b"app";

impl<X: Exchange> Engine<X> {
    /// The client's own values of tracked parameters. The `options` of a client that replicates are
    /// its server's business alone.
    ///
    /// # Errors
    /// What the client is told of a parameter that nobody has announced.
    pub(super) fn startup_vars(
        &self,
        id: ClientId,
        packet: &StartupPacket<'_>,
        replicates: bool,
        io: &impl Io,
    ) -> Result<Vars, String> {
        let mut vars = Vars::default();
        let mut named = false;
        for (name, value) in packet.parameters() {
            match name {
                b"user" | b"database" | b"replication" => {}
                b"options" if replicates => {}
                b"options" => self.startup_options(value, &mut vars)?,
                b"application_name" => {
                    self.name_application(id, value, &mut vars, io);
                    named = true;
                }
                _ if name.starts_with(b"_pq_.") => {}
                _ => match self.names.slot(name) {
                    Some(slot) => vars.set(slot, value),
                    None => {
                        let text = String::from_utf8_lossy(name);
                        if !self.ignores(&text) {
                            return Err(format!("unsupported startup parameter: {text}"));
                        }
                    }
                },
            }
        }
        if !named && self.config.global.application_name_add_host {
            self.name_application(id, NAMELESS, &mut vars, io);
        }
        Ok(vars)
    }

    /// Settings in the form of command line arguments, each taken or refused by itself.
    fn startup_options(&self, options: &[u8], vars: &mut Vars) -> Result<(), String> {
        let all = self.ignores("options");
        let settings = match startup::parse_options(options) {
            Ok(settings) => settings,
            Err(_) if all => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        for (name, value) in settings {
            if let Some(slot) = self.names.slot(name.as_bytes()) {
                vars.set(slot, value.as_bytes());
            } else if !all && !self.ignores(&name) {
                return Err(format!("unsupported startup parameter in options: {name}"));
            }
        }
        Ok(())
    }

    fn ignores(&self, name: &str) -> bool {
        self.config.global.ignore_startup_parameters.iter().any(|known| known == name)
    }

    fn name_application(&self, id: ClientId, name: &[u8], vars: &mut Vars, io: &impl Io) {
        let Some(slot) = self.names.slot(APPLICATION_NAME.as_bytes()) else { return };
        if self.config.global.application_name_add_host {
            let origin = format!(" - {}", io.client_origin(id));
            vars.set(slot, &[name, origin.as_bytes()].concat());
        } else {
            vars.set(slot, name);
        }
    }
}
