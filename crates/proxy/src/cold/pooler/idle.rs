//! Forgets unused pools with their counters, so that memory does not grow with every name that was
//! ever requested. These are the rules:
//!
//! * Databases made from the entry `*`: after `autodb_idle_timeout`, when the whole database is
//!   unused.
//! * The same, if no client has ever logged in: much earlier.
//! * A database that was removed from the configuration: at once.
//! * All others: after `pool_idle_timeout`.
//!
//! Workers know pools by number. A number is reused only when each worker has confirmed twice that
//! it has nothing of the old pool. After the first confirmation it may still read the number once.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use config::Config;
use engine::ids::{Micros, PoolId};
use tokio::{sync::mpsc, time::sleep};

use crate::{
    cold::controller::Controller,
    exchange::{hub::lock, mail::ShellMail},
    log, warning,
};

/// The interval of checks of the pools.
const LOOK: Duration = Duration::from_millis(500);

/// One pool, as it was found.
#[derive(Debug)]
struct Seen {
    id: PoolId,
    database: String,
    user: String,
    /// Since when the pool is unused; None if it is in use.
    unused_since: Option<Micros>,
    was_entered: bool,
    /// Its database is no longer configured.
    is_abandoned: bool,
}

/// Checks pools forever.
pub(super) async fn keep(controller: Controller) {
    let mut since = HashMap::new();
    loop {
        sleep(LOOK).await;
        let seen = look(&controller, &mut since);
        if controller.0.shared.hub.switches().is_halted() {
            continue;
        }
        let config = controller.config();
        let is_paused = |name: &str| controller.0.shared.hub.switches().database(name).paused;
        let due = due(&config, &seen, is_paused, controller.now());
        if !due.is_empty() {
            forget(&controller, &due, &seen, &config).await;
        }
    }
}

/// Returns all pools, with the earlier results in `since`.
fn look(controller: &Controller, since: &mut HashMap<PoolId, Micros>) -> Vec<Seen> {
    let (hub, now) = (&controller.0.shared.hub, controller.now());
    let looked_up = hub.take_lookups();
    let seen = hub.pools().into_iter().map(|pool| {
        let pool = lock(&pool);
        let is_unused = pool.is_unused() && !looked_up.contains(&pool.id);
        Seen {
            id: pool.id,
            database: pool.key.database.clone(),
            user: pool.key.user.clone(),
            unused_since: is_unused.then(|| since.get(&pool.id).copied().unwrap_or(now)),
            was_entered: pool.was_entered,
            is_abandoned: pool.is_abandoned(),
        }
    });
    let seen: Vec<_> = seen.collect();
    *since = seen.iter().filter_map(|pool| Some((pool.id, pool.unused_since?))).collect();
    seen
}

/// Returns the pools whose idle timeout is over.
fn due(
    config: &Config,
    seen: &[Seen],
    is_paused: impl Fn(&str) -> bool,
    now: Micros,
) -> Vec<PoolId> {
    let is_over = |since: Micros, limit: Duration| {
        !limit.is_zero() && u128::from(now.saturating_sub(since)) > limit.as_micros()
    };
    // Since when all pools of a database are unused, and whether a client ever logged in.
    let mut databases: HashMap<&str, (Option<Micros>, bool)> = HashMap::new();
    for pool in seen {
        let (since, was_entered) = databases.entry(&pool.database).or_insert((Some(0), false));
        *since = since.zip(pool.unused_since).map(|(a, b)| a.max(b));
        *was_entered |= pool.was_entered;
    }
    let (auto, any) = (config.global.autodb_idle_timeout, config.global.pool_idle_timeout);
    // Until then, Weir remembers that no server could be opened, so that it does not try all the
    // time.
    let retry = config.global.server_login_retry.max(LOOK);
    let is_due = |pool: &&Seen| {
        let Some(since) = pool.unused_since else { return false };
        let is_auto = !config.databases.contains_key(&pool.database);
        let by_database = is_auto
            && databases.get(pool.database.as_str()).is_some_and(|&(whole, was_entered)| {
                let is_over = |limit| whole.is_some_and(|since| is_over(since, limit));
                is_over(auto) || !was_entered && is_over(retry)
            });
        pool.is_abandoned || !is_paused(&pool.database) && (by_database || is_over(since, any))
    };
    seen.iter().filter(is_due).map(|pool| pool.id).collect()
}

