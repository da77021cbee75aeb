//! Events for a client or a server that is gone, when another one has its slot. The simulator does not meet
//! them: scripted tests notice these mutants.

use super::{Mutant, change};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "TellsNewcomers",
        wrong: "Auto mode: notifications reach the next client in a slot",
        seen_in: "",
        noticed_by: "listen::a_notification_is_not_for_the_next_client_in_a_slot",
        changes: &[change(
            "engine/listeners.rs",
            "|client| «client.serial == serial»",
            "client.serial > 0 || serial > 0",
        )],
    },
    Mutant {
        name: "AdmitsNewcomers",
        wrong: "A right password lets in the client that has the slot now",
        seen_in: "",
        noticed_by: "judged::an_answer_is_for_the_question_that_was_asked",
        changes: &[change(
            "engine/events.rs",
            "checked: &Checked, io: &mut impl Io<X>) { \
                 if self.clients.get(id).is_some_and(|client| «client.serial == serial») {",
            "client.serial > 0 || serial > 0",
        )],
    },
    Mutant {
        name: "SignalsNewcomers",
        wrong: "Auto mode: pg_cancel_backend hits the client that has the slot now",
        seen_in: "",
        noticed_by: "signals::a_later_client_in_its_place_is_not_hit",
        changes: &[change(
            "engine/cancels.rs",
            "self.clients.get(id).filter(|client| «client.serial == serial»)",
            "client.serial > 0 || serial > 0",
        )],
    },
    Mutant {
        name: "EndsOthersCancels",
        wrong: "Ends of cancel requests count for other servers",
        seen_in: "",
        noticed_by: "cancel::the_end_of_a_request_for_a_lost_server_does_not_count_for_another",
        changes: &[change(
            "engine/cancels.rs",
            "self.servers.get_mut(on).filter(|found| «found.serial == serial»)",
            "found.serial > 0 || serial > 0",
        )],
    },
    Mutant {
        name: "AnswersNewcomers",
        wrong: "Answers to cancel requests count for newcomers",
        seen_in: "",
        noticed_by: "cancel::the_answers_to_a_requester_that_has_left_do_not_count_for_another",
        changes: &[change(
            "engine/cancels.rs",
            "if «client.serial != serial» { return Requested::Nothing;",
            "false",
        )],
    },
];
