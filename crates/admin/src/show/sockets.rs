//! SHOW SOCKETS and SHOW ACTIVE_SOCKETS: clients and servers with what is under way on them.

use super::connections::{COLUMNS as CONNECTION, Line, sorted};
use super::{Column, Table, View, int4, joined};
use crate::snapshot::{Buffers, ClientState, ServerState};

pub(super) static SOCKETS: Table<Line> = Table {
    name: "SOCKETS",
    about: "A row for each connection of a client or to PostgreSQL, those that log in included, \
            and what is under way on it. Here `state` is `cl_active`, `cl_waiting`, `cl_login`, \
            `sv_active`, `sv_idle`, `sv_used`, `sv_tested` or `sv_login`. Cancel requests, and \
            servers held back for them, are not among them.",
    columns: &COLUMNS,
    rows: sockets,
};

pub(super) static ACTIVE_SOCKETS: Table<Line> = Table {
    name: "ACTIVE_SOCKETS",
    about: "Of SHOW SOCKETS, those on which something is under way.",
    columns: &COLUMNS,
    rows: active,
};

static COLUMNS: [Column<Line>; CONNECTION.len() + BUFFERS.len()] = joined(&CONNECTION, &BUFFERS);

const BUFFERS: [Column<Line>; 7] = [
    int4(
        "recv_pos",
        |line| line.connection.buffers.held.into(),
        "Bytes received that are kept, being part of a message that is not whole yet.",
    ),
    int4(
        "pkt_pos",
        |_| 0_usize.into(),
        "0: what has been dealt with of a buffer is not kept in it.",
    ),
    int4(
        "pkt_remain",
        |line| line.connection.buffers.remaining.into(),
        "Bytes still to come of a message that is passed on as it comes.",
    ),
    int4("send_pos", |_| 0_usize.into(), "0, for the same reason as `pkt_pos`."),
    int4("send_remain", |_| 0_usize.into(), "0, as PgBouncer has it."),
    int4(
        "pkt_avail",
        |line| line.connection.buffers.held.into(),
        "Bytes received and not dealt with: those of `recv_pos`.",
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

/// Those that log in have no pool yet and come last.
fn sockets(view: View) -> Vec<Line> {
    let local_time = view.snapshot.local_time;
    let clients = view.snapshot.clients.into_iter().chain(view.consoles).filter_map(|client| {
        let (rank, state) = match client.state {
            ClientState::Active | ClientState::Idle => (0, "cl_active"),
            ClientState::Waiting => (1, "cl_waiting"),
            ClientState::Login => (LOGIN, "cl_login"),
            ClientState::ActiveCancel | ClientState::WaitingCancel => return None,
        };
        Some(Line { kind: "C", rank, state, local_time, connection: client.connection, pin: None })
    });
    let servers = view.snapshot.servers.into_iter().filter_map(|server| {
        let (rank, state) = match server.state {
            ServerState::Active => (2, "sv_active"),
            ServerState::Idle => (3, "sv_idle"),
            ServerState::Used => (4, "sv_used"),
            ServerState::Tested => (5, "sv_tested"),
            ServerState::Login => (6, "sv_login"),
            ServerState::Listening => (7, "sv_listening"),
            ServerState::BeingCanceled => return None,
        };
        Some(Line { kind: "S", rank, state, local_time, connection: server.connection, pin: None })
    });
    let mut lines = sorted(clients.chain(servers));
    lines.sort_by_key(|line| line.rank == LOGIN);
    lines
}

/// The rank of clients that log in.
const LOGIN: u8 = 7;
