//! The variables of all scripts of a run, by number. A client has a slot for each, which it finds
//! without comparing names.

/// A variable's number.
pub(crate) type Slot = usize;

#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Vec<String>);

impl Names {
    /// Returns the slot of this name, a new one if it is new.
    pub(crate) fn slot(&mut self, name: &str) -> Slot {
        self.find(name).unwrap_or_else(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        })
    }

    /// Returns the slot of this name, if any script uses it.
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

/// Can it be a variable's name? As in pgbench: letters, digits, `_` and non-ASCII characters.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_name_byte)
}

pub(crate) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}
