//! Handles mail from other threads.

use std::{mem, sync::atomic::Ordering};

use engine::{
    ids::{ClientId, ServerId},
    report::CancelRow,
};

use super::{Hold, Worker};
use crate::exchange::{
    mail::ShellMail,
    reports::{CancelInfo, ClientInfo, LimitedServer, ServerInfo, WorkerFigures, WorkerReport},
    transport::Transport,
};
use net::sys::Address;

impl Worker {
    pub(super) fn read_mail(&mut self) {
        let mut mail = mem::take(&mut self.mail);
        self.shared.hub.mailbox(self.id).take(&mut mail);
        for letter in mail.drain(..) {
            if self.hold == Hold::Still && !letter.ends_stillness() {
                self.postponed.push(letter);
                continue;
            }
            self.read_letter(letter);
            self.report_outcomes();
        }
        self.mail = mail;
    }

    pub(super) fn read_letter(&mut self, letter: ShellMail) {
        match letter {
            ShellMail::Engine(mail) => self.engine.handle_mail(mail, &mut self.sockets),
            ShellMail::Client { fd, peer } => self.adopt_client(fd, peer),
            ShellMail::SecuredClient { client, peer, connected_at } => {
                self.adopt_secured(client, peer, connected_at);
            }
            ShellMail::CrowdOut => self.engine.crowd_out(&mut self.sockets),
            ShellMail::SecuredServer { server, ticket, result } => {
                self.sockets.secured(server, ticket, result);
            }
            ShellMail::CancelSent { cancel, end } => {
                self.sockets.secured_cancel_over(cancel);
                self.engine.cancel_finished(cancel, end, &mut self.sockets);
            }
            ShellMail::Resolved { ticket, addresses } => {
                self.sockets.resolved(ticket, addresses);
            }
            ShellMail::Moved { host, gone } => {
                let is_gone = |address: Option<&Address>| match address {
                    Some(Address::Inet(address)) => gone.contains(&address.ip()),
                    _ => false,
                };
                let there = self.sockets.servers_where(is_gone);
                let is_there = |server| there.contains(&server);
                let is_parked_there = |transport: &Transport| is_gone(transport.address());
                let sockets = &mut self.sockets;
                self.engine.close_moved(&host, is_there, is_parked_there, sockets);
            }
            // The asking task may have stopped waiting.
            ShellMail::Report(reply) => drop(reply.send(self.report())),
            ShellMail::Figures(reply) => drop(reply.send(self.figures())),
            ShellMail::Pulse(reply) => drop(reply.send(self.engine.look().pulses())),
            ShellMail::Transactions(reply) => drop(reply.send(self.engine.look().transactions())),
            ShellMail::LimitedServers(reply) => drop(reply.send(self.limited_servers())),
            ShellMail::ServerIsLarge(serial) => self.engine.notes().server_is_large(serial),
            ShellMail::Barrier(_done) => {}
            ShellMail::Config(config) => {
                self.sockets.set_config(config.clone());
                self.engine.notes().set_config(config);
                self.engine.review(&mut self.sockets);
            }
            ShellMail::Drain(how) => {
                self.drain = Some(how);
                self.shared.gauge(self.id).drained.store(false, Ordering::Release);
                self.engine.begin_drain(how, &mut self.sockets);
            }
            ShellMail::Checked { client, serial, checked } => {
                self.engine.checked(client, serial, &checked, &mut self.sockets);
            }
            ShellMail::Review => self.engine.review(&mut self.sockets),
            ShellMail::Fresher => self.engine.route_held_reads(&mut self.sockets),
            ShellMail::Kill(databases) => {
                let dies = |name: &str| databases.iter().any(|database| database == name);
                self.engine.kill(dies, &mut self.sockets);
            }
            ShellMail::KillClient { client, serial } => {
                self.engine.kill_client(client, serial, &mut self.sockets);
            }
            ShellMail::Suspend => self.suspend(),
            ShellMail::EndSuspense => self.drop_restless(),
            ShellMail::Resume => self.resume(),
            ShellMail::Freeze => self.freeze(),
            ShellMail::Leave => self.leave(),
            ShellMail::Rest(reply) => drop(reply.send(self.rest())),
            ShellMail::Expect(state) => self.expect(&state),
            ShellMail::Adopt(share) => self.adopt(*share),
            // The asking task may have stopped waiting.
            ShellMail::Export(reply) => drop(reply.send(self.export())),
            ShellMail::TellHome { server, serial } => self.tell_home(server, serial),
            ShellMail::LeavesLobby(departing) => self.take_from_lobby(*departing),
            ShellMail::Cede(servers, _done) => self.cede(&servers),
            ShellMail::Thaw => self.thaw(),
            ShellMail::ForgetPools(pools, _done) => self.engine.forget_pools(&pools),
            ShellMail::Stop => self.stopped = true,
        }
    }

    fn report(&mut self) -> WorkerReport {
        let report = self.engine.report(self.sockets.now);
        let clients = report.clients.into_iter().map(|row| {
            let server = self.engine.look().server_of(row.id);
            ClientInfo {
                worker: self.id,
                pointer: self.sockets.client_pointer(row.id),
                link: server.map_or(0, |server: ServerId| self.sockets.server_pointer(server)),
                peer: self.sockets.peer(row.id).clone(),
                local: self.sockets.client_local_address(row.id),
                tls: self.sockets.client_tls(row.id),
                unsent: self.sockets.client_unsent(row.id),
                row,
            }
        });
        let clients = clients.collect();
        let servers = report.servers.into_iter().filter_map(|row| {
            let id = row.slot?;
            let client = self.engine.look().client_of(id);
            let link = client.map_or(0, |client: ClientId| self.sockets.client_pointer(client));
            let unsent = self.sockets.server_unsent(id);
            let socket = self.sockets.describe_server(id);
            Some(ServerInfo { link, unsent, ..ServerInfo::new(self.id, socket, row) })
        });
        let servers = servers.collect();
        WorkerReport {
            worker: self.id,
            now: report.now,
            clients,
            servers,
            stats: report.stats,
            watched: report.watched,
            free_clients: report.free_clients,
            cancels: self.cancels(report.cancels),
        }
    }

    fn figures(&self) -> WorkerFigures {
        let cancels = self.cancels(self.engine.look().cancel_rows());
        WorkerFigures { figures: self.engine.look().figures(self.sockets.now), cancels }
    }

    fn limited_servers(&self) -> Vec<LimitedServer> {
        let look = self.engine.look();
        let servers = look.limited_in_memory().map(|(id, server, limit)| {
            let fd = self.sockets.describe_server(id).fd;
            LimitedServer::new(self.id, fd, server, limit, false)
        });
        servers.collect()
    }

    fn cancels(&self, rows: Vec<CancelRow>) -> Vec<CancelInfo> {
        let sent = self.sockets.sent_cancels();
        rows.into_iter().map(|row| CancelInfo { sent: sent.contains(&row.id), row }).collect()
    }
}
