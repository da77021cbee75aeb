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

use crate::encoding::Letters;
use crate::engine::Engine;
use crate::ids::ServerId;
use crate::lifecycle::open::Step;
use crate::server::{LoginStage, ServerPurpose};
use crate::session::carried::Carried;
use crate::session::probe::{self, Probe, Topics};
use crate::session::setting_names::SettingNames;
use crate::session::state::AllLent;
use crate::shell::{Exchange, Io, OwnQuery};

const TOPICS: Topics = Topics { settings: true, objects: false };

impl<X: Exchange> Engine<X> {
    /// Starts `connect_query` on a server that is logged in. Replication connections do not run it.
    pub(crate) fn begin_connect_query(&mut self, id: ServerId, io: &mut impl Io<X>) -> Step {
        let replicates =
            matches!(self.servers[id].login_mut().purpose, Some(ServerPurpose::Replication { .. }));
        let settings = self.pools.settings(self.servers[id].pool);
        if replicates {
            return Step::Ready;
        }
        if settings.connect_query.is_empty() {
            // The report also contains the settings of a login trigger.
            return match self.servers[id].login_mut().reported_settings() {
                Some(set) => self.begin_with(id, &set),
                None => Step::Ready,
            };
        }
        let mut out = Vec::new();
        frontend::query(&mut out, settings.connect_query.as_bytes());
        self.servers[id].login_mut().stage = LoginStage::ConnectQuery;
        io.send_server(id, &out);
        Step::Continue
    }

    /// Reads a reply to `connect_query`. Rows are dropped, and errors are only logged.
    pub(crate) fn connect_query_message(
        &mut self,
        id: ServerId,
        code: u8,
        body: &[u8],
        io: &mut impl Io<X>,
    ) -> Step {
        if let LoginStage::Asked(probe) = &mut self.servers[id].login_mut().stage {
            probe.message(code, body);
            return match code {
                backend::READY_FOR_QUERY => self.connect_query_told(id),
                backend::ERROR => Step::Failed("cannot query the settings of connect_query".into()),
                _ => Step::Continue,
            };
        }
        match code {
            backend::PARAMETER_STATUS => self.learn_parameter(id, body, io),
            backend::READY_FOR_QUERY if body == b"I" => self.ask_what_it_has_set(id, io),
            backend::READY_FOR_QUERY => {
                Step::Failed("connect_query has left a transaction open".into())
            }
            backend::COPY_IN => Step::Failed("connect_query must not be a COPY FROM STDIN".into()),
            backend::ERROR => match ErrorFields::decode(body) {
                Ok(error) => {
                    let mut pool = self.pools.one(self.servers[id].pool);
                    pool.report_own_query(OwnQuery::Connect, Some(error), io);
                    Step::Continue
                }
                Err(error) => Step::Failed(error.to_string()),
            },
            _ => Step::Continue,
        }
    }

    fn ask_what_it_has_set(&mut self, id: ServerId, io: &mut impl Io<X>) -> Step {
        if let Some(set) = self.servers[id].login_mut().reported_settings() {
            return self.begin_with(id, &set);
        }
        let pool = self.servers[id].pool;
        let settings = self.pools.settings(pool).clone();
        let is_auto = self.servers[id].mode == PoolMode::Auto;
        let Some(view) = self.pools.views.get_mut(pool).filter(|_| is_auto) else {
            return Step::Ready;
        };
        // Guessed names are left out: they must not keep a server from opening.
        let mut names = SettingNames::new(Letters::Ascii);
        names.note(settings.connect_query.as_bytes(), true);
        names.iter().for_each(|(name, sets)| view.history.note_custom(name, sets));
        let known = view.history.known_customs().filter(|name| name.is_ascii());
        let customs: BTreeSet<&[u8]> = known.chain(names.iter().map(|(name, _)| name)).collect();
        let login = settings.login_user().as_bytes();
        let question = probe::question(TOPICS, login, customs.into_iter(), &AllLent::new());
        let mut out = Vec::new();
        frontend::query(&mut out, &question);
        self.servers[id].login_mut().stage = LoginStage::Asked(Probe::new(TOPICS));
        io.send_server(id, &out);
        Step::Continue
    }

    fn connect_query_told(&mut self, id: ServerId) -> Step {
        let login = self.servers[id].login_mut();
        let LoginStage::Asked(probe) =
            std::mem::replace(&mut login.stage, LoginStage::Authenticated)
        else {
            return Step::Ready;
        };
        match probe.finish().filter(|left| left.pins.is_empty()).and_then(|left| left.settings) {
            Some(set) => self.begin_with(id, &set),
            None => Step::Failed("cannot read the settings of connect_query".into()),
        }
    }

    /// Makes these settings the initial settings of every client.
    fn begin_with(&mut self, id: ServerId, set: &Carried) -> Step {
        if set.is_empty() && self.servers[id].login_mut().welcome.vars.carried.is_empty() {
            return Step::Ready;
        }
        let names = self.context.names.clone();
        let login = self.servers[id].login_mut();
        login.welcome.vars.change(|vars| {
            // Settings that the server reports by ParameterStatus are known already.
            let reported = |name| names.slot(name).is_some_and(|slot| vars.get(slot).is_some());
            let set = set.all().iter().filter(|setting| !reported(&setting.name));
            vars.carried = Carried::new(set.cloned().collect());
        });
        let pool = self.servers[id].pool;
        let view = self.pools.views.get_mut(pool);
        view.into_iter().for_each(|view| view.history.learn_customs(set));
        Step::Ready
    }
}
