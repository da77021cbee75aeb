//! The maps of `auth_ident_file`: as whom somebody may log in whose name was proven otherwise, by
//! the operating system or by a certificate. Lines are `map system-user database-user`, where the
//! last may be `all`. There are no regular expressions, as in PgBouncer.

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
    /// A system's user and the user it may be; none is anybody.
    pairs: Vec<(String, Option<String>)>,
}

impl IdentMap {
    /// The system's users who may log in as `user`.
    pub fn who_may_be<'a>(&'a self, user: &'a str) -> impl Iterator<Item = &'a str> {
        let fits = move |to: &Option<String>| to.as_deref().is_none_or(|to| to == user);
        self.pairs.iter().filter(move |(_, to)| fits(to)).map(|(from, _)| from.as_str())
    }
}

impl IdentMaps {
    /// Reads the content of a file; lines that mean nothing are told in the warnings.
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
