//! The records of clients that change to another process with their lobby.

use std::sync::Arc;

use config::ErrorCodes;
use engine::{
    ids::{Identity, PoolId},
    own_error::Cause,
    records::{DismissalRecord, GuestRecord},
    shell::{Closing, Guest},
};
use net::sys::{Address, socket, socket::Traffic};

use super::{Dismissal, Guests, Refusal, Room, Seated, Shared, leave, lock};
use crate::exchange::peer::Peer;

impl Guests {
    /// Returns the records of all clients. `line_of` returns the line of a backend's number.
    pub(in crate::lobby) fn export(
        &self,
        line_of: &impl Fn(usize) -> Option<u32>,
    ) -> Vec<GuestRecord> {
        let record = |place: u32| Some(record(place, self.at(place)?, line_of));
        self.places().filter_map(record).collect()
    }

    /// Returns the record of one client. Orders that are under way are no part of it.
    pub(in crate::lobby) fn record_of(&self, place: u32) -> Option<GuestRecord> {
        Some(record(place, self.at(place)?, &|_| None))
    }

    /// Seats a client of another process, whose socket is in its place, which was claimed for this
    /// lobby. `number_of` returns the number of a line's backend.
    pub(in crate::lobby) fn import(
        &mut self,
        record: GuestRecord,
        pool: PoolId,
        room: &Room,
        number_of: &impl Fn(u32) -> Option<usize>,
        shared: &Shared,
    ) {
        let place = record.place;
        self.own.insert(place);
        let fd = room.socket(place);
        let known = record.address.as_deref().and_then(|text| text.parse().ok());
        let address =
            known.map_or_else(|| socket::peer_address(fd).unwrap_or_default(), Address::Inet);
        let seated = seated(record, pool, Peer::new(fd, &address), number_of);
        if seated.guest.is_counted {
            shared.hub.client_came(&seated.guest.identity);
        }
        if let Some(Some(pool)) = shared.hub.slots().get(pool.0 as usize) {
            lock(pool).enter();
        }
        shared.lobby.guest_came();
        self.by_key.insert(seated.guest.key, place);
        self.endings += u32::from(seated.is_ending());
        self.seated.insert(place, Box::new(seated));
    }

    /// Forgets a client whose connection has ended already.
    pub(in crate::lobby) fn forget(&mut self, place: u32, shared: &Shared) {
        let Some(seated) = self.seated.remove(&place) else { return };
        self.by_key.remove(&seated.guest.key);
        self.endings -= u32::from(seated.is_ending());
        leave(&seated.guest, shared);
    }

    /// Gives back the places without a client.
    pub(in crate::lobby) fn find_free_places(&mut self) {
        for place in self.own_places() {
            if !self.seated.contains_key(&place) {
                self.put_back(place);
            }
        }
    }

    /// Takes all clients out of the counts: another process has them.
    pub(in crate::lobby) fn cede(&self, shared: &Shared) {
        let seated = self.places().filter_map(|place| self.at(place));
        seated.for_each(|seated| leave(&seated.guest, shared));
    }

    /// Does this client wait for the end of a backend that refused its state?
    pub(in crate::lobby) fn awaits_end(&self, place: u32) -> bool {
        let refusal = self.at(place).and_then(|seated| seated.refusal);
        refusal.is_some_and(|refusal| refusal.backend.is_some())
    }
}

fn record(place: u32, seated: &Seated, line_of: &impl Fn(usize) -> Option<u32>) -> GuestRecord {
    let Seated { guest, peer, since, waiting_since, login, refusal, ending, .. } = seated;
    GuestRecord {
        place,
        serial: guest.serial,
        database: guest.identity.database.clone(),
        user: guest.identity.user.clone(),
        is_counted: guest.is_counted,
        key: guest.key,
        tag: guest.tag.clone(),
        application_name: guest.application_name.clone(),
        connected_at: guest.connected_at,
        idle_limit: guest.idle_limit,
        wait_limit: guest.wait_limit,
        codes: guest.codes.word().to_owned(),
        address: peer.announced(),
        since: *since,
        waiting_since: *waiting_since,
        login_traffic: (login.received, login.sent),
        refusal: refusal.map(|refusal| (refusal.backend.and_then(line_of), refusal.transactions)),
        ending: ending.as_ref().map(|ending| DismissalRecord {
            cause: Cause::ALL.iter().position(|cause| *cause == ending.cause).unwrap_or(0) as u32,
            reason: ending.reason.clone(),
            at_once: ending.when == Closing::AtOnce,
            since: ending.since,
            is_ordered: ending.is_ordered,
        }),
    }
}

fn seated(
    record: GuestRecord,
    pool: PoolId,
    peer: Peer,
    number_of: &impl Fn(u32) -> Option<usize>,
) -> Seated {
    let (received, sent) = record.login_traffic;
    let guest = Guest {
        pool,
        serial: record.serial,
        identity: Arc::new(Identity { database: record.database, user: record.user }),
        is_counted: record.is_counted,
        key: record.key,
        tag: record.tag,
        // The place has them already.
        settings: Vec::new(),
        told: 0,
        application_name: record.application_name,
        connected_at: record.connected_at,
        idle_limit: record.idle_limit,
        wait_limit: record.wait_limit,
        codes: ErrorCodes::of_word(&record.codes).unwrap_or_default(),
        timing: None,
    };
    Seated {
        guest,
        peer,
        since: record.since,
        waiting_since: record.waiting_since,
        login: Traffic { received, sent },
        is_held: false,
        look: None,
        refusal: record.refusal.map(|(line, transactions)| Refusal {
            backend: line.and_then(number_of),
            transactions,
        }),
        ending: record.ending.map(|ending| Dismissal {
            cause: Cause::ALL.get(ending.cause as usize).copied().unwrap_or(Cause::Operator),
            reason: ending.reason,
            when: if ending.at_once { Closing::AtOnce } else { Closing::AfterTransaction },
            since: ending.since,
            is_ordered: ending.is_ordered,
        }),
    }
}