async fn forget(controller: &Controller, due: &[PoolId], seen: &[Seen], config: &Config) {
    let hub = &controller.0.shared.hub;
    // A worker that looked up a pool before the last check has shown by now that it uses it.
    tell_all(controller, &[]).await;
    let gone = hub.unname(due);
    let names = seen.iter().filter(|pool| gone.contains(&pool.id) && !pool.is_abandoned);
    let names: HashSet<_> = names.map(|pool| pool.database.as_str()).collect();
    let left: HashSet<_> =
        seen.iter().filter(|pool| !gone.contains(&pool.id)).map(|pool| &*pool.database).collect();
    let is_dropped = |name: &str| !left.contains(name) && !config.databases.contains_key(name);
    for name in names.iter().filter(|name| is_dropped(name)) {
        warning!(
            "dropping database '{name}' as it does not exist anymore or inactive auto-database"
        );
    }
    for pool in seen.iter().filter(|pool| gone.contains(&pool.id)) {
        if names.contains(&*pool.database) && !is_dropped(&pool.database) {
            log!("cleaning up idle pool: {}/{}", pool.database, pool.user);
        }
    }
    tell_all(controller, &gone).await;
    hub.clear(&gone);
    tell_all(controller, &gone).await;
    hub.reuse(&gone);
}

