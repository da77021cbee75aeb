//! The name servers of a `resolv.conf`, which is read again when it has changed.
//!
//! Like the C library, Weir uses what it understands of the file, and a name server on this machine
//! if the file names none.

use std::{
    fs,
    net::Ipv4Addr,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Mutex,
};

use hickory_resolver::{
    TokioResolver,
    config::{LookupIpStrategy, ResolveHosts, ResolverConfig, ResolverOpts},
    net::runtime::TokioRuntimeProvider,
    proto::rr::Name,
    system_conf,
};

use crate::{exchange::hub::lock, log, warning};

/// A file, as the C library recognises it: device, number, length, and the times of the last changes
/// of contents and owner. `None`: it cannot be found.
type Stamp = Option<(u64, u64, u64, (i64, i64), (i64, i64))>;

pub(super) struct Servers {
    path: PathBuf,
    known: Mutex<Option<(Stamp, TokioResolver)>>,
}

impl Servers {
    pub(super) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), known: Mutex::default() }
    }

    /// Returns a resolver that asks the name servers of the file as it is now.
    ///
    /// # Errors
    /// When the resolver cannot be made.
    pub(super) fn resolver(&self) -> Result<TokioResolver, String> {
        let stamp = stamp_of(&self.path);
        let mut known = lock(&self.known);
        match &*known {
            Some((of, resolver)) if *of == stamp => return Ok(resolver.clone()),
            Some(_) => log!("{} has changed and is read again", self.path.display()),
            None => {}
        }
        let (config, mut options) = read(&self.path);
        // `names.rs` caches the answers, and `hosts.rs` has been asked.
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        let provider = TokioRuntimeProvider::default();
        let builder = TokioResolver::builder_with_config(config, provider).with_options(options);
        let resolver = builder.build().map_err(|error| error.to_string())?;
        *known = Some((stamp, resolver.clone()));
        Ok(resolver)
    }
}

fn stamp_of(path: &Path) -> Stamp {
    let file = fs::metadata(path).ok()?;
    let (modified, changed) =
        ((file.mtime(), file.mtime_nsec()), (file.ctime(), file.ctime_nsec()));
    Some((file.dev(), file.ino(), file.size(), modified, changed))
}

fn read(path: &Path) -> (ResolverConfig, ResolverOpts) {
    let text = config::read_file(path).unwrap_or_else(|error| {
        warning!("{}: {error}; asking a name server on this machine", path.display());
        Vec::new()
    });
    let (text, invalid) = understood(&String::from_utf8_lossy(&text));
    for word in invalid {
        warning!("{}: \"{word}\" in the list search is no domain, and is ignored", path.display());
    }
    let local = format!("{text}\nnameserver {}\n", Ipv4Addr::LOCALHOST);
    let read = system_conf::parse_resolv_conf(text);
    // It names no server.
    read.or_else(|_| system_conf::parse_resolv_conf(local)).unwrap_or_default()
}

/// Returns the text without words of search lists that are no domains, and these words.
fn understood(text: &str) -> (String, Vec<String>) {
    let mut invalid = Vec::new();
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut words: Vec<_> = line.split_ascii_whitespace().collect();
        if matches!(words.first(), Some(&("search" | "domain"))) {
            words.retain(|word| {
                let is_valid = Name::from_str_relaxed(word).is_ok();
                if !is_valid {
                    invalid.push((*word).to_owned());
                }
                is_valid
            });
        }
        lines.push(words.join(" "));
    }
    (lines.join("\n"), invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(config: &ResolverConfig) -> Vec<String> {
        config.name_servers().iter().map(|server| server.ip.to_string()).collect()
    }

    fn search(config: &ResolverConfig) -> Vec<String> {
        config.search().iter().map(ToString::to_string).collect()
    }

    fn read_text(text: &str) -> (ResolverConfig, ResolverOpts) {
        let path = std::env::temp_dir().join(format!(
            "weir-resolv-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        fs::write(&path, text).unwrap();
        let result = read(&path);
        fs::remove_file(&path).unwrap();
        result
    }

    #[test]
    fn invalid_words_do_not_drop_the_file() {
        let long = "x".repeat(70);
        let (config, options) = read_text(&format!(
            "# by hand\nsearch a.example {long}.example b..c b.example\nnameserver 10.0.0.1\n\
             nameserver nonsense\nfrobnicate 7\noptions ndots:2 timeout:3 nonsense:x\n"
        ));
        assert_eq!(servers(&config), ["10.0.0.1"]);
        assert_eq!(search(&config), ["a.example", "b.example"]);
        assert_eq!((options.ndots, options.timeout.as_secs()), (2, 3));
    }

    #[test]
    fn a_file_without_a_server_stands_for_one_on_this_machine() {
        let (config, _) = read_text("search a.example\n");
        assert_eq!(servers(&config), ["127.0.0.1"]);
        assert_eq!(search(&config), ["a.example"]);
        let (config, _) = read(Path::new("/nonexistent/resolv.conf"));
        assert_eq!(servers(&config), ["127.0.0.1"]);
    }
}
