//! The maps of `auth_ident_file`: which users a client may log in as after the operating system or
//! a certificate has proved its name. Lines are `map system-user database-user`, where the last may
//! be `all`. As in PgBouncer, there are no regular expressions.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::words::{Word, Words};
use crate::error::Mistake;
use crate::reason::{IdentError, Reason};

/// All maps, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentMaps(BTreeMap<String, Arc<IdentMap>>);

/// One map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentMap {
    pub name: String,
    /// A system's user and a user that it may log in as; None is every user.
    pairs: Vec<(String, Option<String>)>,
}

impl IdentMap {
    /// Returns the system's users that may log in as `user`.
    pub fn who_may_be<'a>(&'a self, user: &'a str) -> impl Iterator<Item = &'a str> {
        let fits = move |to: &Option<String>| to.as_deref().is_none_or(|to| to == user);
        self.pairs.iter().filter(move |(_, to)| fits(to)).map(|(from, _)| from.as_str())
    }
}

impl IdentMaps {
    /// Reads the content of a file; the warnings name invalid lines.
    pub fn parse(content: &str, file: &Arc<str>) -> (Self, Vec<Mistake>) {
        let mut maps: BTreeMap<String, IdentMap> = BTreeMap::new();
        let mut warnings = Vec::new();
        for (at, line) in content.lines().enumerate() {
            match mapping(line) {
                Ok(None) => {}
                Ok(Some((name, from, to))) => {
                    let map = maps.entry(name.clone()).or_default();
                    map.name = name;
                    map.pairs.push((from, to));
                }
                Err(why) => {
                    warnings.push(Mistake::in_file(file, at + 1, Reason::Ident(why)));
                }
            }
        }
        (Self(maps.into_iter().map(|(name, map)| (name, Arc::new(map))).collect()), warnings)
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<IdentMap>> {
        self.0.get(name).cloned()
    }
}

type Mapping = (String, String, Option<String>);

fn mapping(line: &str) -> Result<Option<Mapping>, IdentError> {
    let mut words = Words::new(line);
    let mut next = || words.next().map_err(|_| IdentError::Unclosed);
    let map = match next()? {
        None => return Ok(None),
        Some(Word::Bare(map)) => map,
        Some(Word::Quoted(_) | Word::Comma) => return Err(IdentError::NoMap),
    };
    let from = match next()? {
        Some(Word::Bare(name) | Word::Quoted(name)) => name,
        Some(Word::Comma) | None => return Err(IdentError::NoSystemUser),
    };
    let to = match next()? {
        Some(Word::Bare(all)) if all == "all" => None,
        Some(Word::Bare(name) | Word::Quoted(name)) => Some(name),
        Some(Word::Comma) | None => return Err(IdentError::NoUser),
    };
    match next()? {
        None => Ok(Some((map, from, to))),
        Some(_) => Err(IdentError::Parameters),
    }
}
