//! The server's side of the login.

use wire::error_fields::ErrorFields;
use wire::messages::SaslInitialResponse;
use wire::scram::{self, ScramServer, ScramVerifier};
use wire::startup::{self, StartupRequest};
use wire::{HEADER_LEN, Header, backend, md5};

use super::reports::{ASK, KEY, Library};
use super::{Backend, Phase};
use crate::settings::{NAMES, PATH, Settings};

/// The authentication method of the server.
#[derive(Clone, Debug)]
pub(crate) enum ServerAuth {
    Trust,
    Cleartext,
    Md5,
    Scram(ScramVerifier),
}

#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) auth: ServerAuth,
    pub(crate) password: String,
    /// Refuses every login with this SQLSTATE.
    pub(crate) refuse: Option<&'static str>,
}

#[derive(Debug)]
pub(crate) struct Login {
    account: Account,
    step: Step,
    user: String,
}

#[derive(Debug)]
#[expect(clippy::enum_variant_names, reason = "states are named for what they wait for")]
enum Step {
    ExpectStartup,
    ExpectPassword,
    ExpectSaslInitial(Box<ScramServer>),
    ExpectSaslResponse(Box<ScramServer>),
}

const SALT: [u8; 4] = [7, 0, 255, 3];

impl Login {
    pub(crate) fn new(account: Account) -> Self {
        Self { account, step: Step::ExpectStartup, user: String::new() }
    }
}

impl Backend {
    pub(super) fn login_step(&mut self) -> Option<bool> {
        let Phase::Login(mut login) = std::mem::replace(&mut self.phase, Phase::Gone) else {
            return None;
        };
        let len = match login.step {
            Step::ExpectStartup => startup::packet_len(&self.input).ok()?,
            _ => Header::parse(&self.input).ok()?.map(|header| header.total),
        };
        let Some(len) = len.filter(|len| *len <= self.input.len()) else {
            self.phase = Phase::Login(login);
            return None;
        };
        let message: Vec<u8> = self.input.drain(..len).collect();
        match self.login_message(&mut login, &message) {
            Ok(true) => self.let_in(),
            Ok(false) => self.phase = Phase::Login(login),
            Err((sqlstate, text)) => {
                let error = ErrorFields::new("FATAL", sqlstate, &text);
                backend::error(&mut self.buffered, &error);
            }
        }
        self.flush();
        Some(true)
    }

    /// Returns true when the client is logged in.
    fn login_message(
        &mut self,
        login: &mut Login,
        message: &[u8],
    ) -> Result<bool, (&'static str, String)> {
        let refused = || ("28P01", "password authentication failed".to_owned());
        let body = message.get(HEADER_LEN..).unwrap_or_default();
        match std::mem::replace(&mut login.step, Step::ExpectPassword) {
            Step::ExpectStartup => {
                let Ok(StartupRequest::Startup(packet)) = startup::parse(message) else {
                    return Err(("08P01", "bad startup packet".into()));
                };
                if let Some(sqlstate) = login.account.refuse {
                    return Err((sqlstate, "go away".into()));
                }
                self.reporter.is_asked = packet.get(ASK).is_some();
                self.reporter.key = packet.get(KEY).unwrap_or_default().to_vec();
                if self.reporter.is_asked && self.reporter.library == Library::Refused {
                    return Err(("08P01", format!("unsupported startup parameter: {ASK}")));
                }
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                self.ears.database = text(packet.get("database").unwrap_or_default());
                login.user = text(packet.get("user").unwrap_or_default());
                for (name, value) in packet.parameters() {
                    if let Some(known) = Settings::known(&text(name)) {
                        self.settings.begin_with(known, &text(value));
                    }
                }
                match &login.account.auth {
                    ServerAuth::Trust => return Ok(true),
                    ServerAuth::Cleartext => backend::authentication_cleartext(&mut self.buffered),
                    ServerAuth::Md5 => backend::authentication_md5(&mut self.buffered, SALT),
                    ServerAuth::Scram(verifier) => {
                        backend::authentication_sasl(&mut self.buffered, &[scram::MECHANISM]);
                        let server = ScramServer::new(verifier.clone(), [9; 18]);
                        login.step = Step::ExpectSaslInitial(Box::new(server));
                    }
                }
                Ok(false)
            }
            Step::ExpectPassword => {
                let given = body.strip_suffix(b"\0").unwrap_or(body);
                let password = login.account.password.as_bytes();
                let accepted = match login.account.auth {
                    ServerAuth::Md5 => {
                        md5::verify(&md5::hash(login.user.as_bytes(), password), SALT, given)
                    }
                    _ => given == password,
                };
                if accepted { Ok(true) } else { Err(refused()) }
            }
            Step::ExpectSaslInitial(mut server) => {
                let initial = SaslInitialResponse::decode(body).map_err(|_| refused())?;
                let reply =
                    server.client_first(initial.mechanism, initial.data).map_err(|_| refused())?;
                backend::authentication_sasl_continue(&mut self.buffered, &reply);
                login.step = Step::ExpectSaslResponse(server);
                Ok(false)
            }
            Step::ExpectSaslResponse(mut server) => {
                let finished = server.client_final(body).map_err(|_| refused())?;
                backend::authentication_sasl_final(&mut self.buffered, &finished.reply);
                Ok(true)
            }
        }
    }

    fn let_in(&mut self) {
        self.phase = Phase::Running;
        backend::authentication_ok(&mut self.buffered);
        let reports_path = self.settings.reports_path;
        let version: &[u8] = if reports_path { b"18.1" } else { b"15.18" };
        backend::parameter_status(&mut self.buffered, b"server_version", version);
        let names = NAMES.iter().map(|(name, _)| *name);
        for name in names.chain(reports_path.then_some(PATH)) {
            let value = self.settings.get(name).unwrap_or_default().to_owned();
            backend::parameter_status(&mut self.buffered, name.as_bytes(), value.as_bytes());
        }
        backend::backend_key_data(&mut self.buffered, self.pid, &self.secret);
        self.write_report();
        backend::ready_for_query(&mut self.buffered, b'I');
    }
}
