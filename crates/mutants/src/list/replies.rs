//! Replies that servers owe, and their receivers.

use super::{Mutant, change};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "ForgetsOwedReplies",
        wrong: "A server whose client has left is reused with its replies unread",
        seen_in: "pgdog#759, pgagroal#989",
        noticed_by: "causes",
        changes: &[change(
            "engine/leaving.rs",
            "server.lose_client(client.serial);",
            "server.lose_client(client.serial);
                if !client.stream.is_mid_message()
                    && matches!(*server.phase, crate::server::ServerPhase::Linked)
                {
                    server.ledger = crate::ledger::Ledger::default();
                    server.status = Default::default();
                }",
        )],
    },
    Mutant {
        name: "ForgetsHalfMessage",
        wrong: "A server whose client left in the middle of a message is reused",
        seen_in: "supavisor#1060",
        noticed_by: "causes",
        changes: &[
            change(
                "engine/leaving.rs",
                "server.lose_client(client.serial);",
                "server.lose_client(client.serial);
                if client.stream.is_mid_message()
                    && matches!(*server.phase, crate::server::ServerPhase::Linked)
                {
                    server.ledger = crate::ledger::Ledger::default();
                    server.status = Default::default();
                }",
            ),
            change(
                "lifecycle/leave.rs",
                "_ if «self.is_clean() && !in_message» => TakenBack::Free",
                "self.is_clean()",
            ),
        ],
    },
    Mutant {
        name: "ReleasesAtFirstReady",
        wrong: "A batch with several ReadyForQuery counts as over at the first one",
        seen_in: "supavisor#1079",
        noticed_by: "causes",
        changes: &[change(
            "relay/ledger.rs",
            "self.in_batch = self.latest.is_opening_owed();",
            "self.abandon(&mut |_| ());
                self.in_batch = false;",
        )],
    },
    Mutant {
        name: "ReleasesInBatch",
        wrong: "A batch without its Sync does not hold the server",
        seen_in: "pgdog#803",
        noticed_by: "sessions",
        changes: &[
            change("relay/ledger/entry.rs", "extended && self.synthesized().is_none()", "false"),
            change(
                "relay/ledger.rs",
                "self.in_batch = self.latest.is_opening_owed();",
                "self.in_batch = false;",
            ),
        ],
    },
    Mutant {
        name: "WaitsForSync",
        wrong: "A Query after Bind and Execute does not end their batch: Weir waits for a Sync",
        seen_in: "pgdog#1356",
        noticed_by: "rest",
        changes: &[change(
            "relay/ledger.rs",
            "self.in_batch = self.latest.is_opening_owed();",
            "self.in_batch &= expect != Expect::Sync;
                self.in_batch |= self.latest.is_opening_owed();",
        )],
    },
    Mutant {
        name: "SkipsNothingAfterError",
        wrong: "Of a failed batch, only the failed message counts as answered",
        seen_in: "pgdog#876, pgdog#913, odyssey#1361",
        noticed_by: "causes",
        changes: &[change(
            "relay/ledger.rs",
            "let sync = «self.owed.iter().position(|entry| entry.expect == Expect::Sync)»; \
                 let end",
            "{
                    self.pop();
                    return;
                }",
        )],
    },
    Mutant {
        name: "EndsQueryAtFirstCommand",
        wrong: "A string of several statements counts as answered after the first one",
        seen_in: "pgcat#611, pgcat#734",
        noticed_by: "causes",
        changes: &[change(
            "relay/ledger/part.rs",
            "match «(expect, code)» {",
            "match (expect, code) {
                    (Expect::Query, COMMAND_COMPLETE) => (expect, READY_FOR_QUERY),
                    other => other,
                }",
        )],
    },
    Mutant {
        name: "GuessesBoundaries",
        wrong: "Weir assumes that each read begins with a message",
        seen_in: "pgagroal#973, pgagroal#996",
        noticed_by: "answers",
        changes: &[change(
            "relay/replies.rs",
            "self.server.stream.take_body(self.input)",
            "{
                    if matches!(self.input.first(), Some(b'Z' | b'E')) {
                        self.server.stream.handled(0, false);
                    }
                    self.server.stream.take_body(self.input)
                }",
        )],
    },
    Mutant {
        name: "ForwardsOwnReplies",
        wrong: "Replies to the pooler's own Parse and Close go to the client",
        seen_in: "pgdog#57, odyssey#1362",
        noticed_by: "answers",
        changes: &[change(
            "relay/ledger.rs",
            "(Verb::Swallow, _) => «Owner::Nobody»",
            "Owner::Client",
        )],
    },
    Mutant {
        name: "ResendsWhatHasEffect",
        wrong: "A request is sent again to another server although the first may have committed it",
        seen_in: "pgdog#614, PgCat's retries",
        noticed_by: "effects",
        changes: &[change(
            "relay/requests/keeping.rs",
            "self.keeping.take()?",
            "{
                    let mut keeping = self.keeping.take()?;
                    keeping.outline.has_effect = false;
                    keeping
                }",
        )],
    },
    Mutant {
        name: "LosesEdge",
        wrong: "A client whose bytes wait in the kernel is not read again",
        seen_in: "odyssey#1499, odyssey#1475",
        noticed_by: "waits",
        changes: &[change(
            "engine/linking.rs",
            "self.follow_rename(id); } «io.resume_client(id);»",
            "",
        )],
    },
    Mutant {
        name: "GathersRows",
        wrong: "A long row is collected before it is forwarded",
        seen_in: "pg_doorman's incident of 2026-05-03, odyssey#421",
        noticed_by: "memory",
        changes: &[change(
            "relay/replies.rs",
            "if is_row(header.code) && rows_pass { «self.out.pass(self.at, self.at + \
                 available);»",
            "if available < header.total {
                    return Stop::Incomplete;
                }
                self.out.pass(self.at, self.at + available);",
        )],
    },
    Mutant {
        name: "BelievesFailedBatch",
        wrong: "The skipped rest of a failed batch counts as done",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change("relay/ledger.rs", "self.void_one(entry, next, void);", "drop(entry);")],
    },
    Mutant {
        name: "PassesDirtyServer",
        wrong: "A server that owes replies is reused",
        seen_in: "",
        noticed_by: "intrusions",
        changes: &[
            change("lifecycle/release.rs", "if «!flushed || !server.is_clean()» {", "!flushed"),
            change(
                "lifecycle/leave.rs",
                "_ if «self.is_clean() && !in_message» => TakenBack::Free",
                "!in_message",
            ),
        ],
    },
    Mutant {
        name: "LosesUnsent",
        wrong: "A request that was never sent to a lost server is not sent to another one",
        seen_in: "",
        noticed_by: "waits",
        changes: &[change(
            "engine/relay.rs",
            "let request = «&input.all()[from..]»;",
            "&input.all()[ran.used..]",
        )],
    },
    Mutant {
        name: "RunsWhatTheServerSkips",
        wrong: "Behind a failed COPY whose Sync was ignored, the pooler expects answers",
        seen_in: "",
        noticed_by: "copying::the_server_has_ignored_it",
        changes: &[change(
            "relay/ledger/count.rs",
            "self.input = if «skips» { Input::UntilSync }",
            "false",
        )],
    },
    Mutant {
        name: "SkipsWhatTheServerRuns",
        wrong: "A request behind a failed COPY is discarded",
        seen_in: "Weir",
        noticed_by: "copying::the_server_has_read_the_sync_behind_the_error",
        changes: &[change("relay/ledger/count.rs", "«*skips = false;» Owner::Client", "")],
    },
    Mutant {
        name: "CountsFromTheLastMessage",
        wrong: "A query is never late if its client goes on sending",
        seen_in: "Weir, PgBouncer",
        noticed_by: "timeouts::messages_behind_a_query_give_it_no_more_time",
        changes: &[change("relay/requests.rs", "if «!server.ledger.runs_query()» {", "true")],
    },
    Mutant {
        name: "CountsFromTheFirstMessage",
        wrong: "All queries of a pipeline share one query_timeout",
        seen_in: "Weir",
        noticed_by: "timeouts::each_query_of_a_pipeline_has_its_own_time",
        changes: &[change("relay/replies.rs", "«self.server.times.query_begins(self.now);»", "")],
    },
    Mutant {
        name: "KeepsItsTurn",
        wrong: "A client that sends ahead keeps its server while others wait",
        seen_in: "Weir, PgBouncer",
        noticed_by: "turns::the_next_in_the_queue_gets_the_server",
        changes: &[change("relay/requests/turns.rs", "«own.pace.ends_turn = !is_reader;»", "")],
    },
    Mutant {
        name: "SendsFarAhead",
        wrong: "A client may have thousands of slow requests under way",
        seen_in: "Weir, PgBouncer",
        noticed_by: "turns::few_requests_are_under_way_if_the_server_is_slow",
        changes: &[change("relay/pace.rs", "let ahead = «AHEAD.max(2 * self.trip)»;", "1 << 40")],
    },
    Mutant {
        name: "SendsEverFurtherAhead",
        wrong: "More requests are under way than the server needs",
        seen_in: "Weir, PgBouncer",
        noticed_by: "turns::slow_requests_after_fast_ones_are_few",
        changes: &[change(
            "relay/pace.rs",
            "if «speed > self.fastest + self.fastest / GAIN» {",
            "true",
        )],
    },
    Mutant {
        name: "BeginsFarAhead",
        wrong: "Many requests are under way before it is known how long one takes",
        seen_in: "Weir, PgBouncer",
        noticed_by: "turns::the_first_slow_requests_are_few",
        changes: &[change(
            "relay/requests/turns.rs",
            "pace.as_ref().map_or(«DEPTH_UNKNOWN», |pace| pace.depth)",
            "32",
        )],
    },
    Mutant {
        name: "WaitsForEachTrip",
        wrong: "Few requests are under way to a server far away",
        seen_in: "",
        noticed_by: "turns::a_server_far_away_gets_many_requests",
        changes: &[change(
            "relay/pace.rs",
            "self.depth = «(2 * self.depth).min(self.most_at(speed))»;",
            "self.depth",
        )],
    },
    Mutant {
        name: "BeginsTurnsAnew",
        wrong: "A client that sends COMMIT and BEGIN together keeps its server",
        seen_in: "Weir, PgBouncer",
        noticed_by: "turns::a_commit_with_the_next_begin_ends_the_turn",
        changes: &[change(
            "relay/requests/turns.rs",
            "now.saturating_sub(«server.stages.linked_at()») >= TURN",
            "client.times.request_at()",
        )],
    },
    Mutant {
        name: "LosesRepliesBehindSettings",
        wrong: "A Close before the request gets no reply if its server ends",
        seen_in: "seed 11,085",
        noticed_by: "ahead::what_needs_no_server_is_answered_once",
        changes: &[change(
            "relay/ledger/first.rs",
            "is_due &= «entry.verb == Verb::Internal» || entry.synthesized().is_some();",
            "false",
        )],
    },
];
