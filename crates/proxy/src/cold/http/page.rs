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
pub type MetricsPage = Arc<dyn Fn(&Controller, &Measures, Exposition) -> Vec<u8> + Send + Sync>;

/// The form of a page. If a scraper accepts several equally, it gets the last of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exposition {
    /// Prometheus' text format, version 0.0.4.
    Text,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
    /// Prometheus' messages of protobuf, each behind its length, with native histograms.
    Protobuf,
}

impl Exposition {
    const COUNT: usize = 3;

    /// The form that the values of `Accept` prefer; text if they name none.
    pub(super) fn accepted<'a>(accepted: impl Iterator<Item = &'a str>) -> Self {
        let ranges = accepted.flat_map(|accept| accept.split(','));
        let known = ranges.filter_map(|range| {
            let (kind, parameters) = range.split_once(';').unwrap_or((range, ""));
            Some((weight(parameters), Self::named(kind.trim(), parameters)?))
        });
        known.filter(|(weight, _)| *weight > 0).max().map_or(Self::Text, |(_, form)| form)
    }

    fn named(kind: &str, parameters: &str) -> Option<Self> {
        let has = |name, value| parameter(parameters, name).is_some_and(|own| own == value);
        match kind {
            "text/plain" => Some(Self::Text),
            "application/openmetrics-text" => Some(Self::OpenMetrics),
            "application/vnd.google.protobuf" => {
                (has("proto", "io.prometheus.client.MetricFamily") && has("encoding", "delimited"))
                    .then_some(Self::Protobuf)
            }
            _ => None,
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
                 encoding=delimited"
            }
        }
    }
}

fn parameter<'a>(parameters: &'a str, name: &str) -> Option<&'a str> {
    let mut all = parameters.split(';').filter_map(|one| one.split_once('='));
    all.find(|(own, _)| own.trim() == name).map(|(_, value)| value.trim())
}

/// The weight of a media range, in thousandths.
fn weight(parameters: &str) -> u16 {
    let weight = parameter(parameters, "q").and_then(|weight| weight.parse().ok());
    (weight.unwrap_or(1_f32) * 1_000.0) as u16
}

/// The latest measurement, and the pages made from it.
pub(super) struct Pages {
    write: MetricsPage,
    latest: Mutex<Option<Latest>>,
}

struct Latest {
    measured_at: Instant,
    measures: Arc<Measures>,
    /// By form.
    pages: [Option<Bytes>; Exposition::COUNT],
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
            *latest = Some(Latest { measured_at, measures, pages: Default::default() });
        }
        let Latest { measures, pages, .. } = latest.as_mut()?;
        let page = &mut pages[form as usize];
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

    /// As Prometheus 2.42 with native histograms writes it.
    const NATIVE: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
        encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,\
        application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

    #[test]
    fn a_scraper_gets_the_form_that_it_prefers() {
        let form = |accept: &[&str]| Exposition::accepted(accept.iter().copied());
        for (accept, expected) in [
            (NATIVE, Exposition::Protobuf),
            (&*NATIVE.replace("delimited", "delimited;q=0.3"), Exposition::OpenMetrics),
            (&*NATIVE.replace("delimited", "text"), Exposition::OpenMetrics),
            (&*NATIVE.replace("delimited", "delimited;q=0"), Exposition::OpenMetrics),
            (
                "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                Exposition::OpenMetrics,
            ),
            ("text/plain, application/openmetrics-text", Exposition::OpenMetrics),
            ("text/plain, application/openmetrics-text;q=0.5", Exposition::Text),
            ("application/vnd.google.protobuf", Exposition::Text),
            ("*/*", Exposition::Text),
            ("", Exposition::Text),
        ] {
            assert_eq!(form(&[accept]), expected, "{accept}");
            assert_eq!(form(&["text/html", accept]), expected, "{accept}");
        }
        assert_eq!(form(&[]), Exposition::Text);
    }
}
