//! A configuration key: its definition, and the macro that defines keys.
//!
//! From the rows of a table, the [`keys!`] macro makes a struct with typed fields and the list of
//! [`Row`]s. Everything else is generic over that list: parser, defaults, `SHOW CONFIG`, help and
//! documentation. The rows are in `table`.

use crate::reason::Reason;
use crate::source::Source;
use crate::value::{Kind, ValueError};

/// The section of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// `[pgbouncer]`, or the top of `weir.toml`.
    Global,
    /// An entry of `[databases]`.
    Database,
    /// An entry of `[users]`.
    User,
    /// An entry of `[peers]`.
    Peer,
    /// An entry of `[clusters]`.
    Cluster,
}

/// The definition of a key, without its value.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub scope: Scope,
    pub name: &'static str,
    pub kind: Kind,
    /// The unit of a number, if its kind does not imply it; else empty.
    pub unit: &'static str,
    /// The text of the default; `None` if there is none (SQL's NULL).
    pub default: Option<&'static str>,
    /// The sources with another default.
    pub own_defaults: &'static [(Source, &'static str)],
    /// A reload applies a change; otherwise only a restart does.
    pub reloadable: bool,
    /// Why the key has no effect, for keys that only PgBouncer needs; a clause.
    pub idle_because: Option<&'static str>,
    /// The value must not be printed.
    pub secret: bool,
    /// PgBouncer has no such key of a database or user. Global keys are told apart by their order.
    pub own: bool,
    /// The explanation, of one or two sentences.
    pub help: &'static str,
}

/// A key together with the field of `T` that holds its value.
pub(crate) struct Row<T: 'static> {
    pub(crate) key: Key,
    pub(crate) set: fn(&mut T, &str) -> Result<(), ValueError>,
    pub(crate) show: fn(&T) -> Option<String>,
    pub(crate) exact: fn(&T) -> Option<String>,
    pub(crate) copy: fn(&mut T, &T),
}

/// A struct made by [`keys!`].
pub(crate) trait Keyed: Default + 'static {
    const ROWS: &'static [Row<Self>];

    fn row(name: &str) -> Option<&'static Row<Self>> {
        Self::ROWS.iter().find(|row| row.key.name == name)
    }

    /// An empty configuration from `source`: all keys have their defaults.
    fn defaults(source: Source) -> Self {
        let mut target = Self::default();
        for row in Self::ROWS {
            if let Some(own) = row.key.own_default(source) {
                // A test parses every default, so this cannot fail.
                let _ = (row.set)(&mut target, own);
            }
        }
        target
    }

    /// Returns the rows whose value differs from the default of `source`.
    fn changed(&self, source: Source) -> impl Iterator<Item = &'static Row<Self>> {
        let defaults = Self::defaults(source);
        Self::ROWS.iter().filter(move |row| (row.exact)(self) != (row.exact)(&defaults))
    }
}

impl Key {
    /// The default in a configuration from `source`.
    #[must_use]
    pub fn default_in(&self, source: Source) -> Option<&'static str> {
        self.own_default(source).or(self.default)
    }

    /// Does the key run a program or read a file?
    #[must_use]
    pub fn reaches_outside(&self) -> bool {
        self.name.ends_with("_command") || self.name.ends_with("_file")
    }

    /// Returns the reason for refusing a text of the wrong form. A secret is not repeated.
    pub(crate) fn refuse(&self, text: &str, expected: ValueError) -> Reason {
        let key = self.name;
        match self.secret {
            true => Reason::SecretValue { key, expected },
            false => Reason::Value { key, text: text.to_owned(), expected },
        }
    }

    fn own_default(&self, source: Source) -> Option<&'static str> {
        self.own_defaults.iter().find(|(own, _)| *own == source).map(|(_, text)| *text)
    }
}

/// Defines a struct from rows of this form:
/// `/// help` `field ("key"): Type [unit] = "default", reload|boot, acts|idle("why"), secret;`
/// The parts in brackets and `secret` are optional, and the default may be `unset`. Sources with
/// another default follow it in parentheses: `(Toml "x", Url "y")`.
macro_rules! keys {
    (
        $(#[$outer:meta])*
        pub struct $Struct:ident in $scope:ident {
            $( $(#[$plain_doc:meta])* $plain:ident : $plain_ty:ty, )*
        }
        $(
            $(#[doc = $help:literal])+
            $field:ident $(($key:literal))? : $ty:ty $([$unit:ident])? =
                $default:tt $(($($source:ident $own:literal),+))?,
            $when:ident, $acts:ident $(($why:literal))? $(, $flag:ident)?;
        )+
    ) => {
        $(#[$outer])*
        #[derive(Clone, PartialEq)]
        pub struct $Struct {
            $( $(#[$plain_doc])* pub $plain: $plain_ty, )*
            $( $(#[doc = $help])+ pub $field: $ty, )+
        }

        impl $crate::key::Keyed for $Struct {
            const ROWS: &'static [$crate::key::Row<Self>] = &[$(
                $crate::key::Row {
                    key: $crate::key::Key {
                        scope: $crate::key::Scope::$scope,
                        name: keys!(@name $field $($key)?),
                        kind: <$ty as $crate::value::Value>::KIND,
                        unit: concat!($(stringify!($unit))?),
                        default: keys!(@default $default),
                        own_defaults: &[$($(($crate::source::Source::$source, $own)),+)?],
                        reloadable: keys!(@reload $when),
                        idle_because: keys!(@$acts $($why)?),
                        secret: keys!(@secret $($flag)?),
                        own: keys!(@own $($flag)?),
                        help: concat!($($help),+).trim_ascii(),
                    },
                    set: |target, text| {
                        target.$field = <$ty as $crate::value::Value>::parse(text)?;
                        Ok(())
                    },
                    show: |target| $crate::value::Value::show(&target.$field),
                    exact: |target| $crate::value::Value::exact(&target.$field),
                    copy: |target, from| target.$field.clone_from(&from.$field),
                },
            )+];
        }

        impl Default for $Struct {
            fn default() -> Self {
                fn value<T: $crate::value::Value>(text: Option<&str>) -> T {
                    // A test parses every default, so the fallback stands for `unset` alone.
                    text.and_then(|text| T::parse(text).ok()).unwrap_or_default()
                }
                Self {
                    $( $plain: Default::default(), )*
                    $( $field: value(keys!(@default $default)), )+
                }
            }
        }

        impl std::fmt::Debug for $Struct {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut fields = f.debug_struct(stringify!($Struct));
                $( fields.field(stringify!($plain), &self.$plain); )*
                for row in <Self as $crate::key::Keyed>::ROWS {
                    match ((row.show)(self), row.key.secret) {
                        (Some(_), true) => fields.field(row.key.name, &"(secret)"),
                        (value, _) => fields.field(row.key.name, &value),
                    };
                }
                fields.finish()
            }
        }
    };

    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $key:literal) => { $key };
    (@default unset) => { None };
    (@default $text:literal) => { Some($text) };
    (@reload reload) => { true };
    (@reload boot) => { false };
    (@acts) => { None };
    (@idle $why:literal) => { Some($why) };
    (@secret) => { false };
    (@secret secret) => { true };
    (@secret own) => { false };
    (@own) => { false };
    (@own secret) => { false };
    (@own own) => { true };
}
pub(crate) use keys;
