//! The variables of all scripts of a run, by number: a client has a slot for each, and finds it
//! without looking at its name.

/// A variable's number.
pub(crate) type Slot = usize;

#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Vec<String>);

impl Names {
    /// The slot of that name, a new one if it is new.
    pub(crate) fn slot(&mut self, name: &str) -> Slot {
        self.find(name).unwrap_or_else(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        })
    }

    /// The slot of that name, if any script uses it.
    pub(crate) fn find(&self, name: &str) -> Option<Slot> {
        self.0.iter().position(|known| known == name)
    }

    pub(crate) fn name(&self, slot: Slot) -> &str {
        self.0.get(slot).map_or("", String::as_str)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// May that stand behind the colon? As in pgbench: letters, digits, `_` and what is not ASCII.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_name_byte)
}

pub(crate) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}
