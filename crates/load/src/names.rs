//! The variables of a script, by number. A client has a slot for each, which it finds without
//! comparing names.

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

    /// Returns the slot of this name, if the script uses it.
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

/// Returns the length of the name at the beginning of a text. As in pgbench, it consists of letters,
/// digits, `_` and non-ASCII characters.
pub(crate) fn name_len(text: &[u8]) -> usize {
    let is_of_name =
        |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_' || !byte.is_ascii();
    text.iter().take_while(is_of_name).count()
}
