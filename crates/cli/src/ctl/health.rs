//! `weir ctl health [CHECK]`: a health check as an exit status, for keepalived and for scripts.

use load::Outcome;

/// The command of the console that has the checks.
pub(super) const COMMAND: &str = "SHOW HEALTH";
/// The check if none is named.
const USUAL: &str = "ready";

/// The result of a check, with a line that says it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Health {
    pub(super) is_passed: bool,
    pub(super) line: String,
}

/// Returns the name of the check, if these words are `health` or `health CHECK`.
pub(super) fn check(words: &[String]) -> Option<&str> {
    match words {
        [health] if health.eq_ignore_ascii_case("health") => Some(USUAL),
        [health, check] if health.eq_ignore_ascii_case("health") => Some(check),
        _ => None,
    }
}

/// Finds a check in the rows of SHOW HEALTH.
///
/// # Errors
/// There is no such check.
pub(super) fn judge(outcomes: &[Outcome], check: &str) -> Result<Health, String> {
    let rows = outcomes.first().map(|outcome| outcome.rows.as_slice()).unwrap_or_default();
    let cell =
        |row: &[Option<String>], at: usize| row.get(at).cloned().flatten().unwrap_or_default();
    let Some(row) = rows.iter().find(|row| cell(row, 0) == check) else {
        let names: Vec<_> = rows.iter().map(|row| cell(row, 0)).collect();
        return Err(format!("there is no check \"{check}\"; the checks are {}", names.join(", ")));
    };
    let is_passed = cell(row, 1) == "yes";
    let why = if is_passed { "ok".to_owned() } else { cell(row, 2) };
    Ok(Health { is_passed, line: format!("{check}: {why}\n") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_check_is_found_by_its_name() {
        assert_eq!(check(&words("health")), Some("ready"));
        assert_eq!(check(&words("HEALTH primary/main")), Some("primary/main"));
        assert_eq!(check(&words("SHOW HEALTH")), None);
        assert_eq!(check(&words("health primary main")), None);
        let row = |cells: [&str; 3]| cells.map(|cell| Some(cell.to_owned())).to_vec();
        let rows = vec![row(["ready", "yes", ""]), row(["primary", "no", "none answers"])];
        let outcomes = [Outcome { rows, ..Outcome::default() }];
        let health = judge(&outcomes, "ready").expect("it is there");
        assert_eq!((health.is_passed, &*health.line), (true, "ready: ok\n"));
        let health = judge(&outcomes, "primary").expect("it is there");
        assert_eq!((health.is_passed, &*health.line), (false, "primary: none answers\n"));
        let error = judge(&outcomes, "primary/x").expect_err("it is unknown");
        assert_eq!(error, "there is no check \"primary/x\"; the checks are ready, primary");
    }
}
