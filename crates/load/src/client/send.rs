//! A statement as messages of the configured protocol.

use wire::frontend;

use super::{Client, Shared, reply::Awaited};
use crate::{
    plan::Mode,
    script::{Piece, Statement},
    value::Value,
};

impl Client {
    /// Appends the messages that execute it; in a pipeline without the Sync.
    pub(super) fn send(&mut self, statement: &Statement, shared: &mut Shared<'_>) {
        if shared.plan.mode == Mode::Simple {
            let text = self.filled_in(statement, shared);
            frontend::query(&mut shared.out, &text);
            self.reply.awaited.push_back(Awaited::ReadyForQuery);
            return;
        }
        let out = &mut shared.out;
        let number = (shared.plan.mode == Mode::Prepared).then_some(statement.number);
        let name = number.map_or_else(String::new, |number| format!("P_{number}"));
        let parse = Awaited::Parse(number);
        let is_known = number.is_some_and(|number| {
            // A pipeline may contain a statement twice before the first Parse has a reply.
            self.prepared.get(number) == Some(&true) || self.reply.awaited.contains(&parse)
        });
        if !is_known {
            frontend::parse(out, name.as_bytes(), &statement.text, frontend::NO_TYPES);
            self.reply.awaited.push_back(parse);
        }
        let values: Vec<Option<String>> =
            statement.parameters.iter().map(|slot| self.parameter(*slot)).collect();
        let values: Vec<Option<&[u8]>> =
            values.iter().map(|value| value.as_ref().map(String::as_bytes)).collect();
        frontend::bind_text(out, name.as_bytes(), &values);
        frontend::describe_portal(out, b"");
        frontend::execute(out, b"", 0);
        if !self.in_pipeline {
            frontend::sync(out);
            self.reply.awaited.push_back(Awaited::ReadyForQuery);
        }
    }

    /// Returns the text with the values filled in.
    fn filled_in(&self, statement: &Statement, shared: &Shared<'_>) -> Vec<u8> {
        let mut text = String::new();
        for piece in &statement.pieces {
            match piece {
                Piece::Text(part) => text.push_str(part),
                Piece::Variable(slot) => match self.variables.get(*slot) {
                    Some(Some(value)) => text.push_str(&value.to_string()),
                    _ => {
                        text.push(':');
                        text.push_str(shared.plan.names.name(*slot));
                    }
                },
            }
        }
        text.into_bytes()
    }

    fn parameter(&self, slot: usize) -> Option<String> {
        match self.variables.get(slot) {
            None | Some(None | Some(Value::Null)) => None,
            Some(Some(value)) => Some(value.to_string()),
        }
    }
}
