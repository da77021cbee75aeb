//! Runs `connect_query` on each new server before a client gets it. The settings that it makes
//! belong to the pool.
//!
//! ```text
//!  logged in ─► connect_query ─► what has it set? ─► opened
//!                                (auto mode)
//! ```
//!
//! In auto mode Weir then asks the server for these settings. Every client starts with them, as if
//! they were in its startup packet: RESET returns to them, and Weir restores them after discarding
//! a session.

use std::collections::BTreeSet;

use config::PoolMode;
use wire::backend;
use wire::error_fields::ErrorFields;
use wire::frontend;

use crate::admission::view::PoolView;
use crate::encoding::Letters;
use crate::lifecycle::open::{NewServer, Step};
use crate::server::{LoginStage, ServerPurpose};
use crate::session::carried::Carried;
use crate::session::left::Topics;
use crate::session::probe::{self, Probe};
use crate::session::setting_names::SettingNames;
use crate::session::state::AllLent;
use crate::shell::{Exchange, Io, OwnQuery};

const TOPICS: Topics = Topics { settings: true, objects: false };

impl<X: Exchange> NewServer<'_, X> {
    /// Starts `connect_query` on a server that is logged in. Replication connections do not run it.
    pub(super) fn begin_connect_query(&mut self, io: &mut impl Io<X>) -> Step {
        if matches!(self.login().purpose, Some(ServerPurpose::Replication { .. })) {
            return Step::Ready;
        }
        let connect_query = &self.pool.view.settings.connect_query;
        if connect_query.is_empty() {
            // The report also contains the settings of a login trigger.
            return match self.login().reported_settings() {
                Some(set) => self.begin_with(&set),
                None => Step::Ready,
            };
        }
        let mut out = Vec::new();
        frontend::query(&mut out, connect_query.as_bytes());
        self.login().stage = LoginStage::ConnectQuery;
        io.send_server(self.id, &out);
        Step::Continue
    }

    /// Reads a reply to `connect_query`. Rows are dropped, and errors are only logged.
    pub(super) fn connect_query_message(
        &mut self,
        code: u8,
        body: &[u8],
        io: &mut impl Io<X>,
    ) -> Step {
        if let LoginStage::Asked(probe) = &mut self.login().stage {
            probe.message(code, body);
            return match code {
                backend::READY_FOR_QUERY => self.connect_query_told(),
                backend::ERROR => Step::Failed("cannot query the settings of connect_query".into()),
                _ => Step::Continue,
            };
        }
        match code {
            backend::PARAMETER_STATUS => self.parameter(body, io),
            backend::READY_FOR_QUERY if body == b"I" => self.ask_what_it_has_set(io),
            backend::READY_FOR_QUERY => {
                Step::Failed("connect_query has left a transaction open".into())
            }
            backend::COPY_IN => Step::Failed("connect_query must not be a COPY FROM STDIN".into()),
            backend::ERROR => match ErrorFields::decode(body) {
                Ok(error) => {
                    self.pool.report_own_query(OwnQuery::Connect, Some(error), io);
                    Step::Continue
                }
                Err(error) => Step::Failed(error.to_string()),
            },
            _ => Step::Continue,
        }
    }

    fn ask_what_it_has_set(&mut self, io: &mut impl Io<X>) -> Step {
        if let Some(set) = self.login().reported_settings() {
            return self.begin_with(&set);
        }
        if self.server.mode != PoolMode::Auto {
            return Step::Ready;
        }
        let PoolView { settings, history, .. } = &mut *self.pool.view;
        // Guessed names are left out: they must not keep a server from opening.
        let mut names = SettingNames::new(Letters::Ascii);
        names.note(settings.connect_query.as_bytes(), true);
        names.iter().for_each(|(name, sets)| history.note_custom(name, sets));
        let known = history.known_customs().filter(|name| name.is_ascii());
        let customs: BTreeSet<&[u8]> = known.chain(names.iter().map(|(name, _)| name)).collect();
        let login = settings.login_user().as_bytes();
        let question = probe::question(TOPICS, login, customs.into_iter(), &AllLent::new());
        let mut out = Vec::new();
        frontend::query(&mut out, &question);
        self.login().stage = LoginStage::Asked(Probe::new(TOPICS));
        io.send_server(self.id, &out);
        Step::Continue
    }

    fn connect_query_told(&mut self) -> Step {
        let stage = &mut self.login().stage;
        let LoginStage::Asked(probe) = std::mem::replace(stage, LoginStage::Authenticated) else {
            return Step::Ready;
        };
        match probe.finish().filter(|left| left.pins.is_empty()).and_then(|left| left.settings) {
            Some(set) => self.begin_with(&set),
            None => Step::Failed("cannot read the settings of connect_query".into()),
        }
    }

    /// Makes these settings the initial settings of every client.
    fn begin_with(&mut self, set: &Carried) -> Step {
        let vars = &mut self.server.login_mut().welcome.vars;
        if set.is_empty() && vars.carried.is_empty() {
            return Step::Ready;
        }
        let names = &self.context.names;
        vars.change(|vars| {
            // Settings that the server reports by ParameterStatus are known already.
            let reported = |name| names.slot(name).is_some_and(|slot| vars.get(slot).is_some());
            let set = set.all().iter().filter(|setting| !reported(&setting.name));
            vars.carried = Carried::new(set.cloned().collect());
        });
        self.pool.view.history.learn_customs(set);
        Step::Ready
    }
}
