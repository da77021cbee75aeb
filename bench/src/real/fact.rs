//! Facts that a row finds besides the figures of its load. A fact may have a goal.

use std::fmt;

/// A kind of additional result, which is a line of the report.
#[derive(Debug, PartialEq)]
pub(super) struct Fact {
    pub(super) key: &'static str,
    pub(super) title: &'static str,
    pub(super) goal: Option<Goal>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "at most {most}"),
            Self::AtLeast(least) => write!(f, "at least {least}"),
        }
    }
}

pub(super) type Facts = Vec<(&'static Fact, f64)>;

pub(super) const fn fact(key: &'static str, title: &'static str) -> Fact {
    Fact { key, title, goal: None }
}

pub(super) const fn bound(key: &'static str, title: &'static str, goal: Goal) -> Fact {
    Fact { key, title, goal: Some(goal) }
}
