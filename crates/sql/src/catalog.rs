//! The names of a database that make a text one for the primary.
//!
//! A [`Catalog`] collects rows of PostgreSQL's catalogs ([`Part::query`] has the queries), and
//! [`Catalog::view`] finds out which functions, operators and relations are dangerous on a standby:
//!
//! * sequences, unlogged and foreign tables
//! * functions with a volatile overload, but a few of PostgreSQL's own (`random()`)
//! * functions whose source locks, writes, tells of the node, or runs SQL that it does not show
//! * functions in a language that is not read here, unless PostgreSQL calls them in C
//! * functions, operators, aggregates, views, types, and tables with policies or partitions that
//!   use any of these, also in default values of arguments
//! * tables and functions with values of a type whose casts or operator classes use any of these
//!
//! A [`CatalogView`] holds their names without schemas, as digests. So `search_path` has no say, and
//! a column with the name of a sequence costs the primary a read.
//!
//! Not found, if a text does not name the type: input functions, constraints of domains. A function in
//! C that is declared STABLE is believed. Decision 023 lists the columns of the catalogs.

mod closure;
mod queries;
#[cfg(test)]
mod tests;
pub(crate) mod view;

use std::collections::HashSet;

use foldhash::fast::FixedState;

use crate::catalog::closure::{Closure, Kind, Object, Uses};
use crate::name::Name;
use crate::reads::body::{Code, body};

pub use queries::{CHANGES, Part};
pub use view::CatalogView;

/// Rows of the catalogs, from which a view is made.
#[derive(Debug, Default)]
pub struct Catalog {
    closure: Closure,
    trusted: HashSet<u64, FixedState>,
    distrusted: CatalogView,
    lists: Lists,
}

/// Names that an operator has put on a list, as they stand in the catalogs, without their schema. In
/// a name, `*` stands for any part of it; such a name means no object of PostgreSQL's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// Functions that a standby may run, whatever the catalogs say.
    pub standby_functions: Vec<String>,
    /// Functions, relations and types that need the primary. They count more than the others.
    pub primary_names: Vec<String>,
}

impl Lists {
    /// Does a name with a star stand for relations?
    pub fn name_relations(&self) -> bool {
        self.primary_names.iter().any(|name| name.contains('*'))
    }

    /// Returns the names with stars.
    fn with_stars(&self) -> Self {
        let with_stars = |names: &[String]| {
            names.iter().filter(|name| name.contains('*')).cloned().collect::<Vec<_>>()
        };
        Self {
            standby_functions: with_stars(&self.standby_functions),
            primary_names: with_stars(&self.primary_names),
        }
    }
}

/// Does the name have the form of one of these, in which `*` stands for any part?
fn matches_any(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| matches(pattern, name))
}

fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return name.ends_with(part);
        }
        // The first place leaves most for the other parts.
        let Some((_, behind)) = name.split_once(part) else { return false };
        name = behind;
    }
    true
}

/// A row that no query of [`Part`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRow;

type Row<'a> = [Option<&'a str>];

impl Catalog {
    /// Returns a catalog without rows.
    pub fn new(lists: &Lists) -> Self {
        let digest = |name: &String| Name::of(name.as_bytes()).digest();
        let distrusted = CatalogView {
            names: lists.primary_names.iter().map(digest).collect(),
            beyond_ascii: !lists.primary_names.iter().all(|name| name.is_ascii()),
            ..CatalogView::default()
        };
        let trusted = lists.standby_functions.iter().map(digest).collect();
        Self { trusted, distrusted, lists: lists.with_stars(), ..Self::default() }
    }

    /// Adds a row of [`Part::query`]. The order of the rows does not matter.
    pub fn add(&mut self, part: Part, row: &Row<'_>) -> Result<(), BadRow> {
        match part {
            Part::Functions => self.add_function(row),
            Part::Operators => self.add_operator(row),
            Part::Relations | Part::Tables => self.add_relation(row),
            Part::Types => self.add_type(row),
            Part::Uses => self.add_uses(row),
        }
    }

    /// Finds the dangerous names.
    pub fn view(mut self) -> CatalogView {
        self.closure.distrust(&self.distrusted.names);
        self.closure.close(&self.distrusted.names);
        let mut view = self.distrusted;
        for object in self.closure.dangerous() {
            match object.kind {
                Kind::Operator => view.operators.insert(object.name),
                Kind::Function | Kind::Relation | Kind::Type => view.names.insert(object.name),
            };
            view.beyond_ascii |= object.is_beyond_ascii;
        }
        view
    }

