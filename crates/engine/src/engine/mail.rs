//! Reads mail of other workers.

use crate::engine::Engine;
use crate::shell::{Exchange, Io, Mail};

impl<X: Exchange> Engine<X> {
    pub(crate) fn read_mail(&mut self, mail: Mail<X::Transport>, io: &mut impl Io<X>) {
        let now = io.now();
        match mail {
            Mail::Server { waiter, server } => {
                let id = self.attach(server, io);
                self.join_or_place(waiter, id, io);
            }
            Mail::Refuse { waiter, pool, error } => {
                if self.is_waiting(waiter, pool) && !self.leave_reader(waiter.client, pool) {
                    self.refuse_client(waiter.client, &error, io);
                }
            }
            Mail::Prove { pool } => {
                if self.exchange.pool(pool, |pool| pool.reserve_opening(now)) {
                    self.open_server(pool, io);
                }
            }
            Mail::Cancel { key, requester } => self.cancel_asked(key, requester, io),
            Mail::CancelDone { requester, serial, outcome } => {
                self.cancel_answered(requester, serial, outcome, io)
            }
            Mail::FindProcess { process_id, requester } => {
                self.process_asked(process_id, requester, io);
            }
            Mail::ProcessFound { requester, serial, found } => {
                self.process_found(requester, serial, found, io);
            }
            Mail::Signal { client, serial, terminates, requester } => {
                self.signal_asked((client, serial), terminates, requester, io);
            }
            Mail::Listen { pool, subscription } => self.subscribe(pool, subscription, io),
            Mail::Unlisten { pool, who, channels } => {
                self.unsubscribe(pool, who, channels.as_deref(), io);
            }
            Mail::Listening { client, serial, request, mark, again } => {
                self.listening_begun((client, serial), request, mark, again, io);
            }
            Mail::Notified { to, body } => self.notified(&to, &body, io),
            Mail::Unheard { pool } => self.unheard(pool),
            Mail::Deaf { to } => self.deaf(&to, io),
            Mail::Attend { pool } => self.attend_more(pool, io),
            Mail::BackendCame { server, serial } => self.backend_came(server, serial, io),
            Mail::LobbyTried { pool } => self.trial_over(pool),
            Mail::LeftLobby { server, serial, why } => self.left_lobby(server, serial, why, io),
            Mail::FreePlaces => self.places_wanted = true,
        }
    }
}
