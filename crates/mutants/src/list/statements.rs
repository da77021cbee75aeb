//! Prepared statements.

use super::{Mutant, change};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "KeepsFailedParse",
        wrong: "A statement whose Parse failed counts as prepared",
        seen_in: "pgdog#887, odyssey#477",
        noticed_by: "answers",
        changes: &[change(
            "relay/undo.rs",
            "let Some(undo) = «entry.undo» else",
            "entry.undo.filter(|undo| !matches!(**undo, Undo::Parse { .. }))",
        )],
    },
    Mutant {
        name: "MissesDiscard",
        wrong: "DISCARD ALL and DEALLOCATE ALL have no effect on Weir's tables",
        seen_in: "pgbouncer#991, pgbouncer#1129",
        noticed_by: "answers",
        changes: &[change(
            "relay/replies/commands.rs",
            "fn statements_discarded(&mut self, serial: u64) { \
                 «self.server.statements.discard_before(serial);»",
            "if let Some(session) = self.server.session.get_mut() {
                    session.traces.deallocates = true;
                }
                return;",
        )],
    },
    Mutant {
        name: "MissesSchemaChange",
        wrong: "CREATE, ALTER and DROP are ignored: a text prepared again keeps its old types",
        seen_in: "PgBouncer, whose manual wants a RECONNECT",
        noticed_by: "answers",
        changes: &[change("relay/replies/commands.rs", "if «is_change_of_schema(tag)» {", "false")],
    },
    Mutant {
        name: "NeverRenews",
        wrong: "A statement that PostgreSQL refuses (0A000) is never prepared again",
        seen_in: "pgbouncer#1038, pgjdbc#496",
        noticed_by: "answers",
        changes: &[change("relay/replies/statements.rs", "is_all.then(|| used.clone())", "None")],
    },
    Mutant {
        name: "DescribesLostByHalf",
        wrong: "After a silent DEALLOCATE ALL, Describe is answered without parameters",
        seen_in: "Weir",
        noticed_by: "prepared::a_lost_statement_is_described_as_a_whole",
        changes: &[change(
            "relay/kept_request.rs",
            "«!is_lost» && kept.bytes.first() == Some(&frontend::DESCRIBE)",
            "true",
        )],
    },
    Mutant {
        name: "TrustsLostStatements",
        wrong: "After a silent DEALLOCATE ALL, each statement fails once",
        seen_in: "Weir",
        noticed_by: "prepared::a_statement_that_the_server_has_lost_is_prepared_again",
        changes: &[change(
            "relay/replies/statements.rs",
            "true => «self.server.statements.doubt_all()»,",
            "self.server.statements.doubt(settled.statement)",
        )],
    },
    Mutant {
        name: "RenewsBlindly",
        wrong: "It is prepared again and executed, although its client was told of other columns",
        seen_in: "what healing by a mere Parse comes to",
        noticed_by: "renewals",
        changes: &[
            change("relay/requests/statements.rs", "if «may_surprise» {", "false"),
            change("relay/resend.rs", "false => «confirms || is_the_same»,", "true"),
        ],
    },
    Mutant {
        name: "ResendsForEver",
        wrong: "A lone BEGIN is sent again as long as servers die over it",
        seen_in: "PgCat's retries",
        noticed_by: "effects",
        changes: &[change(
            "relay/resend.rs",
            "«!client.resent.is_so()» && client.replication",
            "true",
        )],
    },
    Mutant {
        name: "SharesUnnamed",
        wrong: "The unnamed statement is not assigned to a client",
        seen_in: "asyncpg#53, pgbouncer#1118",
        noticed_by: "answers",
        changes: &[change("relay/unnamed.rs", "if «server.is_of(self)» {", "true")],
    },
    Mutant {
        name: "AnswersOutOfTurn",
        wrong: "A Parse that need not be sent is answered out of order",
        seen_in: "pg_doorman, pipelines cut off",
        noticed_by: "answers",
        changes: &[change(
            "relay/requests/statements.rs",
            "serial = «self.next_serial()»; let undo = Undo::Parse",
            "{
                    let serial = self.next_serial();
                    super::write_reply(Reply::ParseComplete, &mut self.answers);
                    return self.extended().statements.insert(name, statement, serial);
                }",
        )],
    },
    Mutant {
        name: "NeverEvicts",
        wrong: "No statement is ever removed from a server",
        seen_in: "pgdog#1260, pgbouncer#1067",
        noticed_by: "memory",
        changes: &[change(
            "relay/requests/statements.rs",
            "let limit = «self.settings.max_prepared_statements»;",
            "return",
        )],
    },
    Mutant {
        name: "ForgetsVoidClose",
        wrong: "A statement whose Close was skipped is missing for its client",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "relay/undo.rs",
            "client.statements.restore(name.clone(), statement.clone(), *since);",
            "let _ = (name, statement, since);",
        )],
    },
    Mutant {
        name: "ForgetsVoidEvict",
        wrong: "A statement whose eviction was skipped counts as removed",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change("relay/undo.rs", "«statements.restore(statement)»,", "drop(statement)")],
    },
    Mutant {
        name: "SharesMeanings",
        wrong: "A text is one statement for all clients, although their settings give it other \
             meanings",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "relay/substitute.rs",
            "false => «ParseContext::of(&client.vars, names)»,",
            "ParseContext::COMMON",
        )],
    },
    Mutant {
        name: "SharesMoments",
        wrong: "A text such as 'now' is one statement for all clients",
        seen_in: "Weir's direct pools",
        noticed_by: "meanings::a_moment_is_each_clients_own",
        changes: &[
            change("relay/interner.rs", "if «is_of_its_moment» {", "false"),
            change("relay/interner.rs", "if «!is_of_its_moment» {", "true"),
        ],
    },
    Mutant {
        name: "MissesHiddenMoments",
        wrong: "A text such as 'now' is shared if it is written with escapes",
        seen_in: "Weir",
        noticed_by: "meanings::a_moment_is_each_clients_own",
        changes: &[change("relay/parse_context.rs", "|| «may_hide_moment(sql)»;", "false")],
    },
    Mutant {
        name: "AsksForEver",
        wrong: "Auto mode: a Bind is held back each time that its statement's columns are unknown",
        seen_in: "Weir, until the simulator had it",
        noticed_by: "repeats",
        changes: &[change(
            "relay/repeats.rs",
            "self.renewed || «self.questions >= QUESTIONS_MAX»",
            "false",
        )],
    },
    Mutant {
        name: "KeepsLentStatements",
        wrong: "Auto mode: a statement that SQL has used stays on its server under the client's \
             name",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change("session/verdict.rs", "self.take_lent_back(io);", "")],
    },
    Mutant {
        name: "ForgetsDeallocated",
        wrong: "Auto mode: SQL's DEALLOCATE does not remove a name of the protocol",
        seen_in: "",
        noticed_by: "answers",
        changes: &[
            change("session/verdict.rs", "forget_deallocated(self.client, &lent, &left);", ""),
            change(
                "relay/replies/commands.rs",
                "b\"DEALLOCATE\" => «self.statement_deallocated(serial)»,",
                "()",
            ),
        ],
    },
    Mutant {
        name: "LendsNothing",
        wrong: "Auto mode: SQL does not find statements that the protocol has prepared",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "relay/requests/lending.rs",
            "if «!has_names || self.server.ledger.in_copy()» {",
            "true",
        )],
    },
    Mutant {
        name: "BelievesNames",
        wrong: "The meaning of a name counts as known while replies are outstanding",
        seen_in: "Weir, until the random sessions",
        noticed_by: "answers",
        changes: &[change(
            "relay/requests/doubt.rs",
            "«ledger.may_unsettle() && !ledger.in_copy()»",
            "false",
        )],
    },
    Mutant {
        name: "SwallowsOfNextBatch",
        wrong: "If a Parse of the pooler's own fails, the first reply of the next batch is \
             discarded",
        seen_in: "",
        noticed_by: "waits",
        changes: &[change(
            "relay/ledger.rs",
            "if let Some(front) = self.owed.front_mut() { «front.failed = true;»",
            "front.failed = true;
                let swallows = front.verb == Verb::Swallow;
                let sync = self.owed.iter().position(|entry| entry.expect == Expect::Sync);
                if let (true, Some(sync)) = (swallows, sync)
                    && let Some(next) = self.owed.get_mut(sync + 1)
                    && next.verb == Verb::Forward
                {
                    next.verb = Verb::Swallow;
                }",
        )],
    },
    Mutant {
        name: "RenewsNothingUnverified",
        wrong: "Outdated statements are not renewed while the session is unknown",
        seen_in: "Weir, in seed 178,974",
        noticed_by: "renewal::in_an_unknown_session",
        changes: &[change(
            "relay/requests/keeping.rs",
            "if self.keeping.is_none() && «server.status.is_idle()»",
            "server.status.is_idle() && self.may_move",
        )],
    },
    Mutant {
        name: "RenewsForOneRequest",
        wrong: "A request during half a message counts as the one before it",
        seen_in: "Weir, in seed 346,043",
        noticed_by: "outdated::once_for_each_request",
        changes: &[change("relay/replies/answered.rs", "client.end_request();", "")],
    },
    Mutant {
        name: "RestoresDiscarded",
        wrong: "A failed batch makes a discarded statement a prepared one",
        seen_in: "Weir, in seed 214,355",
        noticed_by: "prepared::a_discarded_statement_is_prepared_again",
        changes: &[change("relay/prepared.rs", "self.insert(statement, «DOUBTFUL»);", "0")],
    },
];
