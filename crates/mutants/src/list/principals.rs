//! Servers whose role or stored settings have changed in PostgreSQL. The simulator's PostgreSQL has no
//! roles that change: scripted tests notice these mutants.

use super::{Mutant, change};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "LinksFormerRoles",
        wrong: "A client gets a server of another role than it has logged in as",
        seen_in: "PgBouncer",
        noticed_by: "principals::clients_of_a_former_role_leave",
        changes: &[change(
            "engine/pools.rs",
            "«client.pool.has_another_role(now)» && client.is_welcomed()",
            "now == u16::MAX",
        )],
    },
    Mutant {
        name: "KeepsFormerSettings",
        wrong: "New clients get servers with the settings from before ALTER ROLE … SET",
        seen_in: "PgBouncer",
        noticed_by: "principals::changed_settings_replace_servers",
        changes: &[change(
            "admission/pool/principal.rs",
            "known.as_ref().is_none_or(|known| «known == new»)",
            "known.role == new.role",
        )],
    },
    Mutant {
        name: "KeepsServersOfDroppedRoles",
        wrong: "The servers of a role that was dropped stay",
        seen_in: "PgBouncer",
        noticed_by: "principals::a_dropped_role_has_no_servers",
        changes: &[change(
            "admission/pool/principal.rs",
            "if «is_same && !is_role» {",
            "is_same && !is_role || new.is_none()",
        )],
    },
    Mutant {
        name: "AsksWithoutEnd",
        wrong: "A node that ends each session that asks is asked forever",
        seen_in: "Weir",
        noticed_by: "principals::a_node_that_ends_asking_sessions_is_left_alone",
        changes: &[change(
            "admission/pool/principal.rs",
            "if «self.principals.losses > LOSSES_MAX» {",
            "false",
        )],
    },
    Mutant {
        name: "BelievesAPooler",
        wrong: "A node that maps names has its servers replaced forever",
        seen_in: "Weir",
        noticed_by: "principals::a_node_that_maps_names_is_left_alone",
        changes: &[change(
            "admission/pool/principal.rs",
            "if «self.principals.disagreements > DISAGREEMENTS_MAX» {",
            "false",
        )],
    },
    Mutant {
        name: "AsksAtEachLogin",
        wrong: "Each login costs a query",
        seen_in: "",
        noticed_by: "principals::one_client_in_a_second_has_a_server_asked",
        changes: &[change(
            "admission/pool/principal.rs",
            "self.principals.asked_at.map_or(0, |at| «at.saturating_add(interval)»)",
            "at.min(interval)",
        )],
    },
    Mutant {
        name: "OpensBesideTheAsked",
        wrong: "While a server is asked, another one is opened",
        seen_in: "",
        noticed_by: "principals::a_node_that_cannot_answer_is_not_asked_again",
        changes: &[change(
            "admission/pool/opening.rs",
            "let under_way = «self.places_opening() + self.asked()»;",
            "self.places_opening()",
        )],
    },
    Mutant {
        name: "ForgetsWhoWaitsForAnAnswer",
        wrong: "A login hangs if the server that is asked is lost",
        seen_in: "",
        noticed_by: "principals::a_server_lost_while_asked_costs_no_login",
        changes: &[change(
            "engine/losses.rs",
            "self.work.extend(«newcomer.map(Work::Checked)»);",
            "newcomer.map(Work::Checked).filter(|_| false)",
        )],
    },
];
