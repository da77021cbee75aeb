//! Counts what is done and what is wrong, and tells whether the soak has passed.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::memory::Sample;
use crate::stage::PATIENCE;

/// The soak ends early after so many failures.
const FAILURES_MAX: usize = 10;
/// The memory of a backend may grow by this share after the warm-up.
const GROWTH_MAX_PERCENT: u64 = 5;
/// A soak that ends sooner judges no memory: caches are still being filled.
const JUDGED_AFTER: Duration = Duration::from_mins(30);

/// Of a failure's text so much is shown, in characters.
const TEXT_MAX: usize = 2000;

thread_local! {
    /// The place of this thread's last panic.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

#[derive(Debug)]
pub(crate) struct Verdict {
    started: Instant,
    length: Duration,
    steps: AtomicU64,
    visits: AtomicU64,
    orders: AtomicU64,
    /// Orders that end connections. Clients that lose theirs beside one are right.
    endings: AtomicU64,
    forgiven: AtomicU64,
    failures: Mutex<Vec<String>>,
    /// The growth of the memory of backends since the first sample, in percent.
    growth: Mutex<Option<u64>>,
}

impl Verdict {
    pub(crate) fn new(length: Duration) -> Self {
        panic::set_hook(Box::new(|about| {
            let place = about.location().map(ToString::to_string).unwrap_or_default();
            PLACE.with_borrow_mut(|last| *last = place);
        }));
        Self {
            started: Instant::now(),
            length,
            steps: AtomicU64::new(0),
            visits: AtomicU64::new(0),
            orders: AtomicU64::new(0),
            endings: AtomicU64::new(0),
            forgiven: AtomicU64::new(0),
            failures: Mutex::default(),
            growth: Mutex::default(),
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.elapsed() >= self.length || self.failures().len() >= FAILURES_MAX
    }

    pub(crate) fn count_step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_visit(&self) {
        self.visits.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_order(&self) {
        self.orders.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives an order that ends connections.
    pub(crate) fn ending(&self, order: impl FnOnce()) {
        // Odd while the order is carried out.
        self.endings.fetch_add(1, Ordering::Relaxed);
        order();
        self.endings.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> String {
        let [steps, visits, orders, forgiven] =
            [&self.steps, &self.visits, &self.orders, &self.forgiven]
                .map(|count| count.load(Ordering::Relaxed));
        let wrong = self.failures().len();
        let growth = *self.growth.lock().expect("no panic");
        let growth = growth.map_or("not known".to_owned(), |percent| format!("{percent} %"));
        format!(
            "{steps} steps, {visits} visits ({forgiven} ended), {orders} orders, {wrong} wrong, \
             growth of backends {growth}"
        )
    }

    /// Runs a part of the soak. Its panic is a failure.
    pub(crate) fn judge(&self, who: &str, part: impl FnOnce()) {
        if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(part)) {
            self.fail(who, &*payload);
        }
    }

    /// Does the same for a client that an order may have disconnected. It must not have waited for
    /// ever.
    pub(crate) fn judge_mortal(&self, who: &str, part: impl FnOnce()) {
        let (before, begun) = (self.endings.load(Ordering::Relaxed), Instant::now());
        let Err(payload) = panic::catch_unwind(AssertUnwindSafe(part)) else { return };
        let was_ordered = before % 2 == 1 || self.endings.load(Ordering::Relaxed) != before;
        if was_ordered && begun.elapsed() < PATIENCE {
            self.forgiven.fetch_add(1, Ordering::Relaxed);
        } else {
            self.fail(who, &*payload);
        }
    }

    fn fail(&self, who: &str, payload: &(dyn Any + Send)) {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string));
        let place = PLACE.with_borrow(Clone::clone);
        let seconds = self.elapsed().as_secs();
        let text: String = text.unwrap_or_default().chars().take(TEXT_MAX).collect();
        let failure = format!("{seconds} s, {who}, {place}: {text}");
        println!("soak: wrong: {failure}");
        self.failures.lock().expect("no panic").push(failure);
    }

    fn failures(&self) -> Vec<String> {
        self.failures.lock().expect("no panic").clone()
    }

    /// Compares the memory of the backends that both samples have.
    pub(crate) fn compare(&self, first: &Sample, last: &Sample) {
        *self.growth.lock().expect("no panic") = last.growth_since(first);
    }

    /// Prints the result, and panics if the soak has failed.
    pub(crate) fn announce(self) {
        let _ = panic::take_hook();
        println!("soak: {} s  {}", self.elapsed().as_secs(), self.counts());
        let failures = self.failures();
        assert!(failures.is_empty(), "{failures:#?}");
        assert!(self.steps.into_inner() > self.length.as_secs(), "less than a step a second");
        if self.length >= JUDGED_AFTER {
            let growth = self.growth.lock().expect("no panic");
            let growth = growth.expect("no backend has lived as long as the soak");
            assert!(growth < GROWTH_MAX_PERCENT, "backends have grown by {growth} %");
        }
    }
}
