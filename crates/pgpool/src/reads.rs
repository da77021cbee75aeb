//! The databases, and their reads on standbys.

use crate::cluster::Mode;
use crate::conf::Broken;
use crate::convert::Work;
use crate::lists::{self, Target};
use crate::table::Part;
use crate::toml::Toml;
use crate::values::seconds;

/// These names are those of the console.
const CONSOLES: [&str; 2] = ["pgbouncer", "weir"];

/// The keys of an entry of `[databases]` for reads on standbys.
#[derive(Clone, Debug, Default)]
struct Reads {
    balance: Option<&'static str>,
    after_write: Option<&'static str>,
    max_lag: Option<u64>,
    staleness: Option<String>,
    primary_names: Vec<String>,
    standby_functions: Vec<String>,
    primary_texts: Vec<String>,
    primary_applications: Vec<String>,
}

impl Reads {
    fn write(&self, toml: &mut Toml) {
        toml.text("reads", "standby");
        for (key, word) in [("balance", self.balance), ("read_after_write", self.after_write)] {
            if let Some(word) = word {
                toml.text(key, word);
            }
        }
        if let Some(bytes) = self.max_lag {
            toml.bare("max_lag_bytes", bytes);
        }
        if let Some(time) = &self.staleness {
            toml.bare("max_staleness", time);
        }
        let lists = [
            ("primary_names", &self.primary_names),
            ("standby_functions", &self.standby_functions),
            ("primary_texts", &self.primary_texts),
            ("primary_applications", &self.primary_applications),
        ];
        for (key, values) in lists {
            if !values.is_empty() {
                toml.list(key, values);
            }
        }
    }
}

