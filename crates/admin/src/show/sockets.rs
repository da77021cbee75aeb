//! SHOW SOCKETS and SHOW ACTIVE_SOCKETS: clients and servers with their buffered bytes.

use super::connections::{COLUMNS as CONNECTION, Line, sorted, without_waits_of_resting};
use super::{Column, Table, View, int4, joined};
use crate::snapshot::{Buffers, ClientState, ServerState};

pub(super) static SOCKETS: Table<Line> = Table {
    name: "SOCKETS",
    about: "A row for each connection of a client or to PostgreSQL, with its pending bytes. \
            Connections that log in have a row; cancel requests, and servers held back for them, \
            do not. Here `state` is `cl_active`, `cl_waiting`, `cl_login`, `sv_active`, \
            `sv_idle`, `sv_used`, `sv_tested` or `sv_login`.",
    columns: &COLUMNS,
    rows: sockets,
};

pub(super) static ACTIVE_SOCKETS: Table<Line> = Table {
    name: "ACTIVE_SOCKETS",
    about: "The rows of SHOW SOCKETS whose connections have pending bytes.",
    columns: &COLUMNS,
    rows: active,
};

static COLUMNS: [Column<Line>; CONNECTION.len() + BUFFERS.len()] = joined(&CONNECTION, &BUFFERS);

const BUFFERS: [Column<Line>; 7] = [
    int4(
        "recv_pos",
        |line| line.connection.buffers.held.into(),
        "Received bytes that are kept, because their message is incomplete.",
    ),
    int4("pkt_pos", |_| 0_usize.into(), "Always 0: handled bytes do not stay in a buffer."),
    int4(
        "pkt_remain",
        |line| line.connection.buffers.remaining.into(),
        "Bytes still to come of a message that is passed on in parts.",
    ),
    int4("send_pos", |_| 0_usize.into(), "Always 0, for the same reason as `pkt_pos`."),
    int4("send_remain", |_| 0_usize.into(), "Always 0, as in PgBouncer."),
    int4(
        "pkt_avail",
        |line| line.connection.buffers.held.into(),
        "Received bytes that are not handled yet: those of `recv_pos`.",
    ),
    int4(
        "send_avail",
        |line| line.connection.buffers.unsent.into(),
        "Bytes that wait to be sent to this peer.",
    ),
];

fn active(view: View) -> Vec<Line> {
    let mut lines = sockets(view);
    lines.retain(|line| line.connection.buffers != Buffers::default());
    lines
}

/// Clients that are logging in have no pool yet and come last.
fn sockets(view: View) -> Vec<Line> {
    let local_time = view.snapshot.local_time;
    let clients = without_waits_of_resting(view.snapshot.clients, &view.snapshot.servers);
    let clients = clients.chain(view.consoles).filter_map(|client| {
        let (rank, state) = match client.state {
            ClientState::Active | ClientState::Idle => (0, "cl_active"),
            ClientState::Waiting => (1, "cl_waiting"),
            ClientState::Login => (LOGIN, "cl_login"),
            ClientState::ActiveCancel | ClientState::WaitingCancel => return None,
        };
        Some(Line {
            kind: "C",
            rank,
            state,
            local_time,
            connection: client.connection,
            pin: None,
            doing: None,
        })
    });
    let servers = view.snapshot.servers.into_iter().filter_map(|server| {
        let (rank, state) = match server.state {
            ServerState::Active => (2, "sv_active"),
            ServerState::Idle => (3, "sv_idle"),
            ServerState::Used => (4, "sv_used"),
            ServerState::Tested => (5, "sv_tested"),
            ServerState::Login => (6, "sv_login"),
            ServerState::Listening => (7, "sv_listening"),
            ServerState::Attending => (8, "sv_direct"),
            ServerState::BeingCanceled => return None,
        };
        Some(Line {
            kind: "S",
            rank,
            state,
            local_time,
            connection: server.connection,
            pin: None,
            doing: None,
        })
    });
    let mut lines = sorted(clients.chain(servers));
    lines.sort_by_key(|line| line.rank == LOGIN);
    lines
}

/// The rank of clients that are logging in.
const LOGIN: u8 = 7;
