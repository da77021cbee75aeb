//! The kill matrix: client, server and pooler die at every message boundary and in the middle of
//! messages, during each kind of conversation, on real sockets.
//!
//! After any death, other clients must not notice anything, no server may be lost or linked in a
//! dirty state, committed rows exist exactly once, and no client waits forever. A row of the matrix
//! is a [`Flow`], a column is the process that dies, a cell is a byte of the conversation.

mod cancels;
mod flows;
mod fuse;
mod rig;

use crate::support;
use flows::{Flow, Step, play};
use fuse::Toward;
use rig::{Rig, assert_cut_short, cuts, rows_after};
use testkit::{Message, Postgres};

const MODES: [&str; 2] = ["transaction", "session"];

fn flows_with_login(rig: &Rig<'_>) -> Vec<Flow> {
    let mut flows = flows::all();
    flows.push(flows::login(&rig.database));
    flows
}

/// Returns the places to cut one message, including its end.
fn places(step: &Step) -> Vec<usize> {
    let mut places = cuts(&step.bytes);
    places.remove(0);
    places
}

#[test]
fn a_client_dies_strict() {
    for mode in MODES {
        let mut rig = Rig::new(Postgres::shared(), mode);
        for flow in flows_with_login(&rig) {
            for last in 0..flow.steps.len() {
                for place in places(&flow.steps[last]) {
                    client_dies(&mut rig, &flow, last, place);
                }
            }
        }
    }
}

/// Lets a client die after some steps and a part of the `last` one. Tries a client that waits for
/// each answer, as drivers do, and one that sends everything at once and reads nothing.
fn client_dies(rig: &mut Rig<'_>, flow: &Flow, last: usize, place: usize) {
    let (before, cut) = (&flow.steps[..last], &flow.steps[last].bytes);
    let cell = format!("{}, {}, client, step {last} byte {place}", rig.mode, flow.name);
    let whole = last + usize::from(place == cut.len());

    let mut patient = rig.victim(flow);
    play(&mut patient, before);
    patient.send(&cut[..place]);
    drop(patient);
    rig.assert_unharmed(&format!("{cell}, patient"), flow.possible_rows(whole));

    let mut hasty = rig.victim(flow);
    let all: Vec<u8> = before.iter().flat_map(|step| step.bytes.clone()).collect();
    let _ = hasty.try_send([&all, &cut[..place]].concat());
    drop(hasty);
    rig.assert_unharmed(&format!("{cell}, hasty"), flow.possible_rows(whole));
}

#[test]
fn a_server_is_cut_off_while_it_answers_strict() {
    servers_cut_off(Toward::Pooler);
}

#[test]
fn a_server_is_cut_off_while_it_is_told_strict() {
    servers_cut_off(Toward::Server);
}

fn servers_cut_off(toward: Toward) {
    for mode in MODES {
        let mut rig = Rig::new(Postgres::shared(), mode);
        for flow in flows_with_login(&rig) {
            // In transaction mode a login needs no server.
            if flow.logs_in && mode == "transaction" {
                continue;
            }
            let (undisturbed, passed) = undisturbed(&mut rig, &flow);
            for cut in cuts(&passed[usize::from(toward == Toward::Pooler)]) {
                server_cut_off(&mut rig, &flow, &undisturbed, toward, cut);
            }
        }
    }
}

/// Returns the client's messages of an undisturbed flow, and the bytes to and from the server.
fn undisturbed(rig: &mut Rig<'_>, flow: &Flow) -> (Vec<Message>, [Vec<u8>; 2]) {
    // Makes sure that a server exists, so that the recording does not begin with its login.
    rig.assert_unharmed("nobody has died", &[0]);
    let mut client = rig.victim(flow);
    rig.fuse.record();
    let heard = play(&mut client, &flow.steps);
    let passed = rig.fuse.recorded();
    drop(client);
    rig.assert_unharmed(flow.name, rows_after(flow, flow.steps.len()));
    (heard, passed)
}

fn server_cut_off(
    rig: &mut Rig<'_>,
    flow: &Flow,
    undisturbed: &[Message],
    toward: Toward,
    cut: usize,
) {
    let cell = format!("{}, {}, server, {toward:?} byte {cut}", rig.mode, flow.name);
    let mut victim = rig.victim(flow);
    rig.fuse.arm(toward, cut);
    let heard = play(&mut victim, &flow.steps);
    assert!(rig.fuse.disarm(), "{cell}: so much was never said");
    assert_cut_short(&cell, &heard, undisturbed);
    drop(victim);
    rig.assert_unharmed(&cell, rows_heard(flow, &heard, undisturbed));
}

