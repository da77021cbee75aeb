//! Requests that are read before a pool is chosen.

use super::{Mutant, change};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "RoutesOnce",
        wrong: "A request behind another one on a reader is sent there without being routed",
        seen_in: "",
        noticed_by: "places",
        changes: &[change(
            "relay/requests.rs",
            "if «self.place != Place::Writer» && self.awaits_turn(header.code)",
            "false",
        )],
    },
    Mutant {
        name: "RoutesByItsBeginning",
        wrong: "The first message of a batch decides where the batch goes",
        seen_in: "",
        noticed_by: "places",
        changes: &[change(
            "routing/first_request.rs",
            "if «is_end» { return FirstRequest::Whole(at); }",
            "is_end || header.code == frontend::PARSE",
        )],
    },
    Mutant {
        name: "LeavesHeldRequests",
        wrong: "A request that was sent ahead is not routed when the reader has answered",
        seen_in: "",
        noticed_by: "waits",
        changes: &[change("routing/choose.rs", "«self.work.push_back(Work::Route(id));»", "")],
    },
    Mutant {
        name: "PassesRefusals",
        wrong: "A client gets a reader's refusal, and the writer is not asked",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "relay/requests/keeping.rs",
            "let asks_writer = «self.place != Place::Writer» && server.ledger.is_untouched();",
            "false",
        )],
    },
    Mutant {
        name: "ReadsRefusalsAtOnce",
        wrong: "The messages before a refusal are passed on, so that the client keeps them",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change("routing/refusal.rs", "return «Word::Open»", "Word::Answers")],
    },
    Mutant {
        name: "KeepsRefusedNames",
        wrong: "The names of a refused request stay taken when the writer is asked",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "routing/refused.rs",
            "«undo_for_client(entry, client);»",
            "let _ = entry;",
        )],
    },
];
