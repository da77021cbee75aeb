//! Reads the catalogs of the databases whose reads may run on standbys, and keeps the names that need
//! the primary (`sql::Catalog`).
//!
//! They are read again when a client has changed the schema through Weir, or may have changed it
//! unseen (in a function), and every `catalog_refresh`. A digest of the catalogs shows first whether anything has changed. After a
//! change, workers send all reads to the primary until the catalogs were read.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use config::Cluster as Configured;
use engine::{ids::Micros, routing::Place, routing::rules::Catalog as Dangerous};
use sql::{CHANGES, Catalog, CatalogPart, Lists};
use tokio::{
    task::spawn_blocking,
    time::{sleep, timeout},
};
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow};

use super::{
    Watched,
    node::{self, Failure},
};
use crate::{
    cold::controller::Controller,
    exchange::{hub::lock, mail::ShellMail},
    log, warning,
};

/// The time between two looks at the databases.
const TICK: Duration = Duration::from_millis(100);
/// Reading the catalogs of a large database takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause after a failure.
const RETRY: Micros = 1_000_000;

/// After a transaction that may have changed the schema unseen, the catalogs are not checked before
/// this multiple of the time that a check takes.
const DOUBT_FACTOR: u64 = 20;

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Is any role's transaction in this database SERIALIZABLE by default?
const SERIALIZABLE: &str = "SELECT \
    pg_catalog.current_setting('default_transaction_isolation') = 'serializable' OR EXISTS (SELECT \
    FROM pg_catalog.pg_db_role_setting s CROSS JOIN pg_catalog.unnest(s.setconfig) AS c(line) \
    WHERE s.setdatabase IN (0, (SELECT d.oid FROM pg_catalog.pg_database d \
    WHERE d.datname = pg_catalog.current_database())) \
    AND pg_catalog.lower(c.line) = 'default_transaction_isolation=serializable')";

/// Counts the views of the process.
static VIEWS: AtomicU64 = AtomicU64::new(0);

/// A database with reads on standbys.
#[derive(Clone, PartialEq, Eq)]
struct Target {
    /// Its name on the server.
    dbname: String,
    lists: Lists,
}

/// The state of a database.
struct Known {
    /// The target that was read last.
    target: Option<Target>,
    catalog: Option<Arc<Dangerous>>,
    digest: String,
    read_at: Micros,
    /// The time that the last check took, of those that found no change.
    took: Micros,
    /// Not before this moment; 0 = at once.
    retry_at: Micros,
    has_failed: bool,
}

/// Keeps the names of all databases of a cluster, forever.
pub(super) async fn keep(controller: Controller, watched: Arc<Watched>) {
    let mut known: BTreeMap<String, Known> = BTreeMap::new();
    loop {
        sleep(TICK).await;
        let databases = databases(&controller, &watched);
        known.retain(|name, _| databases.contains_key(name));
        for (name, target) in databases {
            let own = known.entry(name.clone()).or_insert_with(|| Known {
                target: None,
                catalog: controller.0.shared.hub.switches().catalog(&name).cloned(),
                digest: String::new(),
                read_at: 0,
                took: 0,
                retry_at: 0,
                has_failed: false,
            });
            let now = controller.now();
            let is_other = own.target.as_ref() != Some(&target);
            let is_due = is_other || own.is_due(&controller, &watched.configured, now);
            if is_due && now >= own.retry_at {
                refresh(&controller, &watched, &name, target, own).await;
            }
        }
    }
}

impl Known {
    fn is_due(&self, controller: &Controller, configured: &Configured, now: Micros) -> bool {
        let refresh = configured.catalog_refresh.as_micros() as Micros;
        let generation = controller.0.shared.hub.schema();
        let since = now.saturating_sub(self.read_at);
        // Many doubtful transactions cost the primary a twentieth of a processor.
        let may_check = since >= self.took.saturating_mul(DOUBT_FACTOR);
        self.catalog
            .as_ref()
            .is_none_or(|catalog| !catalog.is_of(generation) || catalog.is_doubted() && may_check)
            || since >= refresh
    }
}

/// Returns the databases that have pools with reads on standbys of this cluster.
fn databases(controller: &Controller, watched: &Watched) -> BTreeMap<String, Target> {
    let mut found = BTreeMap::new();
    if watched.rest(controller).is_none() {
        return found;
    }
    let config = controller.config();
    for pool in controller.0.shared.hub.pools() {
        let pool = lock(&pool);
        let settings = &pool.settings;
        let is_routed = settings.reads.is_some() && pool.key.place == Place::Writer;
        if is_routed && settings.cluster.as_ref() == Some(&watched.name) {
            let Some(database) = config.database(&pool.key.database) else { continue };
            let lists = Lists {
                standby_functions: database.standby_functions.clone(),
                primary_names: database.primary_names.clone(),
            };
            let dbname = settings.database_name().to_owned();
            found.entry(pool.key.database.clone()).or_insert(Target { dbname, lists });
        }
    }
    found
}

