//! The page of metrics, as it was at most a second ago.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use hyper::body::Bytes;
use tokio::sync::Mutex;

use crate::cold::{controller::Controller, measures::Measures};

/// The time for which a measurement is used.
const FRESH: Duration = Duration::from_secs(1);

/// Writes what was measured, in that form. It is called on a thread of its own: with thousands of pools
/// it takes longer than the cold thread may be busy.
pub type MetricsPage = Arc<dyn Fn(&Controller, &Measures, Exposition) -> String + Send + Sync>;

/// The form of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// Prometheus' text format, version 0.0.4.
    Text,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

impl Exposition {
    /// OpenMetrics where the values of `Accept` name it, as those of Prometheus do.
    pub(super) fn accepted<'a>(accepted: impl Iterator<Item = &'a str>) -> Self {
        let mut kinds = accepted.flat_map(|accept| accept.split(','));
        let named = kinds.any(|kind| kind.trim().starts_with("application/openmetrics-text"));
        if named { Self::OpenMetrics } else { Self::Text }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The latest measurement, and the pages made from it.
pub(super) struct Pages {
    write: MetricsPage,
    latest: Mutex<Option<Latest>>,
}

struct Latest {
    measured_at: Instant,
    measures: Arc<Measures>,
    text: Option<Bytes>,
    open_metrics: Option<Bytes>,
}

impl Pages {
    pub(super) fn new(write: MetricsPage) -> Self {
        Self { write, latest: Mutex::default() }
    }

    /// A request that comes while the pooler is being measured waits for that measurement. `None` when
    /// the pooler has ended.
    pub(super) async fn latest(&self, controller: &Controller, form: Exposition) -> Option<Bytes> {
        let mut latest = self.latest.lock().await;
        if latest.as_ref().is_none_or(|own| own.measured_at.elapsed() >= FRESH) {
            let measures = Arc::new(controller.measures().await?);
            let measured_at = Instant::now();
            *latest = Some(Latest { measured_at, measures, text: None, open_metrics: None });
        }
        let Latest { measures, text, open_metrics, .. } = latest.as_mut()?;
        let page = match form {
            Exposition::Text => text,
            Exposition::OpenMetrics => open_metrics,
        };
        if page.is_none() {
            let (write, controller) = (Arc::clone(&self.write), controller.clone());
            let measures = Arc::clone(measures);
            let written =
                tokio::task::spawn_blocking(move || write(&controller, &measures, form)).await;
            *page = written.ok().map(Bytes::from);
        }
        page.clone()
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_metrics_is_for_those_who_name_it() {
        let form = |accept: &[&str]| Exposition::accepted(accept.iter().copied());
        for accept in [
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "text/plain, application/openmetrics-text",
        ] {
            assert_eq!(form(&[accept]), Exposition::OpenMetrics, "{accept}");
            assert_eq!(form(&["text/html", accept]), Exposition::OpenMetrics, "{accept}");
        }
        for accept in [&["*/*"][..], &["text/plain;version=0.0.4"], &[]] {
            assert_eq!(form(accept), Exposition::Text, "{accept:?}");
        }
    }
}
