//! The test router: chooses which requests of an idle client go to a reader, and checks readers.

use std::sync::Arc;

use engine::ids::NodeId;
use engine::routing::Place;
use engine::settings::{PoolKey, PoolSettings, Target};
use wire::messages::Parse;
use wire::{HEADER_LEN, frontend};

use crate::reference::messages;
use crate::sql::{Sql, Statement, Tag};

/// A reader's port is its writer's plus this number.
const READER_PORTS: u16 = 1000;

/// The kind of requests that readers get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Routed {
    Selects,
    /// Whole transactions as well. Used only if no state keeps a server after its transaction.
    Transactions,
}

/// May this whole request go to a reader?
pub(crate) fn place(request: &[u8], routed: Routed) -> Place {
    let (mut texts, mut uses) = (0, 0);
    let mut names = Vec::new();
    for message in messages(request) {
        let (code, body) = (message[0], &message[HEADER_LEN..]);
        let sql = match code {
            frontend::QUERY => body.strip_suffix(b"\0").unwrap_or(body),
            frontend::PARSE => match Parse::decode(body) {
                Ok(parse) => {
                    names.push(parse.name);
                    parse.sql
                }
                Err(_) => return Place::Writer,
            },
            frontend::BIND => {
                let mut of = body.split(|byte| *byte == 0).skip(1);
                match of.next().is_some_and(|name| names.contains(&name)) {
                    true => uses += 1,
                    // A statement that was prepared earlier may do anything.
                    false => return Place::Writer,
                }
                continue;
            }
            _ => continue,
        };
        let Some(sql) = Sql::parse(sql) else { return Place::Writer };
        let is_readable = |statement: &Statement| match statement {
            Statement::Select { .. } => true,
            Statement::Begin => routed == Routed::Transactions && code == frontend::QUERY,
            _ => false,
        };
        if sql.statements.is_empty() || !sql.statements.iter().all(is_readable) {
            return Place::Writer;
        }
        if sql.tag.is_some_and(|tag| !is_for_readers(tag)) {
            return Place::Writer;
        }
        texts += 1;
    }
    let tags = tags(request);
    let has_tag = !tags.is_empty() || (uses == 0 && texts == 1);
    match texts > 0 && uses <= texts && has_tag && tags.into_iter().all(is_for_readers) {
        true => Place::Reader(NodeId(1)),
        false => Place::Writer,
    }
}

/// May a reader get this outside a transaction?
pub(crate) fn is_for_readers(tag: Tag) -> bool {
    tag.number.is_multiple_of(2)
}

/// Does a standby refuse this, although the router lets it pass? Only as the first statement of a
/// request: nothing can be refused after an answer.
pub(crate) fn is_refused_by_readers(tag: Tag) -> bool {
    tag.number % 8 == 6
}

/// All tags in a request, in texts and parameters.
fn tags(request: &[u8]) -> Vec<Tag> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'.';
    let words = request.split(|byte| !is_part(byte));
    words.filter_map(|word| Tag::parse(str::from_utf8(word).ok()?)).collect()
}

/// Adapts the settings of a pool whose requests are routed.
pub(crate) fn adapt(settings: &mut Arc<PoolSettings>, key: &PoolKey) {
    let settings = Arc::get_mut(settings).expect("settings that nobody else has yet");
    settings.routing = (key.place == Place::Writer).then(Arc::default);
    if key.place == Place::Writer {
        return;
    }
    for target in &mut settings.targets {
        if let Target::Tcp(_, port) = target {
            *port += READER_PORTS;
        }
    }
}

pub(crate) fn is_reader(target: &Target) -> bool {
    matches!(target, Target::Tcp(_, port) if *port >= 5000 + READER_PORTS)
}
