//! The logins of clients and operators.

use std::sync::Arc;

use config::PcpUsers;
use config::hba::{Hba, IdentMaps, Method};

use crate::conf::{Broken, Place};
use crate::convert::{TextFile, Work};
use crate::lists::items;
use crate::passwords::Secret;
use crate::table::Part;

impl Work<'_> {
    pub(crate) fn logins(&mut self) -> Result<(), Broken> {
        let is_ruled = self.settings.switch("enable_pool_hba")?.unwrap_or(false);
        let is_clear = self.settings.switch("allow_clear_text_frontend_auth")?.unwrap_or(false);
        self.toml.empty_line();
        let is_md5 = self.users.iter().any(|user| matches!(user.secret, Secret::Md5(_)));
        match (is_ruled, self.from.pool_hba) {
            (true, Some(file)) => self.rules(file)?,
            (true, None) => {
                let item = self.settings.get("enable_pool_hba");
                let why = "the rules are missing; name the file by --pool-hba";
                return Err(item.map_or_else(
                    || Broken::of_file(self.from.name, why),
                    |item| Broken::new(&item.place, why),
                ));
            }
            (false, _) if self.users.is_empty() => self.by_postgresql(),
            (false, _) => {
                self.toml.text("auth_type", if is_md5 { "md5" } else { "scram-sha-256" });
                self.say("enable_pool_hba", Part::Kept, "");
            }
        }
        if is_clear && !self.is_asking {
            let why = "a user that is not in pool_passwd cannot log in; see `auth_query`";
            self.say("allow_clear_text_frontend_auth", Part::Without, why);
        } else if !is_clear {
            self.say("allow_clear_text_frontend_auth", Part::Kept, "");
        }
        if !self.users.is_empty() {
            self.toml.text("auth_file", self.from.auth_file);
        }
        if is_md5 {
            self.note(
                "Users with an MD5 password can log in to PostgreSQL only if it has the same MD5 \
                 password and asks for md5. Put others into the file in clear text, or see auth_query.",
            );
        }
        let mapped: Vec<_> = self
            .users
            .iter()
            .filter(|it| it.backend.is_some())
            .map(|it| it.place.clone())
            .collect();
        for place in mapped {
            self.note(format!(
                "{place}: this user logs in to PostgreSQL by the name that it has at Weir. Another \
                 name is possible with user= and password= of a database."
            ));
        }
        Ok(())
    }

    /// No password is known here, so PostgreSQL is asked.
    fn by_postgresql(&mut self) {
        self.is_asking = true;
        self.toml
            .comment("PostgreSQL checks the passwords of clients. Clients of other machines need");
        self.toml
            .comment("TLS for that, and reads stay at the primary. Use auth_file or auth_query");
        self.toml.comment("instead to have reads on standbys (docs/authentication.md).");
        self.toml.text("auth_type", "server");
        self.note(
            "pool_passwd has no users, so PostgreSQL checks passwords (auth_type = server): clients of \
             other machines need TLS, and reads stay at the primary. Use auth_file or auth_query \
             instead (docs/authentication.md).",
        );
    }

    fn rules(&mut self, file: TextFile<'_>) -> Result<(), Broken> {
        self.toml.text("auth_type", "hba");
        self.toml.text("auth_hba_file", file.name);
        let (rules, warnings) =
            Hba::parse(file.text, &Arc::from(file.name), &IdentMaps::default(), &|_| None);
        for warning in warnings {
            let line = file.text.lines().nth(warning.line.saturating_sub(1)).unwrap_or_default();
            // A line that refuses clients must not vanish: a later one could let them in.
            if line.split_whitespace().any(|word| word == "reject") {
                let place = Place { file: Arc::from(file.name), line: warning.line };
                let why = "this line refuses clients, and Weir does not know its words; write their \
                           networks as numbers";
                return Err(Broken::new(&place, why));
            }
            self.note(format!("{warning}. Weir ignores the line."));
        }
        let has = |is: fn(&Method) -> bool| rules.rules.iter().any(|rule| is(&rule.method));
        if has(|method| matches!(method, Method::Trust)) && self.users.is_empty() {
            self.note(
                "Also a user of a trust rule must be known: add it to auth_file, or see auth_query.",
            );
        }
        if has(|method| matches!(method, Method::Pam(_))) {
            self.note("The service of PAM is pgbouncer, unless the rule has pamservice=\"NAME\".");
        }
        Ok(())
    }

    /// Without users, nobody could log in by PCP.
    pub(crate) fn pcp(&mut self) -> Result<(), Broken> {
        let Some(file) = self.from.pcp_conf else {
            self.without_pcp("pcp.conf is missing, so PCP is off");
            return Ok(());
        };
        let (users, warnings) = PcpUsers::parse(file.text, &Arc::from(file.name));
        for warning in warnings {
            self.note(format!("{warning}. Weir ignores the line."));
        }
        if users.0.is_empty() {
            self.without_pcp("pcp.conf has no users, so PCP is off");
            return Ok(());
        }
        let listen = self.settings.get("pcp_listen_addresses").map_or("localhost", |it| &it.value);
        let listen = items(listen, ',');
        if listen.is_empty() {
            self.without_pcp("it has no address, so PCP is off");
            return Ok(());
        }
        self.toml.empty_line();
        self.toml.bare("pcp_port", self.port("pcp_port", 9898)?);
        self.toml.text("pcp_file", file.name);
        self.toml.list("pcp_listen", &listen);
        // This parameter ends with 4.3.
        let version = if self.settings.get("socket_dir").is_some() { "4.3" } else { "4.4" };
        self.toml.text("pcp_compat", version);
        self.note(format!(
            "pcp_compat is {version}. If your pcp_* tools are of another version, set it: 4.3 for \
             those of 4.3, 4.4 for later ones."
        ));
        Ok(())
    }

    fn without_pcp(&mut self, why: &str) {
        for name in ["pcp_port", "pcp_listen_addresses"] {
            self.say(name, Part::Without, why);
        }
    }
}
