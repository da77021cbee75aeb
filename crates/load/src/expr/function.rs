//! The functions of expressions, by pgbench's names.

use super::{Expr, Scope};
use crate::value::{Value, ValueError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Abs,
    Debug,
    Double,
    Exp,
    Greatest,
    HashFnv1a,
    HashMurmur2,
    Int,
    Least,
    Ln,
    Mod,
    Permute,
    Pi,
    Power,
    Random,
    RandomExponential,
    RandomGaussian,
    RandomZipfian,
    Sqrt,
}

/// Names, and the least and greatest number of arguments.
const FUNCTIONS: [(&str, Function, usize, usize); 21] = [
    ("abs", Function::Abs, 1, 1),
    ("debug", Function::Debug, 1, 1),
    ("double", Function::Double, 1, 1),
    ("exp", Function::Exp, 1, 1),
    ("greatest", Function::Greatest, 1, usize::MAX),
    ("hash", Function::HashMurmur2, 1, 2),
    ("hash_fnv1a", Function::HashFnv1a, 1, 2),
    ("hash_murmur2", Function::HashMurmur2, 1, 2),
    ("int", Function::Int, 1, 1),
    ("least", Function::Least, 1, usize::MAX),
    ("ln", Function::Ln, 1, 1),
    ("mod", Function::Mod, 2, 2),
    ("permute", Function::Permute, 2, 3),
    ("pi", Function::Pi, 0, 0),
    ("pow", Function::Power, 2, 2),
    ("power", Function::Power, 2, 2),
    ("random", Function::Random, 2, 2),
    ("random_exponential", Function::RandomExponential, 3, 3),
    ("random_gaussian", Function::RandomGaussian, 3, 3),
    ("random_zipfian", Function::RandomZipfian, 3, 3),
    ("sqrt", Function::Sqrt, 1, 1),
];

impl Function {
    /// # Errors
    /// When there is no function with this name, or not with this number of arguments.
    pub(super) fn find(name: &str, arguments: usize) -> Result<Self, String> {
        let found = FUNCTIONS.iter().find(|known| known.0.eq_ignore_ascii_case(name));
        let (name, function, least, most) =
            found.ok_or_else(|| format!("unexpected function name: {name}"))?;
        if !(*least..=*most).contains(&arguments) {
            return Err(format!("unexpected number of arguments: {name}"));
        }
        Ok(*function)
    }

    /// Does it use the variable `default_seed` if it gets no seed?
    pub(super) fn has_seed(self, arguments: usize) -> bool {
        match self {
            Self::HashFnv1a | Self::HashMurmur2 => arguments == 1,
            Self::Permute => arguments == 2,
            _ => false,
        }
    }

    pub(super) fn call(
        self,
        arguments: &[Expr],
        scope: &mut Scope<'_>,
    ) -> Result<Value, ValueError> {
        let mut values = Vec::with_capacity(arguments.len());
        for argument in arguments {
            values.push(argument.value(scope)?);
        }
        if self != Self::Debug && values.contains(&Value::Null) {
            return Ok(Value::Null);
        }
        let double = |at: usize| values[at].double();
        let int = |at: usize| values[at].int();
        Ok(match self {
            Self::Abs => match &values[0] {
                Value::Int(value) => Value::Int(value.wrapping_abs()),
                value => Value::Double(value.double()?.abs()),
            },
            Self::Debug => {
                eprintln!("debug(script): {}", described(&values[0]));
                values.swap_remove(0)
            }
            Self::Double => Value::Double(double(0)?),
            Self::Exp => Value::Double(double(0)?.exp()),
            Self::Ln => Value::Double(double(0)?.ln()),
            Self::Sqrt => Value::Double(double(0)?.sqrt()),
            Self::Pi => Value::Double(std::f64::consts::PI),
            Self::Power => Value::Double(double(0)?.powf(double(1)?)),
            Self::Int => Value::Int(int(0)?),
            Self::Greatest => extreme(&values, f64::max, i64::max)?,
            Self::Least => extreme(&values, f64::min, i64::min)?,
            Self::Mod => match int(1)? {
                0 => return Err(ValueError::new("division by zero")),
                divisor => Value::Int(int(0)?.wrapping_rem(divisor)),
            },
            Self::HashFnv1a => Value::Int(fnv1a(int(0)?, int(1)?)),
            Self::HashMurmur2 => Value::Int(murmur2(int(0)?, int(1)?)),
            Self::Permute => Value::Int(permute(int(0)?, int(1)?, int(2)?)?),
            Self::Random => Value::Int(scope.random.uniform(int(0)?, int(1)?)?),
            Self::RandomExponential => {
                Value::Int(scope.random.exponential(int(0)?, int(1)?, double(2)?)?)
            }
            Self::RandomGaussian => {
                Value::Int(scope.random.gaussian(int(0)?, int(1)?, double(2)?)?)
            }
            Self::RandomZipfian => {
                Value::Int(scope.random.zipfian(int(0)?, int(1)?, double(2)?)?)
            }
        })
    }
}

