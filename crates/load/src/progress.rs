use std::time::{Duration, Instant};

use crate::{options::Options, stats::Moment, worker::Common};

/// The time to wait for a thread without progress lines.
const QUIET: Duration = Duration::from_secs(3600);

pub(crate) struct Progress {
    every: Option<Duration>,
    shows_lag: bool,
    last: Duration,
    next: Duration,
    before: Moment,
}

impl Progress {
    pub(crate) fn new(options: &Options) -> Self {
        let every = options.progress.map(|seconds| Duration::from_secs(seconds.into()));
        Self {
            every,
            shows_lag: options.rate.is_some(),
            last: Duration::ZERO,
            next: every.unwrap_or_default(),
            before: Moment::default(),
        }
    }

    /// Returns the time until the next line.
    pub(crate) fn pause(&self, start: Instant) -> Duration {
        match self.every {
            Some(_) => self.next.saturating_sub(start.elapsed()),
            None => QUIET,
        }
    }

    /// Prints the line.
    pub(crate) fn tell(&mut self, start: Instant, common: &Common) {
        let Some(every) = self.every else { return };
        let now = start.elapsed();
        let mut sums = Moment::default();
        for published in &common.published {
            sums.add(&published.load());
        }
        let since = sums.since(&self.before);
        let seconds = (now - self.last).as_secs_f64();
        eprintln!("progress: {:.1} s, {}", now.as_secs_f64(), self.line(&since, seconds));
        (self.before, self.last) = (sums, now);
        while self.next <= now {
            self.next += every;
        }
    }

    fn line(&self, since: &Moment, seconds: f64) -> String {
        let mut line = format!(
            "{:.1} tps, lat {:.3} ms stddev {:.3}, {} failed",
            since.done as f64 / seconds,
            since.latency.mean_ms(),
            since.latency.deviation_ms(),
            since.failed
        );
        if self.shows_lag {
            let count = since.done.max(1) as f64;
            line += &format!(", lag {:.3} ms", since.lag_us / count / 1000.0);
        }
        line
    }
}
