//! A statement as messages, by the protocol that was asked for.

use wire::frontend;

use super::{Client, Shared};
use crate::{
    plan::Mode,
    script::{Piece, Statement},
    value::Value,
};

impl Client {
    /// Appends all that has the server execute it; in a pipeline without the Sync.
    pub(super) fn send(&mut self, statement: &Statement, shared: &mut Shared<'_>) {
        if shared.plan.mode == Mode::Simple {
            let text = self.filled_in(statement, shared);
            frontend::query(&mut shared.out, &text);
            self.reply.owed += 1;
            return;
        }
        let out = &mut shared.out;
        let name = match shared.plan.mode {
            Mode::Prepared => format!("P_{}", statement.number),
            Mode::Simple | Mode::Extended => String::new(),
        };
        let known = self.prepared.get(statement.number) == Some(&true);
        // A pipeline may hold a statement twice before its first Parse is answered.
        let is_under_way = self.reply.parsing.contains(&statement.number);
        if name.is_empty() || !(known || is_under_way) {
            frontend::parse(out, name.as_bytes(), &statement.text, frontend::NO_TYPES);
            let known_as = if name.is_empty() { usize::MAX } else { statement.number };
            self.reply.parsing.push_back(known_as);
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
            self.reply.owed += 1;
        }
    }

    /// The text with the values in it. What is no variable stays as it is.
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
