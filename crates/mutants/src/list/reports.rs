//! State reports of the library `weir`, in auto mode.

use super::{Mutant, change};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "TakesReportForTheNextTransactions",
        wrong: "Auto mode: a report counts for the transaction after its own",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "session/state_report.rs",
            "pub fn state(&self) -> Option<Left> { read(«&self.value»)",
            "self.before.as_ref().unwrap_or(&self.value)",
        )],
    },
    Mutant {
        name: "LosesReport",
        wrong: "Auto mode: the reports of a server that is in use are lost",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "relay/replies/parameters.rs",
            "«self.news.bad_report |= !self.server.hear_state(status.value);» return Owner::Nobody;",
            "",
        )],
    },
    Mutant {
        name: "BelievesClientsReport",
        wrong: "Auto mode: a client's own setting of the report's name counts as a report",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "session/hearing.rs",
            "if is_clients { «self.remember_vars();» } let Some(session)",
            "self.remember_vars();
                if self.session.state_report.is_none() {
                    let report = crate::session::state_report::StateReport::at_login(value);
                    self.session.own().state_report = report.map(Box::new);
                }",
        )],
    },
    Mutant {
        name: "MergesEvents",
        wrong: "Auto mode: the events of several transactions lose their order",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "session/state_report.rs",
            "self.events.discards = true; } «self.events.pins |= events.pins;»",
            "self.events.pins |= events.pins;
                if self.events.discards {
                    self.events.pins = self.events.pins.without(Pins::SEQUENCE);
                }",
        )],
    },
    Mutant {
        name: "AnswersWithRefusal",
        wrong: "Auto mode: a client gets the refusal of a request that followed refused settings",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "lifecycle/ahead.rs",
            "if «server.own_error.is_some()» { drop_reserved(self.id",
            "{ server.own_error.take(); false }",
        )],
    },
    Mutant {
        name: "GuessesAfterReset",
        wrong: "Auto mode: RESET goes back to the default at login",
        seen_in: "Weir, in seed 26,305",
        noticed_by: "ahead::a_reset_brings_the_default_of_now",
        changes: &[change(
            "session/ahead.rs",
            "(0..names.len()).filter(|slot| «!reported.has(*slot)»)",
            "reported.has(*slot) && false",
        )],
    },
    Mutant {
        name: "LosesOwnValueAtReload",
        wrong: "Auto mode: a new default becomes the client's value",
        seen_in: "Weir, in seed 26,975",
        noticed_by: "defaults::a_new_default_is_not_the_clients_value",
        changes: &[change(
            "relay/replies/parameters.rs",
            "if «is_auto && reports» { self.server.note_changed(slot);",
            "is_auto && reports && !may_set",
        )],
    },
    Mutant {
        name: "LosesOwnValueAtNextReload",
        wrong: "Auto mode: a second new default hides the client's own value",
        seen_in: "Weir, in seed 459,128",
        noticed_by: "defaults::a_question_hides_no_reload",
        changes: &[change(
            "session/verdict.rs",
            "else if let Some(own) = «followed.filter(|_| is_given)» {",
            "followed.filter(|_| is_given && client.vars.get(slot) == Some(value))",
        )],
    },
    Mutant {
        name: "MistakesErrorOfLent",
        wrong: "Auto mode: the error of a lent statement spoils the report",
        seen_in: "Weir, in seed 28,991",
        noticed_by: "state_reports::a_refused_loan_pins_nobody",
        changes: &[change(
            "relay/replies/statements.rs",
            "if «!matches!(*self.server.phase, ServerPhase::Linked)» { self.server.own_error",
            "true",
        )],
    },
    Mutant {
        name: "RestartLosesPending",
        wrong: "Auto mode: a restart loses settings that wait",
        seen_in: "Weir, until the simulator had it",
        noticed_by: "ahead::waiting_settings_are_not_handed_over",
        changes: &[change(
            "handover/export.rs",
            "!self.cancel.is_under_way() && «!self.awaits_settings()» }",
            "true",
        )],
    },
    Mutant {
        name: "RestartForgetsOwnValues",
        wrong: "Auto mode: a restart forgets a hidden value of a client",
        seen_in: "Weir, in seed 789,740",
        noticed_by: "defaults::a_restart_meanwhile_hides_no_reload",
        changes: &[change(
            "handover/import.rs",
            "session.followed = record.followed.map(|at| tables.vars(at));",
            "",
        )],
    },
    Mutant {
        name: "RestartForgetsResets",
        wrong: "Auto mode: a restart forgets what was reset",
        seen_in: "Weir, beside seed 789,740",
        noticed_by: "defaults::a_reset_before_a_restart_goes_back",
        changes: &[change(
            "handover/import.rs",
            "session.resets = std::mem::take(&mut record.resets);",
            "",
        )],
    },
    Mutant {
        name: "RestartDoubtsTexts",
        wrong: "Auto mode: a restart takes known texts for unknown",
        seen_in: "Weir, beside seed 789,740",
        noticed_by: "handover::the_next_process_knows_an_emptied_setting",
        changes: &[change(
            "handover/import.rs",
            "session.traces = «record.traces»;",
            "{ record.traces.signs |= sql::Signs::OPAQUE; record.traces }",
        )],
    },
    Mutant {
        name: "RestartForgetsTraces",
        wrong: "Auto mode: a restart forgets what a transaction's texts may leave",
        seen_in: "",
        noticed_by: "handover::the_next_process_knows_invisible_state",
        changes: &[change("handover/import.rs", "session.traces = record.traces;", "")],
    },
    Mutant {
        name: "KeepsEvents",
        wrong: "Auto mode: the events of a transaction also count for later ones",
        seen_in: "",
        noticed_by: "rest",
        changes: &[change(
            "session/state_report.rs",
            "self.before = None; «self.events = Events::default();» self.is_news",
            "",
        )],
    },
];
