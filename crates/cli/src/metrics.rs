//! Connects the metrics and the pooler: `proxy` measures and serves, `admin` has the names.

use std::sync::Arc;

use admin::{Exposition, Measures, PasswordRow, PoolMeasures};
use proxy::{Controller, MetricsPage};

use crate::moment::Moment;

/// Writes the page of metrics, for [`proxy::StartOptions`].
pub(crate) fn page() -> MetricsPage {
    Arc::new(|controller, measures, form| {
        let form = match form {
            proxy::Exposition::Text => Exposition::Text,
            proxy::Exposition::OpenMetrics => Exposition::OpenMetrics,
            proxy::Exposition::Protobuf => Exposition::Protobuf,
        };
        translated(controller, measures).page(form)
    })
}

fn translated(controller: &Controller, facts: &proxy::Measures) -> Measures {
    let names = controller.names();
    Measures {
        config: controller.config(),
        workers: facts.workers,
        switches: facts.switches.clone(),
        clients: facts.clients,
        failures: facts.failures,
        clusters: crate::console::clusters(controller),
        routes: facts.pools.iter().flat_map(crate::console::routes).collect(),
        certificates: facts.certificates.clone(),
        passwords: facts.passwords.iter().map(translated_password).collect(),
        pools: facts.pools.iter().map(|pool| translated_pool(pool, facts.now)).collect(),
        statements: facts.statements,
        dns: (names.hosts.len(), names.zones.len(), names.queries),
        reload_succeeded: facts.reload.succeeded,
        reload_success_at: Moment::now(controller).wall(facts.reload.success_at),
    }
}

fn translated_password(password: &proxy::PasswordInfo) -> PasswordRow {
    let proxy::PasswordInfo { database, failures, remaining } = password;
    let remaining = remaining.as_micros() as u64;
    PasswordRow { database: database.clone(), failures: *failures, remaining }
}

fn translated_pool(pool: &proxy::PoolMeasures, now: u64) -> PoolMeasures {
    PoolMeasures {
        database: pool.key.database.clone(),
        user: pool.key.user.clone(),
        size: pool.settings.size,
        reserve: pool.settings.reserve,
        oldest_wait: pool.oldest_wait.map_or(0, |since| now.saturating_sub(since)),
        figures: pool.figures.clone(),
        cancels: pool.cancels,
    }
}
