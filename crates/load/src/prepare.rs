//! Makes a plan from options: reads scripts, sets variables, refuses contradictions.

use std::{
    fs,
    io::Read as _,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{
    names::{Names, is_name},
    options::Options,
    plan::Plan,
    script::{self, Builtin, Script},
    target::Target,
    value::Value,
};

/// Parsed scripts and their requirements.
pub(crate) struct Scripts {
    pub(crate) scripts: Vec<Script>,
    pub(crate) names: Names,
    pub(crate) statements: usize,
    /// Is a built-in script among them? They need the tables.
    pub(crate) any_builtin: bool,
}

/// # Errors
/// When a script cannot be read or has a mistake.
pub(crate) fn scripts(options: &Options) -> Result<Scripts, String> {
    let mut read =
        Scripts { scripts: Vec::new(), names: Names::default(), statements: 0, any_builtin: false };
    let mut builtins: Vec<&str> = options.builtin.iter().map(String::as_str).collect();
    builtins.extend(options.skip_some_updates.then_some("simple-update"));
    builtins.extend(options.select_only.then_some("select-only"));
    if builtins.is_empty() && options.file.is_empty() {
        builtins.push("tpcb-like");
    }
    for named in builtins {
        let (name, weight) = weighted(named)?;
        let builtin = Builtin::find(name)?;
        read.any_builtin = true;
        read.add(builtin.title, weight, builtin.text)?;
    }
    for named in &options.file {
        let (file, weight) = weighted(named)?;
        read.add(file, weight, &text_of(file)?)?;
    }
    if read.scripts.iter().all(|script| script.weight == 0) {
        return Err("total script weight must not be zero".to_owned());
    }
    Ok(read)
}

impl Scripts {
    fn add(&mut self, name: &str, weight: u32, text: &str) -> Result<(), String> {
        let script = script::parse(name, weight, text, &mut self.names, &mut self.statements);
        self.scripts.push(script.map_err(|error| error.to_string())?);
        Ok(())
    }
}

/// Reads `NAME@WEIGHT`, or a name alone.
fn weighted(text: &str) -> Result<(&str, u32), String> {
    match text.rsplit_once('@') {
        Some((name, weight)) if !name.is_empty() => match weight.parse() {
            Ok(weight) => Ok((name, weight)),
            Err(_) => Err(format!("invalid weight specification: {text}")),
        },
        _ => Ok((text, 1)),
    }
}

fn text_of(file: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("could not read file \"{file}\": {error}");
    if file == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(failed)?;
        return Ok(text);
    }
    fs::read_to_string(file).map_err(failed)
}

/// # Errors
/// When options contradict each other, or a definition has a mistake.
pub(crate) fn plan(
    options: &Options,
    target: &Arc<Target>,
    mut read: Scripts,
    scale: u32,
) -> Result<Plan, String> {
    let clients = options.clients as usize;
    // More threads than clients would have no work.
    let threads = (options.jobs as usize).min(clients);
    let tries_max = options.max_tries.unwrap_or(1);
    if tries_max == 0 && options.latency_limit.is_none() && options.time.is_none() {
        return Err("an unlimited number of transaction tries can only be used with \
                    --latency-limit or a duration (-T)"
            .to_owned());
    }
    let seed = seed(options.random_seed.as_deref())?;
    let mut values = Vec::new();
    for definition in &options.define {
        let (name, value) = definition
            .split_once('=')
            .filter(|(name, _)| is_name(name))
            .ok_or_else(|| format!("invalid variable definition: \"{definition}\""))?;
        values.push((read.names.slot(name), Value::Text(value.into())));
    }
    let mut default = |name: &str, value: i64| {
        let slot = read.names.slot(name);
        if !values.iter().any(|(known, _)| *known == slot) {
            values.push((slot, Value::Int(value)));
        }
    };
    default("scale", scale.into());
    default("random_seed", seed.cast_signed());
    default("default_seed", (seed ^ 0x5851_f42d_4c95_7f2d).cast_signed());
    let mut variables = vec![None; read.names.len()];
    for (slot, value) in values {
        variables[slot] = Some(value);
    }
    let us = |ms: f64| (ms * 1000.0) as u64;
    Ok(Plan {
        target: target.clone(),
        scripts: read.scripts,
        names: read.names,
        variables,
        statements: read.statements,
        mode: options.protocol,
        clients,
        threads,
        transactions: match (options.transactions, options.time) {
            (None, None) => Some(10),
            (transactions, _) => transactions,
        },
        duration_us: options.time.map(|seconds| u64::from(seconds) * 1_000_000),
        pause_us: options.rate.map(|rate| 1e6 * threads as f64 / rate),
        latency_limit_us: options.latency_limit.map(us),
        tries_max,
        reconnects: options.connect,
        by_command: options.report_per_command,
        verbose_errors: options.verbose_errors,
        seed,
    })
}

fn seed(named: Option<&str>) -> Result<u64, String> {
    match named {
        None | Some("time") => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Ok(now.as_nanos() as u64)
        }
        Some("rand") => getrandom::u64().map_err(|error| error.to_string()),
        Some(number) => number.parse().map_err(|_| {
            format!(
                "unrecognized random seed option \"{number}\": expecting an unsigned integer, \
                 \"time\" or \"rand\""
            )
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_stands_behind_the_last_at_sign() {
        assert_eq!(weighted("tpcb-like"), Ok(("tpcb-like", 1)));
        assert_eq!(weighted("a@b.sql@3"), Ok(("a@b.sql", 3)));
        assert!(weighted("a.sql@x").is_err());
    }

    #[test]
    fn a_seed_is_a_number_or_one_of_two_words() {
        assert_eq!(seed(Some("42")), Ok(42));
        assert!(seed(Some("rand")).is_ok() && seed(Some("time")).is_ok());
        assert!(seed(Some("x")).is_err());
    }
}
