//! The open connections of a service: few, and none for long.
//!
//! If there are too many, the oldest connection that has not shown its purpose is closed: one without a
//! whole HTTP request, or without a login for PCP. So idle connections keep nobody out.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::task::AbortHandle;

/// The maximum number of connections that are open at a time.
const CONNECTIONS_MAX: usize = 32;

/// Oldest first.
#[derive(Debug, Default)]
pub(in crate::cold) struct Connections(Mutex<VecDeque<Connection>>);

#[derive(Debug)]
struct Connection {
    has_asked: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Connections {
    /// Admits one more, if need be in the place of another: `spawn` starts its task, which tells by
    /// the flag that the connection has shown its purpose. Returns `false` if there is no room.
    pub(in crate::cold) fn admit(
        &self,
        spawn: impl FnOnce(Arc<AtomicBool>) -> AbortHandle,
    ) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|connection| !connection.task.is_finished());
        if all.len() >= CONNECTIONS_MAX {
            let is_idle = |own: &Connection| !own.has_asked.load(Ordering::Relaxed);
            let Some(idle) = all.iter().position(is_idle).and_then(|at| all.remove(at)) else {
                return false;
            };
            idle.task.abort();
        }
        let has_asked = Arc::new(AtomicBool::new(false));
        let task = spawn(Arc::clone(&has_asked));
        all.push_back(Connection { has_asked, task });
        true
    }
}

#[cfg(test)]
mod tests {
    use std::future;

    use super::*;

    fn admit(connections: &Connections) -> Option<(Arc<AtomicBool>, AbortHandle)> {
        let mut own = None;
        connections.admit(|has_asked| {
            let task = tokio::spawn(future::pending::<()>()).abort_handle();
            own = Some((has_asked, task.clone()));
            task
        });
        own
    }

    async fn end_of(task: &AbortHandle) {
        while !task.is_finished() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn the_oldest_that_has_not_asked_makes_room() {
        let connections = Connections::default();
        let first: Vec<_> = (0..CONNECTIONS_MAX).filter_map(|_| admit(&connections)).collect();
        first[0].0.store(true, Ordering::Relaxed);
        assert!(admit(&connections).is_some());
        end_of(&first[1].1).await;
        assert!(!first[0].1.is_finished() && !first[2].1.is_finished());
    }

    #[tokio::test]
    async fn nobody_who_has_asked_is_closed_for_a_newcomer() {
        let connections = Connections::default();
        let first: Vec<_> = (0..CONNECTIONS_MAX).filter_map(|_| admit(&connections)).collect();
        first.iter().for_each(|(has_asked, _)| has_asked.store(true, Ordering::Relaxed));
        assert!(admit(&connections).is_none());
        first[5].1.abort();
        end_of(&first[5].1).await;
        assert!(admit(&connections).is_some(), "one that has ended counts no more");
    }
}