    fn object(&self, kind: Kind, oid: u32, name: &str) -> Object {
        let is_own = oid < FIRST_USER_OID;
        let is_distrusted = !is_own && matches_any(&self.lists.primary_names, name);
        Object { is_distrusted, ..Object::new(kind, oid, name) }
    }

    /// (oid, name, is volatile, language, source)
    fn add_function(&mut self, row: &Row<'_>) -> Result<(), BadRow> {
        let [oid, Some(name), volatile, Some(language), source] = row else { return Err(BadRow) };
        let mut object = self.object(Kind::Function, number(*oid)?, name);
        let is_own = object.oid < FIRST_USER_OID;
        let is_like = !is_own && matches_any(&self.lists.standby_functions, name);
        object.is_trusted = is_like || self.trusted.contains(&object.name);
        object.is_dangerous = match (*volatile, *language) {
            _ if object.is_trusted => false,
            (Some("t"), _) => !(is_own && HARMLESS.contains(name)),
            (_, "internal" | "c") => false,
            (_, "sql" | "plpgsql") => object.uses.read(source.unwrap_or_default(), Code::Routine),
            _ => true,
        };
        self.closure.add(object);
        Ok(())
    }

    /// (oid, name, function)
    fn add_operator(&mut self, row: &Row<'_>) -> Result<(), BadRow> {
        let [oid, Some(name), function] = row else { return Err(BadRow) };
        let mut object = Object::new(Kind::Operator, number(*oid)?, name);
        object.uses.objects.push((Kind::Function, number(*function)?));
        self.closure.add(object);
        Ok(())
    }

    /// (oid, name, is dangerous)
    fn add_relation(&mut self, row: &Row<'_>) -> Result<(), BadRow> {
        let [oid, Some(name), dangerous] = row else { return Err(BadRow) };
        let mut object = self.object(Kind::Relation, number(*oid)?, name);
        object.is_dangerous = *dangerous == Some("t");
        self.closure.add(object);
        Ok(())
    }

    /// (oid, name)
    fn add_type(&mut self, row: &Row<'_>) -> Result<(), BadRow> {
        let [oid, Some(name)] = row else { return Err(BadRow) };
        let object = self.object(Kind::Type, number(*oid)?, name);
        self.closure.add(object);
        Ok(())
    }

    /// (kind, oid, uses, definition). The uses are a list as `funcid 1574,opno 96`, with the words
    /// of a node tree.
    fn add_uses(&mut self, row: &Row<'_>) -> Result<(), BadRow> {
        let [kind, oid, list, definition] = row else { return Err(BadRow) };
        let kind = match *kind {
            Some("function") => Kind::Function,
            Some("relation") => Kind::Relation,
            Some("type") => Kind::Type,
            _ => return Err(BadRow),
        };
        let mut uses = Uses::default();
        for one in list.unwrap_or_default().split(',').filter(|one| !one.is_empty()) {
            let (word, oid) = one.split_once(' ').ok_or(BadRow)?;
            let of = match word {
                "funcid" | "opfuncid" | "aggfnoid" | "winfnoid" | "hashfuncid" => Kind::Function,
                "opno" | "eqop" | "sortop" => Kind::Operator,
                "relid" => Kind::Relation,
                _ => return Err(BadRow),
            };
            let oid = number(Some(oid))?;
            // 0: PostgreSQL looks it up when it plans the query. `opno` tells then.
            // `current_setting` is judged by the definition, which shows the setting's name.
            if oid != 0 && !CURRENT_SETTING.contains(&oid) {
                uses.objects.push((of, oid));
            }
        }
        let is_dangerous = match definition {
            Some(definition) => uses.read(definition, Code::Definition),
            None => false,
        };
        self.closure.add_uses((kind, number(*oid)?), uses, is_dangerous);
        Ok(())
    }
}

/// Objects below come with PostgreSQL.
const FIRST_USER_OID: u32 = 16_384;

const CURRENT_SETTING: [u32; 2] = [2_077, 3_294];

/// PostgreSQL's volatile functions that a standby may run: they draw numbers and read clocks.
const HARMLESS: [&str; 7] = [
    "clock_timestamp",
    "gen_random_uuid",
    "random",
    "random_normal",
    "timeofday",
    "uuidv4",
    "uuidv7",
];

fn number(text: Option<&str>) -> Result<u32, BadRow> {
    text.and_then(|text| text.parse().ok()).ok_or(BadRow)
}

impl Uses {
    /// Adds the names of a text. Returns whether the text is dangerous by itself.
    fn read(&mut self, text: &str, code: Code) -> bool {
        match body(text.as_bytes(), code) {
            Ok(body) => {
                self.names.extend(body.names);
                self.operators.extend(body.operators);
                false
            }
            Err(_) => true,
        }
    }
}