async fn refresh(
    controller: &Controller,
    watched: &Watched,
    name: &str,
    target: Target,
    known: &mut Known,
) {
    let primary = lock(&watched.cluster).primary().ok();
    let Some(primary) = primary else { return };
    // A change from now on may be missing.
    let as_of = controller.now();
    let generation = controller.0.shared.hub.schema();
    let same = known.catalog.as_ref().filter(|_| known.target.as_ref() == Some(&target));
    let before = same.map(|catalog| (&*known.digest, catalog.has_serializable));
    let load = load(controller, watched, usize::from(primary.0), &target, before, generation);
    let loaded = match timeout(PATIENCE, load).await {
        Ok(loaded) => loaded,
        Err(_) => Err(Failure::Unexpected("reading takes more than a minute".to_owned())),
    };
    known.read_at = controller.now();
    match loaded {
        Ok(None) => {
            if let Some(catalog) = &known.catalog {
                catalog.confirm(generation);
                catalog.check(as_of);
            }
            known.took = known.read_at.saturating_sub(as_of);
        }
        Ok(Some((digest, catalog))) => {
            log!(
                "cluster {}: database {name} has {} names whose reads need the primary",
                watched.name,
                catalog.view.len()
            );
            let catalog = match &known.catalog {
                Some(earlier) => catalog.after(earlier),
                None => catalog,
            };
            catalog.check(as_of);
            let catalog = Arc::new(catalog);
            (known.digest, known.catalog) = (digest, Some(Arc::clone(&catalog)));
            known.target = Some(target);
            let shared = &controller.0.shared;
            let _ = shared.hub.switch(|switches| {
                switches.set_catalog(name, catalog);
                Ok::<(), ()>(())
            });
            shared.tell_all(|| ShellMail::Review);
        }
        Err(failure) => {
            known.retry_at = known.read_at + RETRY;
            if !std::mem::replace(&mut known.has_failed, true) {
                let why = failure.text();
                warning!(
                    "cluster {}: the catalogs of database {name} cannot be read: {why}; \
                    its reads run on the primary. Role {} needs to connect to it",
                    watched.name,
                    watched.configured.user
                );
            }
            return;
        }
    }
    (known.has_failed, known.retry_at) = (false, 0);
}

/// Returns the digest and the names; None if they are as before.
async fn load(
    controller: &Controller,
    watched: &Watched,
    primary: usize,
    target: &Target,
    before: Option<(&str, bool)>,
    generation: u64,
) -> Result<Option<(String, Dangerous)>, Failure> {
    let kept = node::open(controller, watched, primary, &target.dbname).await?;
    let loaded = load_on(&kept.client, target, before, generation).await;
    // Reading may write to the log (it prunes pages), which PostgreSQL flushes after a COMMIT alone.
    rows(&kept.client, "COMMIT").await?;
    loaded
}

/// Does so on this connection, in a transaction that stays open.
async fn load_on(
    client: &Client,
    target: &Target,
    before: Option<(&str, bool)>,
    generation: u64,
) -> Result<Option<(String, Dangerous)>, Failure> {
    rows(client, BEGIN).await?;
    let mut digest = value(client, CHANGES).await?;
    let tables = match target.lists.name_relations() {
        true => rows(client, CatalogPart::Tables.query()).await?,
        false => Vec::new(),
    };
    for name in tables.iter().filter_map(|row| row.get(1)) {
        // A name cannot contain a zero byte.
        digest.push('\0');
        digest.push_str(name);
    }
    let has_serializable = value(client, SERIALIZABLE).await? == "t";
    if before == Some((&digest, has_serializable)) {
        return Ok(None);
    }
    let mut all = vec![(CatalogPart::Tables, tables)];
    for part in CatalogPart::ALL {
        all.push((part, rows(client, part.query()).await?));
    }
    let lists = target.lists.clone();
    let view = spawn_blocking(move || {
        let mut catalog = Catalog::new(&lists);
        for (part, rows) in &all {
            for row in rows {
                let row: Vec<_> = (0..row.len()).map(|at| row.get(at)).collect();
                catalog.add(*part, &row)?;
            }
        }
        Ok::<_, sql::BadRow>(catalog.view())
    });
    let Ok(Ok(view)) = view.await else {
        return Err(Failure::Unexpected("a row of the catalogs is unknown".to_owned()));
    };
    let number = VIEWS.fetch_add(1, Ordering::Relaxed) + 1;
    Ok(Some((digest, Dangerous::new(view, number, has_serializable, generation))))
}

async fn rows(client: &Client, query: &str) -> Result<Vec<SimpleQueryRow>, Failure> {
    let messages = client.simple_query(query).await.map_err(Failure::Postgres)?;
    let rows = messages.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    Ok(rows.collect())
}

async fn value(client: &Client, query: &str) -> Result<String, Failure> {
    let rows = rows(client, query).await?;
    Ok(rows.first().and_then(|row| row.get(0)).unwrap_or_default().to_owned())
}