impl Work<'_> {
    /// Writes the databases of a cluster.
    pub(crate) fn databases(&mut self, cluster: &str, has_standbys: bool) -> Result<(), Broken> {
        let is_balanced = self.settings.switch("load_balance_mode")?.unwrap_or(true);
        let has_reads = is_balanced && has_standbys && self.mode == Mode::Streaming;
        self.toml.table("databases", "*");
        self.toml.text("cluster", cluster);
        if !has_reads || self.is_asking {
            self.without_reads(is_balanced);
            return Ok(());
        }
        let reads = self.reads()?;
        reads.write(&mut self.toml);
        self.preferred_databases(cluster, &reads);
        self.preferred_users();
        Ok(())
    }

    fn without_reads(&mut self, is_balanced: bool) {
        match (is_balanced, self.is_asking) {
            (true, true) => {
                let why = "with auth_type = server, reads stay at the primary";
                self.say("load_balance_mode", Part::Without, why);
            }
            (true, false) => self.say("load_balance_mode", Part::Without, "there are no standbys"),
            (false, _) => self.say("load_balance_mode", Part::Kept, ""),
        }
        let names = [
            "statement_level_load_balance",
            "disable_load_balance_on_write",
            "write_function_list",
            "black_function_list",
            "read_only_function_list",
            "white_function_list",
            "primary_routing_query_pattern_list",
            "black_query_pattern_list",
            "user_redirect_preference_list",
            "database_redirect_preference_list",
            "app_name_redirect_preference_list",
            "delay_threshold",
            "delay_threshold_by_time",
        ];
        for name in names {
            self.say(name, Part::Without, "no reads go to standbys");
        }
    }

    fn reads(&mut self) -> Result<Reads, Broken> {
        let mut reads = Reads::default();
        if self.settings.switch("statement_level_load_balance")?.unwrap_or(false) {
            reads.balance = Some("statement");
        }
        reads.after_write = match self.settings.text("disable_load_balance_on_write") {
            Some("off") => Some("off"),
            Some("dml_adaptive_global") => Some("user"),
            Some(_) | None => None,
        };
        if let Some(bytes) = self.settings.number("delay_threshold")? {
            reads.max_lag = Some(bytes.min(u32::MAX.into()));
        }
        let time = self.settings.time("delay_threshold_by_time", 1)?;
        reads.staleness = time.filter(|time| *time > 0).map(seconds);
        if time == Some(0) {
            let why = "there is still a limit: the default of `max_staleness`, 1 s";
            self.say("delay_threshold_by_time", Part::Changed, why);
        }
        reads.primary_names =
            self.list(&["write_function_list", "black_function_list"], ',', lists::function);
        reads.standby_functions =
            self.list(&["read_only_function_list", "white_function_list"], ',', lists::function);
        let texts = ["primary_routing_query_pattern_list", "black_query_pattern_list"];
        reads.primary_texts = self.list(&texts, ';', lists::pattern);
        reads.primary_applications = self.preferred_applications();
        Ok(reads)
    }

    /// Converts the items of the first list that is set. A note names those that cannot be converted.
    fn list(
        &mut self,
        names: &[&str],
        separator: char,
        convert: fn(&str) -> Option<String>,
    ) -> Vec<String> {
        let set = names.iter().find_map(|name| Some((*name, self.settings.text(name)?)));
        let Some((name, text)) = set else { return Vec::new() };
        let mut converted = Vec::new();
        let mut refused = Vec::new();
        for item in lists::items(text, separator) {
            match convert(item) {
                Some(item) if converted.contains(&item) => {}
                Some(item) => converted.push(item),
                None => refused.push(format!("{item:?}")),
            }
        }
        self.refused(name, &refused, converted.is_empty());
        converted
    }

    fn refused(&mut self, name: &str, refused: &[String], is_all: bool) {
        if refused.is_empty() {
            return;
        }
        let why = format!("not converted: {}", refused.join(", "));
        self.note(format!("{name}: {why}"));
        if is_all {
            self.say(name, Part::Without, why);
        }
    }

    fn preferred_applications(&mut self) -> Vec<String> {
        const NAME: &str = "app_name_redirect_preference_list";
        let text = self.settings.text(NAME).unwrap_or_default().to_owned();
        let (mut patterns, mut refused) = (Vec::new(), Vec::new());
        for item in lists::preferences(&text) {
            let pattern = item.as_ref().ok().filter(|it| it.target == Target::Primary);
            match (pattern.and_then(|it| lists::pattern(it.regex)), item) {
                (Some(pattern), Ok(item)) if !item.has_ratio => patterns.push(pattern),
                (_, Ok(item)) => refused.push(format!("{:?}", item.text)),
                (_, Err(item)) => refused.push(format!("{item:?}")),
            }
        }
        self.refused(NAME, &refused, patterns.is_empty());
        patterns
    }

    fn preferred_databases(&mut self, cluster: &str, reads: &Reads) {
        const NAME: &str = "database_redirect_preference_list";
        let text = self.settings.text(NAME).unwrap_or_default().to_owned();
        let (names, refused) = named(&text);
        for (name, target) in &names {
            self.toml.table("databases", name);
            self.toml.text("cluster", cluster);
            match target {
                Target::Standby => reads.write(&mut self.toml),
                Target::Primary | Target::Node(_) => self.toml.text("reads", "primary"),
            }
        }
        self.refused(NAME, &refused, names.is_empty());
    }

    fn preferred_users(&mut self) {
        const NAME: &str = "user_redirect_preference_list";
        let text = self.settings.text(NAME).unwrap_or_default().to_owned();
        let (names, refused) = named(&text);
        for (name, target) in &names {
            self.toml.table("users", name);
            let reads = if *target == Target::Standby { "standby" } else { "primary" };
            self.toml.text("reads", reads);
        }
        self.refused(NAME, &refused, names.is_empty());
    }
}

/// Returns the items that are a name and a role, and the others.
fn named(list: &str) -> (Vec<(String, Target)>, Vec<String>) {
    let (mut names, mut refused): (Vec<(String, Target)>, _) = (Vec::new(), Vec::new());
    for item in lists::preferences(list) {
        let item = match item {
            Ok(item) => item,
            Err(text) => {
                refused.push(format!("{text:?}"));
                continue;
            }
        };
        let name = lists::name(item.regex).filter(|name| !CONSOLES.contains(name));
        let is_role = !matches!(item.target, Target::Node(_)) && !item.has_ratio;
        match name.filter(|_| is_role) {
            // The first one counts.
            Some(name) if names.iter().any(|(earlier, _)| earlier == name) => {}
            Some(name) => names.push((name.to_owned(), item.target)),
            None => refused.push(format!("{:?}", item.text)),
        }
    }
    (names, refused)
}
