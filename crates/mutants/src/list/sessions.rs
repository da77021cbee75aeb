//! Session state: settings, and auto mode.

use super::{Mutant, change};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "LeaksSettings",
        wrong: "A client gets the settings of the previous client",
        seen_in: "pgbouncer#1576, pgdog#686",
        noticed_by: "answers",
        changes: &[change(
            "lifecycle/prepare.rs",
            "if «!self.client.vars.is(&server.vars)» {",
            "false",
        )],
    },
    Mutant {
        name: "MissesSetInTransaction",
        wrong: "Changes by SET within a transaction are ignored",
        seen_in: "multigres#1134, multigres#1138",
        noticed_by: "answers",
        changes: &[change(
            "relay/replies/parameters.rs",
            "let Some(slot) = «self.names.slot(status.name)» else {",
            "{
                    let slot = self.names.slot(status.name);
                    slot.filter(|_| self.server.status.is_idle())
                }",
        )],
    },
    Mutant {
        name: "SkipsReset",
        wrong: "A session is reused without a reset",
        seen_in: "Odyssey without pool_discard, pgdog#684",
        noticed_by: "sessions",
        changes: &[change("lifecycle/release.rs", "if «settings.resets(mode)» {", "false")],
    },
    Mutant {
        name: "ForgetsSessionAtReload",
        wrong: "A session loses its server when a reload changes session mode to auto mode",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "server.rs",
            "(mode, _) => «mode»,",
            "if mode == PoolMode::Session { pool } else { mode }",
        )],
    },
    Mutant {
        name: "NeverAsksWhatIsLeft",
        wrong: "Auto mode: no probe follows a transaction",
        seen_in: "transaction pooling as such",
        noticed_by: "answers",
        changes: &[change(
            "session/verdict.rs",
            "if «server.cancel.is_under_way()» { await_cancel(id, client, server, now)",
            "{
                    server.session.own().traces = Traces::default();
                    return Judged::Released;
                }",
        )],
    },
    Mutant {
        name: "KeepsWhatOthersSet",
        wrong: "Auto mode: the previous client's settings are not reset",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change("session/carried.rs", "if «!is_who(name)» && self.get(name)", "false")],
    },
    Mutant {
        name: "ForgetsStartupPacket",
        wrong: "Auto mode: RESET restores the server's default, not the startup packet's value",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "session/new_values.rs",
            "go_back(&mut own, self.startup, self.before, settings);",
            "",
        )],
    },
    Mutant {
        name: "PinsNobody",
        wrong: "Auto mode: a client with a temporary table does not keep its server",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change("session/verdict.rs", "if «pins.is_empty()» { self.server", "true")],
    },
    Mutant {
        name: "LeavesSessionBehind",
        wrong: "Auto mode: the session of a client that leaves is not discarded",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "lifecycle/release.rs",
            "if «!self.server.can_be_discarded()» {",
            "{ self.server.clear_session(); return self.settled(io); }",
        )],
    },
    Mutant {
        name: "ServesWithoutSettings",
        wrong: "Auto mode: a server that refused a client's settings is linked to it anyway",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "lifecycle/prepare.rs",
            "Preparation::Apply | Preparation::Reapply if «server.own_error.is_some()»",
            "false",
        )],
    },
    Mutant {
        name: "TriesOneOrder",
        wrong: "Auto mode: settings that are refused in one order are not tried in the other",
        seen_in: "",
        noticed_by: "causes",
        changes: &[change(
            "lifecycle/apply.rs",
            "if usual.as_ref() != Some(&sql) && «has_session»",
            "false",
        )],
    },
    Mutant {
        name: "TriesOneServer",
        wrong: "Auto mode: a client whose settings one server refused does not get a new server",
        seen_in: "",
        noticed_by: "causes",
        changes: &[change(
            "lifecycle/apply.rs",
            "filter(|own| «may_move && own.may_renew()»)",
            "false",
        )],
    },
    Mutant {
        name: "BelievesUsedServers",
        wrong: "Auto mode: the second used server that refuses a setting decides",
        seen_in: "Weir, in seed 701,040",
        noticed_by: "refused::used_servers_are_replaced",
        changes: &[change(
            "lifecycle/apply.rs",
            "«self.refusals + 1 < REFUSALS_MAX»",
            "self.refusals == 0",
        )],
    },
    Mutant {
        name: "AsksSecondNewServer",
        wrong: "Auto mode: a server is replaced although it was new when it refused the settings",
        seen_in: "",
        noticed_by: "refused::a_new_server_decides",
        changes: &[change(
            "lifecycle/apply.rs",
            "!stays && «server.session.past == Past::Used»",
            "true",
        )],
    },
    Mutant {
        name: "ClosesUsedServers",
        wrong: "Auto mode: a client whose settings are refused closes any number of servers",
        seen_in: "",
        noticed_by: "refused::at_most_three_are_closed",
        changes: &[change("lifecycle/apply.rs", "«session.refusals += 1;»", "")],
    },
    Mutant {
        name: "ClosesServersForInvalidValues",
        wrong: "An invalid value of a reported parameter closes a server",
        seen_in: "PgBouncer, Weir",
        noticed_by: "refused::an_invalid_value_costs_no_server",
        changes: &[change("lifecycle/apply.rs", "(«is_by_value» || is_unused)", "false")],
    },
    Mutant {
        name: "CarriesReservedSettings",
        wrong: "A setting under a reserved prefix costs a server each time",
        seen_in: "Weir",
        noticed_by: "refused::a_setting_whose_prefix_is_reserved_is_lost_once",
        changes: &[change(
            "lifecycle/reserved.rs",
            "filter(|_| «error.sqlstate() == INVALID_NAME.as_bytes()»)",
            "false",
        )],
    },
    Mutant {
        name: "TellsOthersRemovals",
        wrong: "A client learns the name of another client's setting",
        seen_in: "Weir",
        noticed_by: "refused::a_removal_is_told_to_the_client_that_has_the_setting",
        changes: &[change("relay/replies.rs", "&& «reserved::is_removal(body)»", "false")],
    },
    Mutant {
        name: "ForgetsHalfAppliedSettings",
        wrong: "Auto mode: a server with half-applied settings is reused",
        seen_in: "Weir, until the simulator had sessions",
        noticed_by: "answers",
        changes: &[change("lifecycle/leave.rs", "if «applies && is_half» {", "false")],
    },
    Mutant {
        name: "KeepsPins",
        wrong: "Auto mode: a client stays pinned although the reason is gone",
        seen_in: "",
        noticed_by: "rest",
        changes: &[change("session/verdict.rs", "pins |= «pinned.pins.unseen()»;", "pinned.pins")],
    },
    Mutant {
        name: "KeepsPinsAfterDiscard",
        wrong: "Auto mode: DISCARD ALL ends no pin",
        seen_in: "",
        noticed_by: "state_reports::a_function_of_pin_functions_pins_until_discard_all",
        changes: &[change(
            "relay/replies/commands.rs",
            "pinned.pins = «pinned.pins.lasting()»;",
            "pinned.pins",
        )],
    },
    Mutant {
        name: "CrossesWithoutSettings",
        wrong: "Auto mode: a server that goes to another worker counts as having no settings",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "admission/pool/idle.rs",
            "stolen.server.leave_worker();",
            "stolen.server.leave_worker(); stolen.server.vars.change(|vars| vars.carried = \
                 crate::session::carried::Carried::default());",
        )],
    },
    Mutant {
        name: "ForgetsUnderProbe",
        wrong: "Auto mode: if the client leaves during the probe, the session is not discarded",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "lifecycle/leave.rs",
            "let (applies, renews) = (step.applies(), step.renews()); \
             «self.phase.settle(Settling::LastAnswer);»",
            "let probes = matches!(step, crate::server::Preparation::Probe(_)); \
             self.phase.settle(Settling::LastAnswer); \
             let session = self.session.own(); \
             if probes { (session.pinned, session.traces) = (None, Default::default()); }",
        )],
    },
    Mutant {
        name: "KeepsRole",
        wrong: "Auto mode: the previous client's role is not reset",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "session/carried.rs",
            "if «other_role && have.get(ROLE).is_some()» {",
            "false",
        )],
    },
    Mutant {
        name: "KeepsOthersPrepare",
        wrong: "Auto mode: statements of SQL's PREPARE stay on the server for the next client",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "session/carried.rs",
            "if «self.get(name) != Some(value)» { sql.extend_from_slice(b\"DEALLOCATE \");",
            "false",
        )],
    },
    Mutant {
        name: "ForgetsPrepare",
        wrong: "Auto mode: statements of SQL's PREPARE do not follow their client",
        seen_in: "",
        noticed_by: "answers",
        changes: &[
            change(
                "lifecycle/prepare.rs",
                "if «self.client.vars.prepared != self.server.vars.prepared» {",
                "false",
            ),
            change(
                "lifecycle/prepare.rs",
                "Applied::InEffect => «self.prepare_statements(io)»,",
                "Prepared::Ready",
            ),
        ],
    },
    Mutant {
        name: "KeepsSearchPath",
        wrong: "Auto mode: search_path is not reset if the next client has other settings",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "session/carried.rs",
            r#"if !is_who(name) && «self.get(name).is_none()» {"#,
            r#"self.get(name).is_none() && (self.is_empty() || **name != *b"search_path")"#,
        )],
    },
    Mutant {
        name: "BelievesFailedReset",
        wrong: "A server whose reset failed is reused",
        seen_in: "",
        noticed_by: "sessions",
        changes: &[change(
            "lifecycle/release.rs",
            "if «self.server.own_error.is_some()» { self.report_failed(io);",
            "self.server.own_error.take().is_none() && false",
        )],
    },
    Mutant {
        name: "TrustsFunctions",
        wrong: "Auto mode: functions are assumed to set nothing",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "session/text_history.rs",
            "Some(Standing::Watched { .. }) | None => «false»,",
            "true",
        )],
    },
    Mutant {
        name: "ForgetsLocks",
        wrong: "Auto mode: a client with an advisory lock does not keep its server",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change("session/left.rs", r#"b"k" => Some(«Pins::LOCK»),"#, r#"Pins::NONE"#)],
    },
    Mutant {
        name: "ForgetsCursors",
        wrong: "Auto mode: a client with a cursor WITH HOLD does not keep its server",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change("session/left.rs", r#"b"c" => Some(«Pins::CURSOR»),"#, r#"Pins::NONE"#)],
    },
    Mutant {
        name: "BelievesSetLocal",
        wrong: "Auto mode: RESET restores a value of SET LOCAL",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "relay/replies/parameters.rs",
            "let may_set = «self.server.session.may_set»;",
            "false",
        )],
    },
    Mutant {
        name: "ForgetsNumbers",
        wrong: "Auto mode: a client's sequence numbers are discarded before it asks for them",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "relay/requests/numbers.rs",
            "if «texts.history.asks_numbers || may_draw» {",
            "seen.signs.intersects(Signs::SEQUENCE)",
        )],
    },
    Mutant {
        name: "MissesVersion",
        wrong: "Weir ignores which parameters a server of another version reports",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "lifecycle/prepare.rs",
            "follow_reports(self.client, server, &self.context.names);",
            "",
        )],
    },
    Mutant {
        name: "ForgetsValueAtQuestion",
        wrong: "Auto mode: a reload during a question changes a client's value",
        seen_in: "Weir, in seed 197,124",
        noticed_by: "outdated::a_reload_changes_no_value",
        changes: &[change(
            "relay/resend.rs",
            "Renewed::Again { prepares: «server.is_as_prepared(mode)» }",
            "false",
        )],
    },
    Mutant {
        name: "KeepsValuesOfEndedSession",
        wrong: "Auto mode: a value survives DISCARD ALL in a late session",
        seen_in: "Weir, in seed 196,546",
        noticed_by: "modes::discard_all_resets_earlier_values",
        changes: &[change(
            "relay/replies/commands.rs",
            "if «session.startup.get(slot) != client.vars.get(slot)» {",
            "false",
        )],
    },
    Mutant {
        name: "ForgetsKnownNames",
        wrong: "Auto mode: unknown settings stay",
        seen_in: "Weir",
        noticed_by: "setting_names::unknown_settings_are_discarded",
        changes: &[change(
            "session/text_history.rs",
            "if self.customs.len() == CUSTOMS_MAX {
                «self.has_dropped = true;»",
            "",
        )],
    },
    Mutant {
        name: "TrustsWithoutKnowing",
        wrong: "Auto mode: a function is trusted though settings are unknown",
        seen_in: "Weir",
        noticed_by: "setting_names::unknown_settings_are_discarded",
        changes: &[change(
            "session/verdict.rs",
            "} else if is_unknown || «view.history.has_dropped()» {",
            "false",
        )],
    },
    Mutant {
        name: "TrustsUnsearched",
        wrong: "Auto mode: a function is trusted with unsearched parameters",
        seen_in: "Weir",
        noticed_by: "setting_names::unsearched_parameters_prove_nothing",
        changes: &[change(
            "session/verdict.rs",
            "let is_unknown = «matches!(*server.doomed, Some(CloseReason::SettingsUnknown))»;",
            "false",
        )],
    },
    Mutant {
        name: "KeepsUnknownAfterPin",
        wrong: "Auto mode: unknown settings stay after a pin",
        seen_in: "Weir",
        noticed_by: "setting_names::unknown_settings_end_with_a_pin",
        changes: &[change(
            "session/verdict.rs",
            "self.server.doomed.retire(CloseReason::SettingsUnknown);",
            "",
        )],
    },
    Mutant {
        name: "CarriesDefaults",
        wrong: "Auto mode: a server's default of an application setting is carried to other servers",
        seen_in: "Weir",
        noticed_by: "setting_names::a_default_is_not_carried",
        changes: &[change(
            "session/new_values.rs",
            "let was_set = «self.before.carried.get(&one.name) == Some(&*one.value)»;",
            "true",
        )],
    },
    Mutant {
        name: "DropsSetDefaults",
        wrong: "Auto mode: a client loses a value that it has set and that equals a server's default",
        seen_in: "Weir",
        noticed_by: "setting_names::a_set_default_is_carried",
        changes: &[change(
            "session/new_values.rs",
            "let was_set = «self.before.carried.get(&one.name) == Some(&*one.value)»;",
            "false",
        )],
    },
];
