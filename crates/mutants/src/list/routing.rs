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
];
