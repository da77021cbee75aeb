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
        changes: &[change(
            "routing/choose.rs",
            "if client.stream.holds_message() { «self.work.push_back(Work::Route(id));» }",
            "",
        )],
    },
    Mutant {
        name: "PassesRefusals",
        wrong: "A client gets a reader's refusal, and the writer is not asked",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "relay/requests/keeping.rs",
            "let asks_writer = self.may_move && «self.place != Place::Writer» && \
             server.ledger.is_untouched();",
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
    Mutant {
        name: "ForgetsOwnWrites",
        wrong: "A session's write is not noted, so its next read may be stale",
        seen_in: "Pgpool-II 4.3",
        noticed_by: "reads::a_session_sees_its_own_writes",
        changes: &[change("routing/sessions.rs", "«session.wrote.note(now);»", "")],
    },
    Mutant {
        name: "BelievesOldCatalogs",
        wrong: "A text is judged by catalogs older than the schema",
        seen_in: "",
        noticed_by: "reads::old_catalogs_keep_reads_on_the_primary",
        changes: &[change(
            "routing/choose.rs",
            "Ok(Wish::Standby) if «!catalog.is_of(schema)»",
            "false",
        )],
    },
    Mutant {
        name: "ReadsUnfitStandbys",
        wrong: "A standby is read that was never sampled",
        seen_in: "Pgpool-II 4.3",
        noticed_by: "reads::a_standby_that_may_not_be_read_gets_nothing",
        changes: &[change(
            "routing/readers.rs",
            "«(moment != 0).then_some(moment)»",
            "Some(moment)",
        )],
    },
    Mutant {
        name: "LeavesReaderUnread",
        wrong: "A client is not read any more when no reader serves it",
        seen_in: "Weir, in seed 234,057",
        noticed_by: "routing::a_client_that_no_reader_serves_is_read",
        changes: &[change(
            "routing/choose.rs",
            "«io.resume_client(id);» match self.routes(client.pool)",
            "",
        )],
    },
    Mutant {
        name: "RepeatsHintedWrites",
        wrong: "A write that a hint has sent to a lost standby is run again",
        seen_in: "",
        noticed_by: "reads::a_write_that_a_hint_sent_to_a_lost_standby_is_not_repeated",
        changes: &[change(
            "relay/kept_request.rs",
            "!self.has_effect || self.asks_writer && «self.is_read»",
            "true",
        )],
    },
    Mutant {
        name: "RepeatsProcedures",
        wrong: "A procedure that may have committed is run again after its error",
        seen_in: "",
        noticed_by: "reads::a_write_that_a_standby_refuses_is_run_by_the_primary",
        changes: &[change("routing/refusal.rs", "|| «is_read» && matches!(", "true")],
    },
    Mutant {
        name: "ReadsBeforeItsArrival",
        wrong: "A strict read runs on a standby that lacks earlier commits",
        seen_in: "",
        noticed_by: "reads::a_strict_read_waits_for_a_sample_behind_its_arrival",
        changes: &[change("routing/choose.rs", "«need.wrote.note(since);»", "")],
    },
    Mutant {
        name: "WaitsForStandbysForever",
        wrong: "A read waits for a fresher standby without a limit",
        seen_in: "",
        noticed_by: "reads::a_read_does_not_wait_longer_than_allowed",
        changes: &[change(
            "routing/hold.rs",
            "let waits = «is_early» && routing.rules.wait_for(why);",
            "true",
        )],
    },
    Mutant {
        name: "ForgetsToken",
        wrong: "A read runs on a standby that lacks the position of the session's weir.token",
        seen_in: "",
        noticed_by: "reads::a_position_of_another_session_must_be_there",
        changes: &[change("routing/choose.rs", "need.token = «token»;", "0")],
    },
    Mutant {
        name: "NotesFirstWrite",
        wrong: "A session's later writes are not noted",
        seen_in: "",
        noticed_by: "standbys::a_session_sees_its_own_writes",
        changes: &[change(
            "routing/freshness.rs",
            "self.0 = «self.0.max(Some(now))»;",
            "self.0.or(Some(now))",
        )],
    },
    Mutant {
        name: "TakesEqualMoments",
        wrong: "A standby is read that is fresh as of the microsecond of the session's write",
        seen_in: "",
        noticed_by: "standbys::a_session_sees_its_own_writes",
        changes: &[change(
            "routing/freshness.rs",
            "(needed.is_none() || «fresh_as_of > needed»)",
            "fresh_as_of >= needed",
        )],
    },
    Mutant {
        name: "StaysWithStaleStandby",
        wrong: "A session stays with its standby, which lacks the session's writes",
        seen_in: "",
        noticed_by: "standbys::a_session_sees_its_own_writes",
        changes: &[change(
            "routing/choose.rs",
            "&& «routing.node(*node, need, now).is_ok()» };",
            "true",
        )],
    },
    Mutant {
        name: "LeavesFullStandbyBlindly",
        wrong: "A read leaves a full standby for one that lacks the session's writes",
        seen_in: "",
        noticed_by: "standbys::a_session_sees_its_own_writes",
        changes: &[change(
            "routing/choose.rs",
            "self.routing_of(id)?.others(node, «need», now).collect();",
            "Need::default()",
        )],
    },
    Mutant {
        name: "ForgetsWritesOfOthers",
        wrong: "With read_after_write = user, writes of other sessions do not count",
        seen_in: "",
        noticed_by: "standbys::a_session_sees_the_writes_of_its_user",
        changes: &[change("routing/sessions.rs", "«routing.note_write(now);»", "")],
    },
    Mutant {
        name: "ReadsOldStandbys",
        wrong: "A standby is read whose data is older than max_staleness",
        seen_in: "",
        noticed_by: "standbys::a_read_is_never_older_than_allowed",
        changes: &[change(
            "routing/rules.rs",
            "let may = «limits.allow(was_too_old, Some(fresh_as_of), reader.lag_bytes(), now)»;",
            "true",
        )],
    },
    Mutant {
        name: "StaysWithSilentStandby",
        wrong: "A read waits forever for a silent standby",
        seen_in: "Weir",
        noticed_by: "silent::a_read_leaves_a_silent_standby",
        changes: &[change(
            "lifecycle/silent.rs",
            "true => «over(self.movable, begun, now)»,",
            "false",
        )],
    },
    Mutant {
        name: "WaitsForSilentPrimary",
        wrong: "A client waits forever for a silent primary",
        seen_in: "Weir",
        noticed_by: "silent::a_client_of_a_silent_primary_is_told_in_time",
        changes: &[change(
            "lifecycle/silent.rs",
            "false => «over(self.other, begun.max(self.since), now)»,",
            "false",
        )],
    },
    Mutant {
        name: "GivesUpAnsweringPrimary",
        wrong: "A server that answers its client is given up with its node",
        seen_in: "",
        noticed_by: "silent::a_primary_that_answers_its_client_is_not_silent",
        changes: &[change(
            "lifecycle/silent.rs",
            "let begun = «asked_at.max(server.times.replied_at)»;",
            "asked_at",
        )],
    },
];
