//! The operator's orders.

use super::{Mutant, change};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "ForgetsMarks",
        wrong: "A client of a marked server finds the mark as its `application_name`",
        seen_in: "",
        noticed_by: "marks::the_next_client_of_a_marked_server_has_its_own_name",
        changes: &[change(
            "lifecycle/mark.rs",
            "«None» }",
            "{
                    server.vars = server.welcome.vars.clone();
                    None
                }",
        )],
    },
    Mutant {
        name: "RenewsMarked",
        wrong: "A marked server counts as the one that was used last",
        seen_in: "",
        noticed_by: "marks::a_marked_server_keeps_its_place_and_its_age",
        changes: &[change(
            "admission/pool/idle.rs",
            "let at = «idle.partition_point(|other| released_at(other) <= released_at(&last))»;",
            "idle.len()",
        )],
    },
    Mutant {
        name: "TimesTheLastServer",
        wrong: "The checkpoints of a connection's server are those of its second one",
        seen_in: "",
        noticed_by: "timings",
        changes: &[
            change("operator/timings.rs", "if «connection.choice == Choice::None» {", "true"),
            change("operator/timings.rs", "«connection.sent_at == 0» }", "true"),
        ],
    },
    Mutant {
        name: "KeepsAllTimings",
        wrong: "The checkpoints of all ended connections are kept",
        seen_in: "",
        noticed_by: "timings",
        changes: &[change(
            "operator/timings.rs",
            "if «self.ended.len() > self.kept» {",
            "self.kept == 0",
        )],
    },
    Mutant {
        name: "TimesTheAnswerBeforeTheQuestion",
        wrong: "The first answer to a connection is taken from the time of its login",
        seen_in: "",
        noticed_by: "timings",
        changes: &[change(
            "operator/timings.rs",
            "«over.queued_at» + Micros::from(first_byte)",
            "connection.accepted_at",
        )],
    },
    Mutant {
        name: "ReloadDropsServers",
        wrong: "A reload ends the servers in use",
        seen_in: "odyssey#209, pgagroal#946",
        noticed_by: "causes",
        changes: &[change(
            "engine/relay.rs",
            "let server = «&mut *self.servers[on]»; if matches!(*server.phase, \
                 ServerPhase::Finishing) && server.ledger.awaits_message()",
            r#"{
                    let pool = self.servers[on].pool;
                    let size = self.pools.settings(pool).size;
                    if self.pools.exchange.pool(pool, |pool| pool.counts().0 > size) {
                        return self.lose_server(on, crate::lifecycle::close_reason::CloseReason::TooMany, io);
                    }
                    &mut *self.servers[on]
                }"#,
        )],
    },
    Mutant {
        name: "ServesWhilePaused",
        wrong: "Waiting clients are served during PAUSE",
        seen_in: "pgbouncer#35",
        noticed_by: "orders",
        changes: &[change(
            "admission/pool.rs",
            "if «self.gate != Gate::Open» { return Next::Close(self.gate.server_reason());",
            "self.gate != Gate::Open && self.waiting_total() == 0",
        )],
    },
    Mutant {
        name: "KeepsPausedServers",
        wrong: "Idle servers of a paused pool stay, and PAUSE never ends",
        seen_in: "pgcat#917",
        noticed_by: "orders",
        changes: &[change(
            "engine/orders.rs",
            "«self.seats().close_parked(condemned, io);»",
            "if gate != Gate::Paused { self.seats().close_parked(condemned, io); }",
        )],
    },
    Mutant {
        name: "BlamesOrders",
        wrong: "A login that PAUSE or RECONNECT ends counts as a failure of the server",
        seen_in: "pgbouncer#420",
        noticed_by: "causes",
        changes: &[change(
            "engine/orders.rs",
            "if let Some(pool) = «self.seats().end_login(id, why, io)»",
            "return self.open_failed(id, why, None, io)",
        )],
    },
    Mutant {
        name: "ResumesNobody",
        wrong: "RESUME does not wake waiting clients",
        seen_in: "pgbouncer#1565",
        noticed_by: "orders",
        changes: &[change(
            "engine/orders.rs",
            "pool.reserve_opening(now)); if open { «self.open_server(id, io);»",
            "self.pools.exchange.pool(id, crate::pool::Pool::withdraw_opening);",
        )],
    },
    Mutant {
        name: "KeepsObsoleteServers",
        wrong: "Servers that RECONNECT should replace are still linked",
        seen_in: "pgcat#232",
        noticed_by: "orders",
        changes: &[change(
            "admission/pool.rs",
            "if «epoch != self.epoch» { return Next::Close",
            "false",
        )],
    },
    Mutant {
        name: "AdmitsToDisabled",
        wrong: "DISABLE has no effect on logins",
        seen_in: "",
        noticed_by: "orders",
        changes: &[change(
            "login/steps.rs",
            "if «pool.lock(|pool| pool.disabled)» { let text",
            "false",
        )],
    },
    Mutant {
        name: "KillsStrangers",
        wrong: "KILL_CLIENT ends the client that has the slot now, not the one that was meant",
        seen_in: "pgbouncer, whose ids are descriptors",
        noticed_by: "causes",
        changes: &[change(
            "engine/events.rs",
            "is_some_and(|client| «client.serial == serial»); if found {",
            "client.serial > 0 || serial > 0",
        )],
    },
    Mutant {
        name: "FollowsReloads",
        wrong: "Auto mode: a reload of PostgreSQL's configuration overrides a client's own value",
        seen_in: "",
        noticed_by: "answers",
        changes: &[
            change(
                "relay/replies/parameters.rs",
                "if is_auto && (!may_set || has_left) { if «client.vars.given().has(slot)» {",
                "false",
            ),
            change(
                "relay/replies/parameters.rs",
                "if «is_auto && client.vars.given().has(slot)» { self.server.session.own().followed",
                "false",
            ),
        ],
    },
    Mutant {
        name: "RestartForgetsPins",
        wrong: "Auto mode: after an online restart, a pinned client does not keep its server",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "handover/export.rs",
            "pinned: «server.session.pinned.as_deref().copied()»,",
            "None",
        )],
    },
    Mutant {
        name: "RestartHidesGap",
        wrong: "Auto mode: after an online restart, a client with a server gets no WARNING",
        seen_in: "Weir, until the simulator had it",
        noticed_by: "waits",
        changes: &[change(
            "notify/listen.rs",
            "let keeps = «pinned.is_some_and(|pinned| pinned.pins.contains(Pins::LISTEN))»;",
            "self.client.server.is_some()",
        )],
    },
    Mutant {
        name: "RestartForgetsNames",
        wrong: "After an online restart, a client's prepared statements are missing",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "handover/import.rs",
            "extended.statements.import(name, statement.clone(), since, shape);",
            "drop((name, since, shape));",
        )],
    },
    Mutant {
        name: "RestartForgetsSettings",
        wrong: "After an online restart, a server counts as having the settings of its login",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "handover/import.rs",
            "server.vars = tables.vars(self.vars);",
            "server.vars = server.welcome.vars.clone();",
        )],
    },
];
