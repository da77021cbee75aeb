//! Finds the objects that use a dangerous one, directly or through others.

use std::collections::{HashMap, HashSet};

use foldhash::fast::FixedState;

use crate::name::Name;
use crate::names::digest;

/// Each kind has its own numbers in PostgreSQL's catalogs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// Also an aggregate.
    Function,
    Operator,
    Relation,
    Type,
}

#[derive(Debug)]
pub(super) struct Object {
    pub(super) kind: Kind,
    pub(super) oid: u32,
    /// The digest of its name, without the schema.
    pub(super) name: u64,
    pub(super) is_beyond_ascii: bool,
    pub(super) is_dangerous: bool,
    /// It counts as not dangerous, whatever it uses.
    pub(super) is_trusted: bool,
    /// It counts as dangerous, even if it is trusted.
    pub(super) is_distrusted: bool,
    pub(super) uses: Uses,
}

/// The objects that an object uses: exactly these, and any with these names.
#[derive(Debug, Default)]
pub(super) struct Uses {
    pub(super) objects: Vec<(Kind, u32)>,
    pub(super) names: Vec<u64>,
    pub(super) operators: Vec<u64>,
}

/// All objects, and what they use.
#[derive(Debug, Default)]
pub(super) struct Closure {
    objects: Vec<Object>,
    /// Uses from rows of their own, whose object may come later.
    also: Vec<((Kind, u32), Uses, bool)>,
}

impl Object {
    pub(super) fn new(kind: Kind, oid: u32, name: &str) -> Self {
        let digest = match kind {
            Kind::Operator => digest(name.as_bytes()),
            Kind::Function | Kind::Relation | Kind::Type => Name::of(name.as_bytes()).digest(),
        };
        Self {
            kind,
            oid,
            name: digest,
            is_beyond_ascii: !name.is_ascii(),
            is_dangerous: false,
            is_trusted: false,
            is_distrusted: false,
            uses: Uses::default(),
        }
    }
}

impl Closure {
    pub(super) fn add(&mut self, object: Object) {
        self.objects.push(object);
    }

    pub(super) fn add_uses(&mut self, of: (Kind, u32), uses: Uses, is_dangerous: bool) {
        self.also.push((of, uses, is_dangerous));
    }

    /// Makes the objects with these names, and the distrusted ones, dangerous.
    pub(super) fn distrust(&mut self, names: &HashSet<u64, FixedState>) {
        let is_named = |object: &&mut Object| {
            object.is_distrusted || object.kind != Kind::Operator && names.contains(&object.name)
        };
        for object in self.objects.iter_mut().filter(is_named) {
            (object.is_dangerous, object.is_trusted) = (true, false);
        }
    }

    pub(super) fn dangerous(&self) -> impl Iterator<Item = &Object> {
        self.objects.iter().filter(|object| object.is_dangerous)
    }

    /// Marks the users of what is dangerous, until there are no more. A function's text may also use
    /// one of these names, of which there need not be an object.
    pub(super) fn close(&mut self, names: &HashSet<u64, FixedState>) {
        let places: HashMap<(Kind, u32), usize, FixedState> =
            self.objects.iter().enumerate().map(|(at, one)| ((one.kind, one.oid), at)).collect();
        for (of, uses, is_dangerous) in self.also.drain(..) {
            let Some(object) = places.get(&of).and_then(|at| self.objects.get_mut(*at)) else {
                continue;
            };
            object.is_dangerous |= is_dangerous && !object.is_trusted;
            object.uses.objects.extend(uses.objects);
            object.uses.names.extend(uses.names);
            object.uses.operators.extend(uses.operators);
        }
        let mut found = Found { names: names.clone(), ..Found::default() };
        loop {
            self.dangerous().for_each(|object| found.add(object));
            let mut changed = false;
            let is_open = |object: &&mut Object| !object.is_dangerous && !object.is_trusted;
            for object in self.objects.iter_mut().filter(is_open) {
                object.is_dangerous = found.is_used(&object.uses);
                changed |= object.is_dangerous;
            }
            if !changed {
                return;
            }
        }
    }
}

#[derive(Default)]
struct Found {
    objects: HashSet<(Kind, u32), FixedState>,
    names: HashSet<u64, FixedState>,
    operators: HashSet<u64, FixedState>,
}

impl Found {
    fn add(&mut self, object: &Object) {
        self.objects.insert((object.kind, object.oid));
        match object.kind {
            Kind::Operator => self.operators.insert(object.name),
            Kind::Function | Kind::Relation | Kind::Type => self.names.insert(object.name),
        };
    }

    fn is_used(&self, uses: &Uses) -> bool {
        uses.objects.iter().any(|object| self.objects.contains(object))
            || uses.names.iter().any(|name| self.names.contains(name))
            || uses.operators.iter().any(|operator| self.operators.contains(operator))
    }
}
