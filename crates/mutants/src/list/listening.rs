//! LISTEN and NOTIFY in auto mode.

use super::{Mutant, change};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "HandsOverUnmarked",
        wrong: "Auto mode: who listens has its server stop before it is marked from where on the \
             listener tells",
        seen_in: "",
        noticed_by: "news",
        changes: &[change(
            "engine/listen.rs",
            r#"[&begin[..], b"UNLISTEN *"]"#,
            r#"[&b"UNLISTEN *"[..], &begin[..]]"#,
        )],
    },
    Mutant {
        name: "HearsTwice",
        wrong: "Auto mode: of a channel both the server and the listener tell",
        seen_in: "",
        noticed_by: "news",
        changes: &[change(
            "listening.rs",
            "if self.live.get(said.channel).is_some() { if !is_own { return «Hearing::Drop»;",
            "Hearing::Pass",
        )],
    },
    Mutant {
        name: "HidesGap",
        wrong: "Auto mode: the listener was lost, and nobody is told",
        seen_in: "",
        noticed_by: "waits",
        changes: &[change("engine/listen.rs", "if «again» { self.tell(id, News::Gap", "false")],
    },
    Mutant {
        name: "TellsInTransaction",
        wrong: "Auto mode: what others notify is told within a transaction",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "engine/listen.rs",
            "client.server.is_none_or(|on| { let server = «self.server(on)»;",
            "return true",
        )],
    },
    Mutant {
        name: "TellsWhatWasGivenUp",
        wrong: "Auto mode: what was kept for a client is told though it has unlistened",
        seen_in: "",
        noticed_by: "news",
        changes: &[change(
            "engine/listen.rs",
            "said.filter(|said| «own.live.get(said.channel).is_some()»)",
            "true",
        )],
    },
    Mutant {
        name: "ShowsServersProcess",
        wrong: "Auto mode: what a client notifies itself bears its server's process id",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "engine/replies.rs",
            "if «is_own» { pid = client.process_id();",
            "false",
        )],
    },
    Mutant {
        name: "MarksAnybody",
        wrong: "Auto mode: the listener takes any mark for that of the client that has waited longest",
        seen_in: "",
        noticed_by: "news",
        changes: &[change(
            "listener.rs",
            "|one: &Subscription| «one.token().as_bytes() == payload»;",
            "true",
        )],
    },
    Mutant {
        name: "LosesUntold",
        wrong: "Auto mode: what others notify during a transaction is not told behind it",
        seen_in: "",
        noticed_by: "waits",
        changes: &[change("listening.rs", "self.untold.push_back(news);", "drop(news);")],
    },
    Mutant {
        name: "ForgetsEcho",
        wrong: "Auto mode: what a client notifies itself is told by its server and by the listener",
        seen_in: "",
        noticed_by: "news",
        changes: &[change("listening.rs", "self.expect_echo(said);", "")],
    },
    Mutant {
        name: "StopsTooLate",
        wrong: "Auto mode: a server that was handed over still listens",
        seen_in: "",
        noticed_by: "news",
        changes: &[change("engine/listen.rs", r#"[&begin[..], «b"UNLISTEN *"»]"#, r#"&b""[..]"#)],
    },
    Mutant {
        name: "ForgetsHandOver",
        wrong: "Auto mode: a client leaves while its server stops listening, and nobody knows whether \
             it does",
        seen_in: "",
        noticed_by: "answers",
        changes: &[
            change(
                "engine/leave.rs",
                "step.asks() || !server.ledger.owes_nothing() => { «server.phase = ServerPhase::Settling;»",
                "server.phase = ServerPhase::Settling; if step == \
                     crate::server::Preparation::HandOver { (server.pinned, server.traces) = (None, \
                     Default::default()); }",
            ),
            change(
                "engine/replies.rs",
                "self.server.disturbed |= self.server.client.is_none();",
                "",
            ),
        ],
    },
];
