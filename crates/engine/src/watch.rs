//! Watch: what the texts of clients say, for an operator (`fingerprints`, `advise`). It only looks.
//!
//! `texts` gives a text its fingerprint and its signs. `fingerprints` counts requests by fingerprint.
//! `advice` finds out what auto mode would do with the clients of another mode. A watch reads the
//! messages of clients a second time, so without one an input costs no more than a look at an option.
//!
//! Invariant: it changes nothing but itself, and its memory has a limit.

pub mod advice;
pub mod fingerprints;
mod request;
pub mod texts;

use std::collections::HashMap;
use std::sync::Arc;

use config::{Config, PoolMode};
use foldhash::fast::RandomState;
use wire::messages::Bind;
use wire::{HEADER_LEN, Header, frontend};

use crate::client::Client;
use crate::ids::{Micros, PoolId, ServerId};
use crate::server::Server;
use crate::settings::PoolSettings;
use crate::vars::APPLICATION_NAME;
use advice::Advice;
use fingerprints::Fingerprints;
use request::{Half, Request};
use texts::{Text, Texts};

/// The request that a client has sent, and its server.
pub(crate) struct Sent<'a> {
    pub(crate) on: ServerId,
    pub(crate) client: &'a Client,
    pub(crate) server: &'a Server,
    pub(crate) settings: &'a PoolSettings,
    /// A request begins with these bytes.
    pub(crate) begins: bool,
    /// The number of bytes that belong to a message that has begun before.
    pub(crate) continued: usize,
}

/// The watch of one worker.
#[derive(Debug)]
pub(crate) struct Watch {
    texts: Texts,
    fingerprints: Option<Fingerprints>,
    advice: Option<Advice>,
    /// The request of each server that has one.
    requests: HashMap<ServerId, Request, RandomState>,
}

/// A copy of what one worker has found out.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    pub fingerprints: Vec<fingerprints::Row>,
    pub pools: Vec<advice::PoolRow>,
    pub reasons: Vec<advice::ReasonRow>,
}

impl Watch {
    /// Returns the watch that the configuration asks for. The present one keeps its counts.
    pub(crate) fn configured(present: Option<Box<Self>>, config: &Config) -> Option<Box<Self>> {
        let global = &config.global;
        if !global.fingerprints && !global.advise {
            return None;
        }
        let mut watch = present.unwrap_or_else(|| {
            Box::new(Self {
                texts: Texts::default(),
                fingerprints: None,
                advice: None,
                requests: HashMap::default(),
            })
        });
        // `pin_functions` may be another one.
        watch.texts.forget_signs();
        let counted = watch.fingerprints.take();
        watch.fingerprints = global.fingerprints.then(|| counted.unwrap_or_default());
        let advice = watch.advice.take();
        watch.advice = global.advise.then(|| advice.unwrap_or_default());
        Some(watch)
    }

    /// A client has sent these bytes.
    #[cold]
    pub(crate) fn requested(&mut self, sent: &Sent<'_>, input: &[u8]) {
        if sent.server.replication.is_some() {
            return;
        }
        let request = self.requests.entry(sent.on).or_default();
        if sent.begins {
            request.begin(sent.client.serial);
        }
        request.received += input.len() as u64;
        let (rest, messages) = input.split_at(sent.continued.min(input.len()));
        if let Some(half) = request.go_on(rest) {
            self.message(half.code, &half.body, sent);
        }
        self.messages(messages, sent);
        if let Some(advice) = &mut self.advice
            && sent.server.mode_in(sent.settings.mode) != PoolMode::Auto
        {
            advice.works(sent.client.serial, sent.server.pool, sent.client.times.in_transaction());
        }
    }

    fn messages(&mut self, mut input: &[u8], sent: &Sent<'_>) {
        while let Ok(Some(header)) = Header::parse(input) {
            let is_whole = header.total <= input.len();
            let (message, rest) = input.split_at(header.total.min(input.len()));
            let body = message.get(HEADER_LEN..).unwrap_or_default();
            if is_whole {
                self.message(header.code, body, sent);
            } else {
                let half = Half::new(header.code, body, header.total - message.len());
                self.requests.entry(sent.on).or_default().half = Some(half);
            }
            input = rest;
        }
    }

