//! Direct pools in all tests (`WEIR_LIBRARY=direct`). Poolers share servers, so each database names
//! the socket of its own pooler.

use std::io::Write as _;
use std::path::Path;
use std::{fs, thread};

use super::{Pooler, Setup};
use crate::binaries::{Flavour, flavour};
use crate::{RawClient, library, postgres};

/// A file beside the logs of `WEIR_SERVER_LOGS`: for each pool, whether it was direct, or why not.
const PATHS: &str = "data-paths";

impl Setup {
    /// Asks for direct pools, unless the test has its own wish.
    pub(super) fn be_direct(&mut self, folder: &Path) {
        let databases = self.own_databases();
        if !library::is_direct() || flavour() != Flavour::Weir || databases.is_empty() {
            return;
        }
        // A test with its own socket tells it to the server.
        if self.ini.has("direct_socket") {
            return;
        }
        let socket = folder.join("direct");
        self.ini.set("direct_socket", socket.display());
        self.ini.set_default("data_path", "direct");
        let Ok(mut superuser) = RawClient::connect_unix(&self.server_folder, self.server_port)
        else {
            return;
        };
        let startup = [("user", "postgres"), ("database", "postgres")];
        if superuser.authenticate(&startup, "").is_err() {
            return;
        }
        for database in databases {
            let socket = socket.display();
            // Some databases are missing on purpose.
            superuser.query(&format!(
                "ALTER DATABASE \"{database}\" SET weir.control_socket = '{socket}'"
            ));
        }
    }

    /// The databases of the server behind this pooler, by the names that the server knows.
    fn own_databases(&self) -> Vec<String> {
        let port = format!("port={}", self.server_port);
        let own = self.ini.databases().filter_map(|(name, connection)| {
            let mut words = connection.split_whitespace();
            let alias = words.clone().find_map(|word| word.strip_prefix("dbname="));
            words.any(|word| word == port).then(|| alias.unwrap_or(name).to_owned())
        });
        own.collect()
    }
}

impl Pooler {
    /// Notes which pools were direct, for the suites that must show something about these.
    pub(super) fn note_data_paths(&mut self) {
        let Some(logs) = postgres::kept_logs().filter(|_| library::is_direct()) else { return };
        if thread::panicking() || !self.is_running() {
            return;
        }
        let Ok(mut console) = self.login("admin", super::CONSOLE, "admin-secret") else { return };
        let pools = console.query("SHOW POOLS EXTENDED");
        let column = |name: &str| pools.columns.iter().position(|known| known == name);
        let (Some(path), Some(why)) = (column("data_path"), column("why")) else { return };
        let file = fs::File::options().create(true).append(true).open(logs.join(PATHS));
        let mut file = file.expect("cannot write beside the logs");
        for row in &pools.rows {
            let word = |at: usize| row[at].as_deref().unwrap_or_default();
            let line = format!("{}\t{}\t{}\n", word(0), word(path), word(why));
            file.write_all(line.as_bytes()).expect("cannot write beside the logs");
        }
    }
}
