//! Replies that servers owe, and their receivers.

use super::{Mutant, change};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "ForgetsOwedReplies",
        wrong: "A server whose client has left is reused with its replies unread",
        seen_in: "pgdog#759, pgagroal#989",
        noticed_by: "causes",
        changes: &[change(
            "lifecycle/leave.rs",
            "server.lose_client(client.serial);",
            "server.lose_client(client.serial);
                if !client.stream.is_mid_message() && matches!(server.phase, ServerPhase::Linked) {
                    server.ledger = crate::ledger::Ledger::default();
                    server.status = b'I';
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
                "lifecycle/leave.rs",
                "server.lose_client(client.serial);",
                "server.lose_client(client.serial);
                if client.stream.is_mid_message() && matches!(server.phase, ServerPhase::Linked) {
                    server.ledger = crate::ledger::Ledger::default();
                    server.status = b'I';
                }",
            ),
            change(
                "lifecycle/leave.rs",
                "_ if «server.is_clean() && !in_message» => self.free",
                "server.is_clean()",
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
                        self.server.stream.remaining = 0;
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
            "lifecycle/link.rs",
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
            change("lifecycle/link.rs", "if «!flushed || !server.is_clean()» {", "!flushed"),
            change(
                "lifecycle/leave.rs",
                "_ if «server.is_clean() && !in_message» => self.free",
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
            "relay/requests.rs",
            "self.resend(id, on, «&input[begun_at..]», io)",
            "&input[used..]",
        )],
    },
];
