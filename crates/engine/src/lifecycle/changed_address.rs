//! Deals with a host name whose address has changed. Servers at the old address finish their
//! current work and are not linked again.

use crate::admission::pool::Parked;
use crate::engine::Engine;
use crate::ids::{PoolId, ServerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::settings::Target;
use crate::shell::{Exchange, Io};

impl<X: Exchange> Engine<X> {
    pub(crate) fn close_moved_of_host(
        &mut self,
        host: &str,
        is_there: impl Fn(ServerId) -> bool,
        is_parked_there: impl Fn(&X::Transport) -> bool,
        io: &mut impl Io<X>,
    ) {
        for pool in self.pools.views.ids() {
            let targets = &self.pools.settings(pool).targets;
            let leads = |target: &Target| matches!(target, Target::Tcp(name, _) if name == host);
            if targets.iter().any(leads) {
                self.close_moved_of(pool, &is_there, &is_parked_there, io);
            }
        }
    }

    fn close_moved_of(
        &mut self,
        pool: PoolId,
        is_there: &impl Fn(ServerId) -> bool,
        is_parked_there: &impl Fn(&X::Transport) -> bool,
        io: &mut impl Io<X>,
    ) {
        for (id, server) in self.servers.iter_mut() {
            if server.pool == pool && server.doomed.is_none() && is_there(id) {
                server.doomed = Some(CloseReason::CloseNeeded);
            }
        }
        let worker = self.context.worker;
        let parked = self.pools.exchange.pool(pool, |pool| {
            let fits = |parked: &Parked<_>| is_parked_there(&parked.transport);
            pool.condemn_where(fits, CloseReason::Obsolete);
            pool.take_condemned(worker)
        });
        self.close_parked(parked, io);
    }
}
