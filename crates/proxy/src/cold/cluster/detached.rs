//! The standbys that an operator has taken out of use (DETACH): an intent, which no fact ends. They are
//! kept in a file beside the pidfile, so that they hold for the next process as well.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use ::cluster::NodeId;
use config::{Global, in_words};

use super::{Watched, act, judged};
use crate::{cold::controller::Controller, exchange::hub::lock, warning};

/// The maximum length of the file, in bytes.
const FILE_LEN_MAX: u64 = 64 << 10;

/// Cluster and node of each.
type Names = BTreeSet<(String, String)>;

#[derive(Debug, Default)]
pub(super) struct Detached {
    names: Mutex<Names>,
    /// They are from the process before an online restart.
    is_handed_over: bool,
}

impl Detached {
    /// `handed_over`: by the process before an online restart.
    pub(super) fn new(handed_over: Option<Vec<(String, String)>>) -> Self {
        let is_handed_over = handed_over.is_some();
        let names = handed_over.unwrap_or_default().into_iter().collect();
        Self { names: Mutex::new(names), is_handed_over }
    }

    pub(super) fn names(&self) -> Vec<(String, String)> {
        lock(&self.names).iter().cloned().collect()
    }

    pub(super) fn contains(&self, cluster: &str, node: &str) -> bool {
        lock(&self.names).contains(&(cluster.to_owned(), node.to_owned()))
    }

    /// Reads the file, if there is a pidfile. After an online restart it has the file follow instead.
    pub(super) fn load(&self, global: &Global) {
        let Some(path) = path(global) else { return };
        let mut own = lock(&self.names);
        if self.is_handed_over {
            if let Err(error) = write(&path, &own) {
                let (path, why) = (path.display(), in_words(&error));
                warning!("cannot write {path}: {why}; DETACH does not hold over a restart");
            }
            return;
        }
        match read(&path) {
            Ok(names) => *own = names,
            Err(error) => {
                let (path, why) = (path.display(), in_words(&error));
                warning!("cannot read {path}: {why}; no standby is detached");
            }
        }
    }

    /// Changes the file first, so that what is in force is in the file.
    fn set(&self, name: (String, String), is_detached: bool, global: &Global) -> io::Result<()> {
        let mut own = lock(&self.names);
        let mut names = own.clone();
        match is_detached {
            true => names.insert(name),
            false => names.remove(&name),
        };
        match path(global) {
            Some(path) => write(&path, &names)?,
            None => {
                warning!("DETACH and ATTACH do not hold over a restart, because pidfile is not set")
            }
        }
        *own = names;
        Ok(())
    }
}

/// Returns the file's path; none without a pidfile.
fn path(global: &Global) -> Option<PathBuf> {
    let pidfile = &global.pidfile;
    (!pidfile.is_empty()).then(|| PathBuf::from(format!("{pidfile}.detached")))
}

fn read(path: &Path) -> io::Result<Names> {
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Names::new()),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_LEN_MAX {
        return Err(io::Error::other(format!("longer than {} KiB", FILE_LEN_MAX >> 10)));
    }
    serde_json::from_slice(&bytes).map_err(io::Error::other)
}