fn described(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => format!("boolean {value}"),
        Value::Int(_) => format!("int {value}"),
        Value::Double(_) => format!("double {value}"),
        Value::Text(_) => format!("text {value}"),
    }
}

/// Returns an integer for integers, otherwise a double.
fn extreme(
    values: &[Value],
    of_doubles: fn(f64, f64) -> f64,
    of_ints: fn(i64, i64) -> i64,
) -> Result<Value, ValueError> {
    let (first, rest) = values.split_first().ok_or(ValueError::new("no argument"))?;
    if values.iter().all(|value| matches!(value, Value::Int(_))) {
        return rest
            .iter()
            .try_fold(first.int()?, |chosen, value| Ok(of_ints(chosen, value.int()?)))
            .map(Value::Int);
    }
    rest.iter()
        .try_fold(first.double()?, |chosen, value| Ok(of_doubles(chosen, value.double()?)))
        .map(Value::Double)
}

/// Fowler, Noll and Vo's hash of the eight bytes, the lowest first; the seed changes its basis.
fn fnv1a(value: i64, seed: i64) -> i64 {
    let basis = 0xcbf2_9ce4_8422_2325 ^ seed.cast_unsigned();
    let hash = value
        .to_le_bytes()
        .iter()
        .fold(basis, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    hash.cast_signed()
}

/// Appleby's MurmurHash2, its 64-bit form, of the eight bytes.
fn murmur2(value: i64, seed: i64) -> i64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let mut word = value.cast_unsigned().wrapping_mul(M);
    word ^= word >> 47;
    word = word.wrapping_mul(M);
    let mut hash = seed.cast_unsigned() ^ 8u64.wrapping_mul(M);
    hash = (hash ^ word).wrapping_mul(M);
    hash ^= hash >> 47;
    hash = hash.wrapping_mul(M);
    (hash ^ (hash >> 47)).cast_signed()
}

/// Returns the position of `value` in the permutation of `size` numbers for this seed. It uses four
/// rounds of a Feistel network over the next power of four, repeated until the result is below
/// `size`. The order is not pgbench's.
fn permute(value: i64, size: i64, seed: i64) -> Result<i64, ValueError> {
    if size <= 0 {
        return Err(ValueError::new("permute size parameter must be greater than zero"));
    }
    let bits = (64 - (size - 1).leading_zeros()).div_ceil(2).max(1);
    let mask = (1u64 << bits) - 1;
    let mut at = value.rem_euclid(size).cast_unsigned();
    loop {
        let (mut left, mut right) = (at >> bits, at & mask);
        for round in 0..4 {
            let mixed = murmur2(right.cast_signed(), seed.wrapping_add(round)).cast_unsigned();
            (left, right) = (right, left ^ (mixed & mask));
        }
        at = (left << bits) | right;
        if at < size.cast_unsigned() {
            return Ok(at.cast_signed());
        }
    }
}
