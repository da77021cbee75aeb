//! The settings that a transaction's texts may have reset. PostgreSQL's answer to a RESET does not
//! name the setting, and a setting with an empty value looks like one that was reset.

use serde::{Deserialize, Serialize};
use sql::{Discarded, Verb};

/// If the texts are longer, Weir assumes that they may have reset everything.
const LEN_MAX: usize = 4_096;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resets {
    all: bool,
    /// A text is not known.
    unknown: bool,
    /// A text may have reset a setting that it does not name.
    unnamed: bool,
    /// The statements as [`bare`] writes them (`RESET TIME ZONE` is about TimeZone).
    texts: Vec<u8>,
}

impl Resets {
    /// Notes that the text is run. It is empty if it is not known.
    pub fn note(&mut self, text: &[u8]) {
        self.unknown |= text.is_empty();
        self.all |= text.len() + self.texts.len() >= LEN_MAX;
        if self.all {
            return;
        }
        self.note_reading(text, true);
        if text.contains(&b'\\') {
            self.note_reading(text, false);
        }
    }

    /// `standard`: see [`sql::scan`].
    fn note_reading(&mut self, text: &[u8], standard: bool) {
        for statement in sql::statements(text, standard) {
            let own = bare(text.get(statement.range).unwrap_or_default());
            #[expect(clippy::wildcard_enum_match_arm, reason = "few of many verbs reset")]
            let resets = match statement.verb {
                Verb::Reset => true,
                Verb::Set { .. } => contains(&own, b"default") || contains(&own, b"timezonelocal"),
                Verb::ResetAll | Verb::Discard(Discarded::All) => {
                    self.all = true;
                    false
                }
                _ => contains(&own, b"setconfig") && contains(&own, b"null"),
            };
            // The value may be null, and an update of pg_settings calls set_config.
            self.unnamed |= contains(&own, b"setconfig") && contains(&own, b"$")
                || contains(&own, b"pgsettings");
            self.all |= resets && contains(&own, b"u&");
            if resets {
                self.texts.extend_from_slice(&own);
                self.texts.push(b';');
            }
        }
    }

    /// May the texts have reset this setting?
    pub fn may_include(&self, name: &[u8], is_confirmed: bool) -> bool {
        self.unnamed || self.include(name, is_confirmed)
    }

    /// Has a text that resets settings named this one? An unknown text, such as a function call, counts
    /// if PostgreSQL has confirmed that something was reset.
    pub fn include(&self, name: &[u8], is_confirmed: bool) -> bool {
        let name = bare(name);
        let is_named = contains(&self.texts, &name);
        self.all
            || self.unknown && is_confirmed
            || is_named
            || name == *b"clientencoding" && contains(&self.texts, b"names")
    }
}

/// Returns a text in lower case, without spaces, quotes and underscores.
fn bare(text: &[u8]) -> Vec<u8> {
    let is_left_out = |byte: &&u8| byte.is_ascii_whitespace() || matches!(byte, b'"' | b'_');
    let kept = text.iter().filter(|byte| !is_left_out(byte));
    kept.map(u8::to_ascii_lowercase).collect()
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn includes(text: &str, name: &str) -> bool {
        let mut resets = Resets::default();
        resets.note(text.as_bytes());
        resets.may_include(name.as_bytes(), true)
    }

    #[test]
    fn a_texts_words_show_what_it_resets() {
        for text in [
            "RESET TimeZone",
            "RESET TIME ZONE",
            "SELECT 1; reset \"timezone\"",
            "SET TimeZone TO DEFAULT",
            "SET TIME ZONE DEFAULT",
            "SET TIME ZONE LOCAL",
            "RESET ALL",
            "DISCARD ALL",
            "SELECT set_config('TimeZone', NULL, false)",
            "SELECT set_config('TimeZone', $1, false)",
            "SELECT set_config($1, $2, false)",
            "UPDATE pg_settings SET setting = reset_val WHERE name = 'TimeZone'",
            "RESET U&\"\\0054imeZone\"",
            "",
        ] {
            assert!(includes(text, "TimeZone"), "{text}");
        }
        for text in [
            "RESET work_mem",
            "SET TimeZone = 'UTC'; RESET work_mem",
            "SELECT 'RESET TimeZone'",
            "DISCARD PLANS",
            "SET work_mem TO DEFAULT",
        ] {
            assert!(!includes(text, "TimeZone"), "{text}");
        }
        assert!(includes("SET NAMES DEFAULT", "client_encoding"));
        assert!(!includes("SET NAMES 'LATIN1'", "client_encoding"));
        assert!(includes("RESET SESSION AUTHORIZATION", "session_authorization"));
        assert!(includes("SET SESSION AUTHORIZATION DEFAULT", "session_authorization"));
        assert!(includes("RESET app.tenant", "app.tenant"));
        assert!(!includes("SET app.tenant = ''", "app.tenant"));
        assert!(includes(&" ".repeat(LEN_MAX), "app.tenant"));
    }
}