/// Returns when every worker has forgotten the pools.
async fn tell_all(controller: &Controller, pools: &[PoolId]) {
    let pools: Arc<[PoolId]> = pools.into();
    let (done, mut all_done) = mpsc::unbounded_channel();
    let shared = &controller.0.shared;
    shared.tell_all(|| ShellMail::ForgetPools(Arc::clone(&pools), done.clone()));
    drop(done);
    while all_done.recv().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    use engine::{
        pool::Pool,
        routing::Place,
        settings::{PoolKey, PoolSettings},
        shell::Exchange as _,
    };

    use crate::exchange::mail::{ShellExchange, ShellHub};
    use net::sys::EventFd;

    fn find(exchange: &mut ShellExchange, database: &str) -> PoolId {
        let key = PoolKey { database: database.into(), user: "u".into(), place: Place::Writer };
        let settings = PoolSettings::new(&Config::default(), &config::Database::default(), "u");
        exchange.find_pool(&key, |id| Pool::new(id, key.clone(), Arc::new(settings), 1))
    }

    #[test]
    fn numbers_are_used_again_but_never_those_of_a_pool_in_use() {
        let hub = Arc::new(ShellHub::new([EventFd::new().unwrap()]));
        let mut exchange = ShellExchange::new(Arc::clone(&hub));
        let used = find(&mut exchange, "used");
        exchange.pool(used, |pool| pool.clients += 1);
        for n in 0..1000 {
            let name = format!("auto{n}");
            let id = find(&mut exchange, &name);
            assert_eq!(hub.unname(&[used, id]), [], "just asked for");
            hub.take_lookups();
            assert_eq!(hub.unname(&[used, id]), [id]);
            hub.clear(&[id]);
            exchange.pools_forgotten();
            hub.reuse(&[id]);
            let next = find(&mut exchange, "next");
            assert_eq!(next, id);
            exchange.pool(next, |pool| assert_eq!(pool.key.database, "next"));
            hub.take_lookups();
            assert_eq!(hub.unname(&[next]), [next]);
            hub.clear(&[next]);
            exchange.pools_forgotten();
            hub.reuse(&[next]);
        }
        assert_eq!(hub.slots().len(), 2);
        assert_eq!(find(&mut exchange, "used"), used);
    }

    #[test]
    fn no_server_is_opened_in_a_pool_that_is_no_more() {
        let hub = Arc::new(ShellHub::new([EventFd::new().unwrap()]));
        let mut exchange = ShellExchange::new(Arc::clone(&hub));
        let id = find(&mut exchange, "auto");
        exchange.pool(id, |pool| {
            let database = config::Database::default();
            let mut settings = PoolSettings::new(&Config::default(), &database, "u");
            (settings.min_size, settings.forced_user) = (1, true);
            pool.settings = Arc::new(settings);
            assert!(pool.reserve_spare(0));
            pool.withdraw_opening();
        });
        hub.take_lookups();
        assert_eq!(hub.unname(&[id]), [id]);
        assert!(!exchange.pool(id, |pool| pool.reserve_spare(0)));
        // Nor does a change of the switches open it again.
        hub.switch(|_| Ok::<(), ()>(())).unwrap();
        assert!(!exchange.pool(id, |pool| pool.reserve_spare(0)));
    }

    const SECOND: Micros = 1_000_000;

    fn config(auto: u64, any: u64) -> Config {
        let mut config = Config::default();
        config.global.autodb_idle_timeout = Duration::from_secs(auto);
        config.global.pool_idle_timeout = Duration::from_secs(any);
        config.databases.insert("known".into(), Arc::default());
        config
    }

    fn seen(id: u32, database: &str, unused_since: Option<Micros>) -> Seen {
        let (id, database) = (PoolId(id), database.into());
        let user = "app".to_owned();
        Seen { id, database, user, unused_since, was_entered: true, is_abandoned: false }
    }

    #[test]
    fn a_database_made_from_the_star_goes_as_a_whole_and_others_stay() {
        let all = [
            seen(0, "known", Some(SECOND)),
            seen(1, "a", Some(SECOND)),
            seen(2, "a", Some(3 * SECOND)),
            seen(3, "b", Some(SECOND)),
            seen(4, "b", None),
        ];
        let due = |now| due(&config(5, 0), &all, |_| false, now * SECOND);
        assert_eq!(due(8), []);
        assert_eq!(due(9), [PoolId(1), PoolId(2)]);
    }

    #[test]
    fn a_pool_without_any_login_is_forgotten_when_it_may_be_tried_again() {
        let stranger = |id, database| Seen { was_entered: false, ..seen(id, database, Some(0)) };
        let all = [
            stranger(0, "known"),
            stranger(1, "invented"),
            stranger(2, "entered"),
            seen(3, "entered", Some(0)),
        ];
        for auto in [0, 100] {
            let mut config = config(auto, 0);
            config.global.server_login_retry = Duration::from_secs(15);
            let due = |now| due(&config, &all, |_| false, now * SECOND);
            assert_eq!(due(15), []);
            assert_eq!(due(16), [PoolId(1)]);
        }
        assert_eq!(due(&config(0, 0), &all, |name| name == "invented", 100 * SECOND), []);
    }

    #[test]
    fn any_pool_goes_after_its_own_time_unless_its_database_is_paused() {
        let all = [seen(0, "known", Some(SECOND)), seen(1, "a", Some(2 * SECOND))];
        let due = |any, paused| due(&config(0, any), &all, |name| name == paused, 9 * SECOND);
        assert_eq!(due(0, ""), []);
        assert_eq!(due(7, ""), [PoolId(0)]);
        assert_eq!(due(6, "known"), [PoolId(1)]);
    }

    #[test]
    fn pools_of_a_removed_database_are_forgotten_at_once() {
        let gone = Seen { is_abandoned: true, ..seen(0, "gone", Some(SECOND)) };
        assert_eq!(due(&config(0, 0), &[gone], |_| true, SECOND), [PoolId(0)]);
    }
}