/// Returns the possible numbers of rows. If the client has got the answer to its last step, its
/// rows must exist.
fn rows_heard(flow: &Flow, heard: &[Message], undisturbed: &[Message]) -> &'static [u64] {
    let told_all = heard.len() == undisturbed.len() && heard.last().is_some_and(|m| m.tag == b'Z');
    rows_after(flow, if told_all { flow.steps.len() } else { 0 })
}

#[test]
fn a_server_is_terminated_strict() {
    for mode in MODES {
        let mut rig = Rig::new(Postgres::shared(), mode);
        for flow in flows::all() {
            let (undisturbed, _) = undisturbed(&mut rig, &flow);
            for whole in 0..=flow.steps.len() {
                server_terminated(&mut rig, &flow, &undisturbed, whole);
            }
        }
    }
}

/// Lets an administrator terminate the server after some steps of the flow, so that it can send an
/// error.
fn server_terminated(rig: &mut Rig<'_>, flow: &Flow, undisturbed: &[Message], whole: usize) {
    let cell = format!("{}, {}, server terminated before step {whole}", rig.mode, flow.name);
    let mut victim = rig.victim(flow);
    let mut heard = play(&mut victim, &flow.steps[..whole]);
    for server in rig.other_servers() {
        rig.terminate(server);
    }
    heard.extend(play(&mut victim, &flow.steps[whole..]));
    assert_cut_short(&cell, &heard, undisturbed);
    drop(victim);
    rig.assert_unharmed(&cell, rows_heard(flow, &heard, undisturbed));
}

#[test]
fn a_server_is_killed_and_its_cluster_goes_down_strict() {
    let postgres = Postgres::start();
    let mut rig = Rig::new(&postgres, "transaction");
    for flow in flows::all() {
        let (undisturbed, _) = undisturbed(&mut rig, &flow);
        let whole = flow.steps.len() / 2;
        let cell = format!("{}, killed before step {whole}", flow.name);
        let mut victim = rig.victim(&flow);
        let mut heard = play(&mut victim, &flow.steps[..whole]);
        let server = *rig.other_servers().first().expect("one that serves the victim or is idle");
        support::kill9(server);
        // The bystander was in a transaction. PostgreSQL ends it, since its memory may be corrupt.
        assert!(rig.take_bystander().read_to_end().iter().all(|m| m.tag == b'E' || m.tag == b'N'));
        heard.extend(play(&mut victim, &flow.steps[whole..]));
        heard.retain(|message| message.tag != b'N');
        assert_cut_short(&cell, &heard, &undisturbed);
        drop(victim);
        rig.until_recovered();
        rig.bring_bystander();
        rig.assert_unharmed(&cell, rows_heard(&flow, &heard, &undisturbed));
    }
}

#[test]
fn the_pooler_is_killed_strict() {
    let mut rig = Rig::new(Postgres::shared(), "transaction");
    for flow in flows_with_login(&rig) {
        for last in 0..flow.steps.len() {
            for place in places(&flow.steps[last]) {
                pooler_killed(&mut rig, &flow, last, place);
            }
        }
    }
}

fn pooler_killed(rig: &mut Rig<'_>, flow: &Flow, last: usize, place: usize) {
    let cut = &flow.steps[last].bytes;
    let cell = format!("{}, pooler, step {last} byte {place}", flow.name);
    let mut victim = rig.victim(flow);
    play(&mut victim, &flow.steps[..last]);
    victim.send(&cut[..place]);
    rig.pooler.kill9();
    // If the client has not got its answer before, it must not get one.
    let heard = victim.read_to_end();
    assert!(place == cut.len() || heard.is_empty(), "{cell}: {heard:?}");
    assert!(rig.take_bystander().read_to_end().is_empty(), "{cell}");
    rig.until_servers_are_gone();
    rig.pooler.restart();
    rig.bring_bystander();
    let whole = last + usize::from(place == cut.len());
    rig.assert_unharmed(&cell, flow.possible_rows(whole));
}
