//! Clients of a cluster that outlive their servers.

use super::{Mutant, change};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "DeniesCommit",
        wrong: "A client is told that its COMMIT without an answer was rolled back",
        seen_in: "",
        noticed_by: "lost::a_commit_without_an_answer_is_unknown",
        changes: &[change(
            "lifecycle/loss.rs",
            "_ => «self.may_have_run() && self.ending == Ending::Commit»,",
            "false",
        )],
    },
    Mutant {
        name: "TrustsStandbys",
        wrong: "A COMMIT on a lost standby counts as rolled back, though the standby was promoted",
        seen_in: "",
        noticed_by: "lost::a_commit_on_a_lost_standby_is_unknown",
        changes: &[change(
            "lifecycle/lost.rs",
            "is_harmless: refused.is_some() || «server.has_harmless_request()»,",
            "self.pool.view.place != crate::routing::Place::Writer
                    || server.has_harmless_request()",
        )],
    },
    Mutant {
        name: "ClosesOnConflict",
        wrong: "A recovery conflict disconnects its client",
        seen_in: "Weir",
        noticed_by: "farewell::a_client_outlives_what_is_not_its_fault",
        changes: &[change(
            "lifecycle/lost.rs",
            "CANNOT_CONNECT_NOW, «SERIALIZATION_FAILURE», DATABASE_DROPPED, ];",
            "ADMIN_SHUTDOWN",
        )],
    },
    Mutant {
        name: "OutlivesItsOwnFault",
        wrong: "A client outlives PostgreSQL's limit of idle transactions",
        seen_in: "",
        noticed_by: "farewell::a_client_outlives_what_is_not_its_fault",
        changes: &[change("lifecycle/lost.rs", "(«is_of_node» || error.is_panic())", "true")],
    },
    Mutant {
        name: "ForgetsBoundCommit",
        wrong: "A COMMIT that an earlier request has bound does not count when it is executed",
        seen_in: "",
        noticed_by: "lost::a_bound_commit_counts",
        changes: &[change(
            "relay/ending.rs",
            "if «next != Ending::None» { self.bound = Ending::Commit; }",
            "false",
        )],
    },
    Mutant {
        name: "RunsAfterLoss",
        wrong: "After the loss of a transaction, the client's next request runs outside of it",
        seen_in: "",
        noticed_by: "lost::a_request_in_a_transaction_is_told_at_once",
        changes: &[change(
            "lifecycle/failed.rs",
            "Next::Serve => «self.while_waiting.plan(Steps::FAILS)»,",
            "",
        )],
    },
    Mutant {
        name: "HushesAfterLoss",
        wrong: "A client that only listens gets no notifications when its server was lost",
        seen_in: "",
        noticed_by: "lost::a_listening_client_still_hears",
        changes: &[change(
            "lifecycle/failed.rs",
            "ClientPhase::Failed(failed) if «!failed.is_between_requests()»)",
            "true",
        )],
    },
    Mutant {
        name: "TellsLostTransactions",
        wrong: "Notifications are delivered in a lost transaction that waits for a server",
        seen_in: "",
        noticed_by: "lost::a_lost_transaction_hears_nothing",
        changes: &[change(
            "lifecycle/failed.rs",
            "self.while_waiting.is_due(«Steps::FAILS | Steps::BEGINS») || matches!",
            "Steps::BEGINS",
        )],
    },
    Mutant {
        name: "ServesLostCopies",
        wrong: "The rest of a copy that was lost with its server takes another server",
        seen_in: "",
        noticed_by: "lost::the_rest_of_a_lost_copy_is_dropped",
        changes: &[change("lifecycle/lost.rs", "if in_copy => «Skips::Copy»", "Skips::Nothing")],
    },
    Mutant {
        name: "KeepsLostValues",
        wrong: "A parameter keeps the value that a lost transaction has set",
        seen_in: "Weir, in seed 111,254",
        noticed_by: "lost::a_lost_parameter_returns",
        changes: &[change("engine/losses.rs", "pair.roll_back_values(io);", "")],
    },
    Mutant {
        name: "HidesLostSettings",
        wrong: "A loss of settings from earlier in a pipeline is not told",
        seen_in: "Weir, in seed 107,675",
        noticed_by: "lost::a_pipeline_may_lose_settings",
        changes: &[change("lifecycle/lost.rs", "«traces.earlier» || is_over", "false")],
    },
    Mutant {
        name: "HidesLostRefusal",
        wrong: "A refusal that is held is not answered if its server ends",
        seen_in: "Weir, in seed 636,392",
        noticed_by: "renewal::a_held_refusal_is_told_as_a_loss",
        changes: &[change(
            "lifecycle/lost.rs",
            "let unanswered = «refused».map_or(",
            "refused.filter(|_| false)",
        )],
    },
    Mutant {
        name: "KeepsDeafClients",
        wrong: "A client that may listen is kept when its server is lost",
        seen_in: "Weir, in seed 564,874",
        noticed_by: "clusters::a_client_that_may_listen_is_disconnected",
        changes: &[change("lifecycle/lost.rs", "&& «!server.may_lose_channels()»", "true")],
    },
    Mutant {
        name: "LeavesRefusal",
        wrong: "A refusal outlives its client",
        seen_in: "Weir, in seed 513,742",
        noticed_by: "outdated::a_client_that_leaves_meanwhile_leaves_no_refusal",
        changes: &[change("relay/kept_request.rs", "kept.refused = None;", "")],
    },
    Mutant {
        name: "KeepsForeignEars",
        wrong: "A loss leaves a client of another encoding deaf",
        seen_in: "Weir, read beside a PAUSE",
        noticed_by: "lost::a_client_of_another_encoding_is_not_left_deaf",
        changes: &[change(
            "lifecycle/lost.rs",
            "&& «!keeps_channels_there(client, server)»",
            "true",
        )],
    },
    Mutant {
        name: "PausesListenersForEver",
        wrong: "PAUSE waits for a client that only listens",
        seen_in: "Weir, in a direct pool",
        noticed_by: "deaf::a_pause_takes_the_server_of_a_client_that_listens",
        changes: &[change(
            "notify/listen.rs",
            "let is_free = «is_between(self.client, server)» && passes_channels(self.client);",
            "false",
        )],
    },
    Mutant {
        name: "PausesForeignEars",
        wrong: "PAUSE takes a server that hears for another encoding",
        seen_in: "never",
        noticed_by: "deaf::a_pause_waits_for_a_client_of_another_encoding",
        changes: &[change(
            "notify/listen.rs",
            "let is_free = is_between(self.client, server) && «passes_channels(self.client)»;",
            "true",
        )],
    },
    Mutant {
        name: "RollsBackCommitted",
        wrong: "A parameter of a committed transaction is lost with a later request",
        seen_in: "Weir, in pipelines",
        noticed_by: "lost::a_committed_parameter_stays",
        changes: &[change(
            "relay/replies.rs",
            "if let Some((schema, reported)) = «self.server.changes.end_transaction()» {",
            "None::<(bool, crate::relay::changes::Reported)>",
        )],
    },
    Mutant {
        name: "RenewsForLostRequest",
        wrong: "After a loss, the next request counts as the lost one",
        seen_in: "Weir, after seed 346,043",
        noticed_by: "lost::the_next_statement_is_asked_about",
        changes: &[change("lifecycle/lost.rs", "client.end_request();", "")],
    },
    Mutant {
        name: "CountsLostBackends",
        wrong: "A lost backend of a direct pool counts as one that serves clients",
        seen_in: "",
        noticed_by: "direct::the_last_server_is_lost_and_the_library_gone",
        changes: &[change(
            "admission/pool/lobby.rs",
            "self.attendance.present -= u32::from(epoch == self.epoch);",
            "let _ = epoch;",
        )],
    },
    Mutant {
        name: "WaitsForRefusedServers",
        wrong: "Clients of a direct pool wait for servers that PostgreSQL refuses",
        seen_in: "Weir",
        noticed_by: "direct::clients_are_refused_with_their_pools_logins",
        changes: &[change(
            "admission/pool/lobby.rs",
            "let refuses = «self.refusal(now).is_some()»;",
            "false",
        )],
    },
    Mutant {
        name: "TellsTheCachedRefusal",
        wrong: "Direct pools: a client gets Weir's words when PostgreSQL refuses a login",
        seen_in: "Weir",
        noticed_by: "direct::a_refused_login_before_the_last_loss",
        changes: &[change(
            "admission/pool/lobby.rs",
            "«failure.refusal.clone().filter(|_| is_refused)»",
            "is_refused.then(|| failure.error.clone())",
        )],
    },
    Mutant {
        name: "ProxiesTheFirstOfAll",
        wrong: "Direct pools: who logs in while no server is open stays proxied",
        seen_in: "Weir",
        noticed_by: "direct::logins_wait_for_the_lobby_if_no_server_is_open",
        changes: &[change(
            "admission/pool/lobby.rs",
            "Lobby::Works if «self.current_welcome().is_none()» &&",
            "false",
        )],
    },
    Mutant {
        name: "KeepsIdleLobbies",
        wrong: "An idle server of a direct pool makes no room for another pool",
        seen_in: "Weir",
        noticed_by: "lobby_seats::an_idle_server_leaves_its_lobby_for_another_pool",
        changes: &[change(
            "admission/seat.rs",
            "let idlest = «pool.idlest()».filter(",
            "None::<Idlest>",
        )],
    },
];
