//! Prepared statements.

use super::{Mutant, change};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "KeepsFailedParse",
        wrong: "A statement whose Parse failed is believed to be there",
        seen_in: "pgdog#887, odyssey#477",
        noticed_by: "answers",
        changes: &[change(
            "engine/undo.rs",
            "let Some(undo) = «entry.undo» else",
            "entry.undo.filter(|undo| !matches!(**undo, Undo::Parse { .. }))",
        )],
    },
    Mutant {
        name: "MissesDiscard",
        wrong: "DISCARD ALL and DEALLOCATE ALL are not noticed",
        seen_in: "pgbouncer#991, pgbouncer#1129",
        noticed_by: "answers",
        changes: &[change(
            "engine/replies.rs",
            "fn statements_discarded(&mut self, serial: u64) { \
                 «self.server.traces.deallocates = true;»",
            "self.server.traces.deallocates = true;
                return;",
        )],
    },
    Mutant {
        name: "MissesSchemaChange",
        wrong: "CREATE, ALTER and DROP are not noticed: a text prepared anew has the types it had \
             before",
        seen_in: "PgBouncer, whose manual wants a RECONNECT",
        noticed_by: "answers",
        changes: &[change("engine/replies.rs", "if «is_change_of_schema(tag)» {", "false")],
    },
    Mutant {
        name: "NeverRenews",
        wrong: "A statement that PostgreSQL refuses (0A000) is never prepared anew",
        seen_in: "pgbouncer#1038, pgjdbc#496",
        noticed_by: "answers",
        changes: &[change("engine/replies/statements.rs", "is_all.then(|| used.clone())", "None")],
    },
    Mutant {
        name: "RenewsBlindly",
        wrong: "It is, and executed, whatever columns its client was told of",
        seen_in: "what healing by a mere Parse comes to",
        noticed_by: "renewals",
        changes: &[
            change("engine/requests/statements.rs", "if «may_surprise» {", "false"),
            change("engine/resend.rs", "false => «confirms || is_the_same»,", "true"),
        ],
    },
    Mutant {
        name: "ResendsForEver",
        wrong: "A lone BEGIN is sent again as long as servers die over it",
        seen_in: "PgCat's retries",
        noticed_by: "effects",
        changes: &[change("engine/resend.rs", "«!client.resent» && client.replication", "true")],
    },
    Mutant {
        name: "SharesUnnamed",
        wrong: "Whose the unnamed statement is does not matter",
        seen_in: "asyncpg#53, pgbouncer#1118",
        noticed_by: "answers",
        changes: &[change(
            "engine/requests/statements.rs",
            "own != 0 && own == self.server.unnamed",
            "true",
        )],
    },
    Mutant {
        name: "AnswersOutOfTurn",
        wrong: "A Parse that need not be sent is answered before its turn",
        seen_in: "pg_doorman, pipelines cut off",
        noticed_by: "answers",
        changes: &[change(
            "engine/requests/statements.rs",
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
        wrong: "A server gets ever more statements",
        seen_in: "pgdog#1260, pgbouncer#1067",
        noticed_by: "memory",
        changes: &[change(
            "engine/requests/statements.rs",
            "let limit = «self.settings.max_prepared_statements»;",
            "return",
        )],
    },
    Mutant {
        name: "ForgetsVoidClose",
        wrong: "A statement whose Close was void is not there for its client any more",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "engine/undo.rs",
            "client.statements.restore(name, statement, since);",
            "drop((name, statement, since));",
        )],
    },
    Mutant {
        name: "ForgetsVoidEvict",
        wrong: "A statement whose eviction was void is believed to be gone",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "engine/undo.rs",
            "«statements.restore(statement, since)»,",
            "drop((statement, since))",
        )],
    },
    Mutant {
        name: "SharesMeanings",
        wrong: "A text is one statement for all clients, whatever their settings make it mean",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "engine/stand_in.rs",
            "false => «Realm::of(&client.vars, names)»,",
            "Realm::COMMON",
        )],
    },
    Mutant {
        name: "AsksForEver",
        wrong: "Auto mode: a Bind is held back as often as it is not known what its statement returns",
        seen_in: "Weir, until the simulator had it",
        noticed_by: "assertions",
        changes: &[change(
            "engine/requests/statements.rs",
            "own.renewed || «own.questions >= QUESTIONS_MAX»",
            "false",
        )],
    },
    Mutant {
        name: "KeepsLentStatements",
        wrong: "Auto mode: a statement that SQL has named stays on its server under the client's name",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change("engine/verdict.rs", "self.take_lent_back(on, io);", "")],
    },
    Mutant {
        name: "ForgetsDeallocated",
        wrong: "Auto mode: SQL's DEALLOCATE does not take a name of the protocol away",
        seen_in: "",
        noticed_by: "answers",
        changes: &[
            change("engine/verdict.rs", "self.forget_deallocated(id, &lent, &left);", ""),
            change(
                "engine/replies.rs",
                "b\"DEALLOCATE\" => «self.statement_deallocated(serial)»,",
                "()",
            ),
        ],
    },
    Mutant {
        name: "LendsNothing",
        wrong: "Auto mode: SQL does not find what the protocol has prepared",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "engine/requests/lending.rs",
            "if «!has_names || self.server.ledger.in_copy()» {",
            "true",
        )],
    },
    Mutant {
        name: "BelievesNames",
        wrong: "What a name stands for is taken as settled while answers are outstanding",
        seen_in: "Weir, until the random sessions",
        noticed_by: "answers",
        changes: &[change(
            "engine/requests/doubt.rs",
            "«ledger.may_unsettle() && !ledger.in_copy()»",
            "false",
        )],
    },
    Mutant {
        name: "SwallowsOfNextBatch",
        wrong: "If a Parse of the pooler's own fails, the first reply of the next batch is not told",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "ledger.rs",
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
];
