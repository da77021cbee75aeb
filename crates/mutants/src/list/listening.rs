//! LISTEN and NOTIFY in auto mode.

use super::{Mutant, change};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "HandsOverUnmarked",
        wrong: "Auto mode: a server stops listening before the mark to the listener is sent",
        seen_in: "",
        noticed_by: "news",
        changes: &[change(
            "notify/listen.rs",
            r#"[&begin[..], b"UNLISTEN *"]"#,
            r#"[&b"UNLISTEN *"[..], &begin[..]]"#,
        )],
    },
    Mutant {
        name: "HearsTwice",
        wrong: "Auto mode: both the server and the listener deliver a channel",
        seen_in: "",
        noticed_by: "news",
        changes: &[change(
            "notify/listening.rs",
            "if self.live.get(said.channel).is_some() { if !is_own { return «Hearing::Drop»;",
            "Hearing::Pass",
        )],
    },
    Mutant {
        name: "HidesGap",
        wrong: "Auto mode: no WARNING is sent when the listener was lost",
        seen_in: "",
        noticed_by: "waits",
        changes: &[change("notify/listen.rs", "if «has_missed» { self.tell(News::Gap", "false")],
    },
    Mutant {
        name: "TellsInTransaction",
        wrong: "Auto mode: other clients' notifications are delivered within a transaction",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change(
            "notify/listen.rs",
            "server.is_none_or(|server| { «!client.times.in_transaction() && server.status.is_idle() \
                 && !server.session.traces.are_due() && !server.stream.is_mid_message()»",
            "true",
        )],
    },
    Mutant {
        name: "TellsWhatWasGivenUp",
        wrong: "Auto mode: stored notifications are delivered after UNLISTEN",
        seen_in: "",
        noticed_by: "news",
        changes: &[change(
            "notify/listen.rs",
            "said.filter(|said| «own.live.get(said.channel).is_some()»)",
            "true",
        )],
    },
    Mutant {
        name: "ShowsServersProcess",
        wrong: "Auto mode: a client's own notifications carry its server's process id",
        seen_in: "",
        noticed_by: "answers",
        changes: &[change("relay/replies.rs", "if «is_own» { pid = client.process_id();", "false")],
    },
    Mutant {
        name: "MarksAnybody",
        wrong: "Auto mode: the listener takes any mark as that of the client that has waited \
             longest",
        seen_in: "",
        noticed_by: "news",
        changes: &[change(
            "notify/listener.rs",
            "|one: &Subscription| «one.token().as_bytes() == payload»;",
            "true",
        )],
    },
    Mutant {
        name: "LosesUntold",
        wrong: "Auto mode: notifications that arrive during a transaction are lost",
        seen_in: "",
        noticed_by: "waits",
        changes: &[change("notify/listening.rs", "self.untold.push_back(news);", "drop(news);")],
    },
    Mutant {
        name: "ForgetsEcho",
        wrong: "Auto mode: a client's own notifications are delivered by its server and by the \
             listener",
        seen_in: "",
        noticed_by: "news",
        changes: &[change("notify/listening.rs", "self.expect_echo(said);", "")],
    },
    Mutant {
        name: "StopsTooLate",
        wrong: "Auto mode: a server still listens after its channels moved to the listener",
        seen_in: "",
        noticed_by: "news",
        changes: &[change("notify/listen.rs", r#"[&begin[..], «b"UNLISTEN *"»]"#, r#"&b""[..]"#)],
    },
    Mutant {
        name: "ForgetsHandOver",
        wrong: "Auto mode: a server whose client left while it stopped listening is reused",
        seen_in: "",
        noticed_by: "answers",
        changes: &[
            change(
                "lifecycle/leave.rs",
                "let (applies, renews) = (step.applies(), step.renews()); \
                 «self.phase.settle(Settling::LastAnswer);»",
                "let hands_over = matches!(step, crate::server::Preparation::HandOver); \
                 self.phase.settle(Settling::LastAnswer); \
                 let session = self.session.own(); \
                 if hands_over { (session.pinned, session.traces) = (None, Default::default()); }",
            ),
            change("relay/replies.rs", "session.disturbed |= self.server.client.is_none();", ""),
        ],
    },
    Mutant {
        name: "HearsBeforeTheWarning",
        wrong: "Auto mode: a new listener delivers before its warning",
        seen_in: "Weir, in seed 100,387",
        noticed_by: "news::a_new_listener_warns_first",
        changes: &[change("notify/listening.rs", "Some(_) => «!self.unheard»,", "true")],
    },
    Mutant {
        name: "ForgetsUnlistenUnreported",
        wrong: "Auto mode: UNLISTEN has no effect while the report is unknown",
        seen_in: "Weir, in seed 112,527",
        noticed_by: "news::unlisten_counts_unreported",
        changes: &[change(
            "session/verdict.rs",
            "let hears = «must_ask_for_channels(client, server)»;",
            "false",
        )],
    },
    Mutant {
        name: "ListensLateAfterARestart",
        wrong: "Auto mode: a listener that cannot connect waits as after a refusal",
        seen_in: "Weir",
        noticed_by: "deaf::a_listener_returns_soon_after_postgresql",
        changes: &[change(
            "notify/connection.rs",
            "pool.attempt_after(last, «refused», now)",
            "true",
        )],
    },
    Mutant {
        name: "ListensAtOnceAfterARefusal",
        wrong: "Auto mode: a refused listener tries again at once",
        seen_in: "Weir",
        noticed_by: "listen::a_listener_without_a_login_is_tried_again",
        changes: &[change(
            "notify/connection.rs",
            "pool.attempt_after(last, «refused», now)",
            "false",
        )],
    },
    Mutant {
        name: "ListensAtALostPrimary",
        wrong: "Auto mode: a listener's login goes on at a primary that is lost",
        seen_in: "Weir",
        noticed_by: "orders",
        changes: &[change(
            "operator/standing.rs",
            "Some(ServerPurpose::Listen) => «Some(Self::Login { listens: true })»,",
            "None",
        )],
    },
    Mutant {
        name: "StopsListeningInTheDrain",
        wrong: "Auto mode: a planned change of the primary ends the listener before the last commits",
        seen_in: "Weir",
        noticed_by: "relief::last_commits_are_told",
        changes: &[change(
            "notify/connection.rs",
            "let is_kept = «pool.keeps_listener() && pool.epoch() == epoch»;",
            "false",
        )],
    },
    Mutant {
        name: "ListensAfterTheClients",
        wrong: "Auto mode: clients go on at the new primary before the listener is opened there",
        seen_in: "Weir",
        noticed_by: "relief::the_listener_comes_first",
        changes: &[change(
            "admission/pool/listener.rs",
            "Gate::NoPrimary => «self.is_resuming()»,",
            "false",
        )],
    },
    Mutant {
        name: "ForgetsALostListener",
        wrong: "Auto mode: after a loss, clients go on before the listener is open",
        seen_in: "Weir",
        noticed_by: "relief::the_listener_comes_first_after_a_loss",
        changes: &[change(
            "notify/connection.rs",
            "pool.lock(|pool| pool.need_listener(«old.is_needed()»));",
            "false",
        )],
    },
    Mutant {
        name: "HidesLateListener",
        wrong: "Auto mode: no WARNING is sent if clients went on before the new listener listened",
        seen_in: "",
        noticed_by: "relief::a_late_listener_warns",
        changes: &[change(
            "admission/pool/listener.rs",
            "if «self.gate != Gate::NoPrimary» { self.relief",
            "false",
        )],
    },
    Mutant {
        name: "DisordersKeptNews",
        wrong: "Auto mode: what a lost listener has told comes before earlier news",
        seen_in: "Weir, in seed 539,163",
        noticed_by: "news::the_servers_order_counts",
        changes: &[change(
            "notify/listening.rs",
            "let was_kept = «self.take_kept(said)»;",
            "if self.kept(said).is_some() { return Hearing::Drop; } false",
        )],
    },
];