/// Replaces the file as a whole, or removes it if there is nothing to keep.
fn write(path: &Path, names: &Names) -> io::Result<()> {
    if names.is_empty() {
        return remove(path);
    }
    let new = path.with_extension("detached.new");
    // It may be left from a process that was killed.
    remove(&new)?;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(&serde_json::to_vec(names).map_err(io::Error::other)?)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Removes a file, if it exists.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

impl Controller {
    /// DETACH and ATTACH.
    ///
    /// # Errors
    /// When there is no such node, it is the primary, or the file cannot be written.
    pub(crate) async fn set_detached(
        &self,
        cluster: &str,
        node: &str,
        is_detached: bool,
    ) -> Result<(), String> {
        let watched = self.watched(cluster)?;
        let id = watched.node_called(node)?;
        if is_detached {
            watched.refuse_detach(id)?;
        }
        let (controller, name) = (self.clone(), (cluster.to_owned(), node.to_owned()));
        // The console's client may leave, and the change goes on.
        let work = tokio::spawn(async move { controller.detach(name, is_detached).await });
        work.await.unwrap_or_else(|error| Err(error.to_string()))
    }

    async fn detach(&self, name: (String, String), is_detached: bool) -> Result<(), String> {
        let (controller, cluster) = (self.clone(), name.0.clone());
        let kept = tokio::task::spawn_blocking(move || {
            let global = &controller.config().global;
            controller.0.clusters.detached.set(name, is_detached, global)
        });
        let kept = kept.await.map_err(|error| error.to_string())?;
        kept.map_err(|error| format!("the file of detached nodes: {}", in_words(&error)))?;
        // A reload may have come meanwhile.
        let watched = self.watched(&cluster)?;
        watched.mark_detached(&self.0.clusters.detached);
        let changes = judged(self, &watched, &mut lock(&watched.cluster));
        changes.into_iter().for_each(|change| act(self, &watched, change));
        Ok(())
    }

    /// Returns all clusters, in the order of their names.
    pub(super) fn all_watched(&self) -> Vec<Arc<Watched>> {
        lock(&self.0.clusters.watched).values().cloned().collect()
    }

    /// Returns a cluster by its name.
    pub(super) fn watched(&self, cluster: &str) -> Result<Arc<Watched>, String> {
        let watched = lock(&self.0.clusters.watched).get(cluster).cloned();
        watched.ok_or_else(|| match self.config().clusters.contains_key(cluster) {
            true => format!("cluster {cluster} is not watched yet"),
            false => format!("no such cluster: {cluster}"),
        })
    }
}

impl Watched {
    /// Returns why a node is not detached now.
    fn refuse_detach(&self, id: NodeId) -> Result<(), String> {
        let (cluster, node) = (&self.name, &self.configured.nodes[usize::from(id.0)].name);
        if self.fleet.is_some() {
            return Err(format!(
                "cluster {cluster} has etcd, and DETACH would be known to this Weir only: give node \
                 {node} the weight *0 in nodes of all members, so that it gets no reads"
            ));
        }
        if lock(&self.cluster).last_primary() == Some(id) {
            return Err(format!(
                "node {node} is the primary of cluster {cluster}, and a primary is not detached: \
                 make another node the primary with SWITCHOVER first"
            ));
        }
        if self.is_changing() {
            return Err(format!(
                "the primary of cluster {cluster} is being changed: try again later"
            ));
        }
        if lock(&self.past).ordered() == Some(id) {
            return Err(format!("node {node} was ordered to promote itself and may still do so"));
        }
        Ok(())
    }

    /// Returns a node by its name.
    pub(super) fn node_called(&self, name: &str) -> Result<NodeId, String> {
        let nodes = &self.configured.nodes;
        let at = nodes.iter().position(|node| node.name == name).ok_or_else(|| {
            let names: Vec<_> = nodes.iter().map(|node| node.name.as_str()).collect();
            format!("cluster {} has no node {name}: it has {}", self.name, names.join(", "))
        })?;
        Ok(NodeId(at as u16))
    }

    /// Tells the rules which nodes are detached. The next judgement follows them.
    pub(super) fn mark_detached(&self, detached: &Detached) {
        let mut cluster = lock(&self.cluster);
        for (at, node) in self.configured.nodes.iter().enumerate() {
            let is_detached = detached.contains(&self.name, &node.name);
            cluster.set_detached(NodeId(at as u16), is_detached);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_file_has_what_is_detached_and_is_gone_without() {
        let folder = std::env::temp_dir().join(format!("weir-detached-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let pidfile = folder.join("weir.pid").display().to_string();
        let global = Global { pidfile, ..Global::default() };
        let name = |node: &str| ("main".to_owned(), node.to_owned());
        let first = Detached::default();
        first.load(&global);
        first.set(name("b"), true, &global).unwrap();
        first.set(name("c"), true, &global).unwrap();
        first.set(name("b"), false, &global).unwrap();
        let second = Detached::default();
        second.load(&global);
        assert!(second.contains("main", "c") && !second.contains("main", "b"));
        assert!(!second.contains("other", "c"));
        // After an online restart, what was handed over is in force, and the file follows.
        let handed_over = Detached::new(Some(vec![name("d")]));
        handed_over.load(&global);
        assert!(handed_over.contains("main", "d") && !handed_over.contains("main", "c"));
        second.load(&global);
        assert_eq!(second.names(), [name("d")]);
        let file = path(&global).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&file, " ".repeat(FILE_LEN_MAX as usize + 1)).unwrap();
        assert!(read(&file).unwrap_err().to_string().starts_with("longer than 64 KiB"));
        second.set(name("d"), false, &global).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        // If it cannot be written, the intent is not in force.
        fs::remove_dir_all(&folder).unwrap();
        second.set(name("c"), true, &global).unwrap_err();
        assert!(!second.contains("main", "c"));
    }
}
