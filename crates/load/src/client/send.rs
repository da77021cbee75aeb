//! A statement as messages of the configured protocol.

use wire::frontend;

use super::{Client, Shared};
use crate::{
    plan::Mode,
    script::{Piece, Statement},
};

impl Client {
    /// Appends the messages that execute it.
    pub(super) fn send(&mut self, statement: &Statement, shared: &mut Shared<'_>) {
        if shared.plan.mode == Mode::Simple {
            let text = self.filled_in(statement, shared);
            return frontend::query(&mut shared.out, &text);
        }
        let out = &mut shared.out;
        let number = (shared.plan.mode == Mode::Prepared).then_some(statement.number);
        let name = number.map_or_else(String::new, |number| format!("P_{number}"));
        if number.is_none_or(|number| self.prepared.get(number) != Some(&true)) {
            frontend::parse(out, name.as_bytes(), &statement.text, frontend::NO_TYPES);
            self.reply.parse = number;
        }
        let value = |slot: &usize| self.variables.get(*slot).copied().flatten();
        let values: Vec<Option<String>> =
            statement.parameters.iter().map(|slot| value(slot).map(|v| v.to_string())).collect();
        let values: Vec<Option<&[u8]>> =
            values.iter().map(|value| value.as_ref().map(String::as_bytes)).collect();
        frontend::bind_text(out, name.as_bytes(), &values);
        frontend::describe_portal(out, b"");
        frontend::execute(out, b"", 0);
        frontend::sync(out);
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
}