    /// The first part of a long message is enough.
    fn message(&mut self, code: u8, body: &[u8], sent: &Sent<'_>) {
        let serial = sent.client.serial;
        match code {
            frontend::QUERY => {
                let text = body.strip_suffix(&[0]).unwrap_or(body);
                let text = self.texts.of(text, sent.settings);
                self.runs(Some(text), sent);
            }
            frontend::PARSE => {
                if let Some((name, sql)) = parse(body) {
                    let text = self.texts.of(sql, sent.settings);
                    self.texts.name(serial, name, text);
                }
            }
            frontend::BIND => {
                let name = Bind::decode(body).map_or(&b""[..], |bind| bind.statement);
                let known = self.texts.named(serial, name);
                let text = known.or_else(|| self.prepared_before(name, sent));
                self.runs(text, sent);
            }
            frontend::FUNCTION_CALL => self.runs(None, sent),
            _ => {}
        }
    }

    /// Returns a statement that the client has prepared before it was watched.
    fn prepared_before(&mut self, name: &[u8], sent: &Sent<'_>) -> Option<Arc<Text>> {
        let own = sent.client.extended.as_ref()?;
        let statement = own.statements.find(name)?.used.statement;
        let text = self.texts.of(&statement.sql, sent.settings);
        self.texts.name(sent.client.serial, name, text.clone());
        Some(text)
    }

    /// A client runs a text; None if it is not known.
    fn runs(&mut self, text: Option<Arc<Text>>, sent: &Sent<'_>) {
        if let Some(advice) = &mut self.advice
            && sent.server.mode_in(sent.settings.mode) != PoolMode::Auto
        {
            let application = sent.client.vars.get(APPLICATION_NAME).unwrap_or_default();
            advice.runs(sent.client.serial, sent.server.pool, text.as_ref(), application);
        }
        if let (Some(text), Some(request)) = (text, self.requests.get_mut(&sent.on)) {
            request.note(text);
        }
    }

    /// Notes that a server has sent `len` bytes.
    #[cold]
    pub(crate) fn replied(&mut self, on: ServerId, len: usize) {
        if let Some(request) = self.requests.get_mut(&on) {
            request.sent += len as u64;
        }
    }

    /// A request is answered, after `taken`.
    #[cold]
    pub(crate) fn done(
        &mut self,
        on: ServerId,
        pool: PoolId,
        client: u64,
        taken: Micros,
        is_over: bool,
    ) {
        if is_over && let Some(advice) = &mut self.advice {
            advice.rests(client);
        }
        let Some(request) = self.requests.remove(&on).filter(|it| it.client == client) else {
            return;
        };
        if let (Some(fingerprints), Some(text)) = (&mut self.fingerprints, request.text) {
            fingerprints.count(pool, &text, taken, (request.received, request.sent));
        }
    }

    /// A client has left.
    #[cold]
    pub(crate) fn left(&mut self, client: u64, on: Option<ServerId>) {
        if let Some(on) = on {
            self.requests.remove(&on);
        }
        if let Some(advice) = &mut self.advice {
            advice.left(client);
        }
    }

    /// Pools with these numbers are gone. The numbers may be used again.
    pub(crate) fn forget_pool(&mut self, pool: PoolId) {
        self.fingerprints.iter_mut().for_each(|all| all.forget_pool(pool));
        self.advice.iter_mut().for_each(|all| all.forget_pool(pool));
    }

    /// Returns a copy for the console.
    pub(crate) fn watched(&self) -> Watched {
        Watched {
            fingerprints: self.fingerprints.iter().flat_map(Fingerprints::rows).collect(),
            pools: self.advice.iter().flat_map(Advice::pools).collect(),
            reasons: self.advice.iter().flat_map(Advice::reasons).collect(),
        }
    }
}

/// Returns the name and the text of a Parse message, whose end may be missing.
fn parse(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = body.iter().position(|byte| *byte == 0)?;
    let sql = body.get(end + 1..)?;
    let text_end = sql.iter().position(|byte| *byte == 0).unwrap_or(sql.len());
    Some((body.get(..end)?, sql.get(..text_end)?))
}
