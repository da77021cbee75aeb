//! The weight of a pool under a shared limit.

use crate::value::{Kind, Value, ValueError};

/// The largest valid weight.
const WEIGHT_MAX: u16 = 1000;

/// The weight of a database or a user compared with others, 1 to 1,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u16);

impl Weight {
    #[must_use]
    pub fn get(self) -> u32 {
        u32::from(self.0)
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self(1)
    }
}

impl TryFrom<u16> for Weight {
    type Error = ValueError;

    fn try_from(weight: u16) -> Result<Self, Self::Error> {
        if (1..=WEIGHT_MAX).contains(&weight) { Ok(Self(weight)) } else { Err(expected()) }
    }
}

fn expected() -> ValueError {
    ValueError::Number { min: 1, max: WEIGHT_MAX.into() }
}

impl Value for Weight {
    const KIND: Kind = Kind::Integer;

    fn parse(text: &str) -> Result<Self, ValueError> {
        u16::parse(text).map_err(|_| expected())?.try_into()
    }

    fn show(&self) -> Option<String> {
        self.0.show()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_has_its_range() {
        assert_eq!(Weight::parse("1").unwrap(), Weight::default());
        assert_eq!(Weight::parse("1000").unwrap().get(), 1000);
        for bad in ["0", "1001", "-1", "", "x", "70000"] {
            assert!(Weight::parse(bad).is_err(), "{bad}");
        }
    }
}
