//! Pools, queues, limits, logins and cancel requests.

use super::{Mutant, change};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "ReleasesWhileCanceling",
        wrong: "A server is reused while a cancel request for it is under way",
        seen_in: "pgbouncer#245, odyssey#1216",
        noticed_by: "cancels",
        changes: &[change("cancel/requests.rs", "«server.cancel.begin();» let mut packet", "")],
    },
    Mutant {
        name: "ReusesAfterError",
        wrong: "A server whose client's last transaction has failed is reused with `never`",
        seen_in: "",
        noticed_by: "sessions",
        changes: &[change(
            "lifecycle/release.rs",
            "«self.server.status.has_failed()» && self.needs_success()",
            "false",
        )],
    },
    Mutant {
        name: "ForgetsFailedTransaction",
        wrong: "A rolled-back transaction counts as successful for `reuse_after_error`",
        seen_in: "",
        noticed_by: "sessions",
        changes: &[change(
            "relay/status.rs",
            "(Outcome::Failing, b'E') => «Outcome::Failing»",
            "Outcome::Fine",
        )],
    },
    Mutant {
        name: "TakesSyncForSuccess",
        wrong: "A lone Sync after a failed request counts as a success for `reuse_after_error`",
        seen_in: "",
        noticed_by: "sessions",
        changes: &[change(
            "relay/status.rs",
            "(Outcome::Failed | Outcome::Fine, _) => «outcome»",
            "Outcome::Fine",
        )],
    },
    Mutant {
        name: "CountsResetAsUse",
        wrong: "The end of a server's reset counts as its last use",
        seen_in: "",
        noticed_by: "limits::a_server_counts_as_used_until_its_client_has_given_it_back",
        changes: &[change(
            "admission/pool.rs",
            "(«server.times.used_at()», server.serial)",
            "server.times.released_at()",
        )],
    },
    Mutant {
        name: "IgnoresCancelSecret",
        wrong: "A cancel request needs the process id only",
        seen_in: "pgbouncer#38, supavisor#692",
        noticed_by: "cancels",
        changes: &[change(
            "cancel/keys.rs",
            "self.0.get(&number_of(key, context)?)",
            "{
                    let number = number_of(key, context)?;
                    let other = self.0.keys().find(|other| **other >> 32 == number >> 32);
                    other.and_then(|key| self.0.get(key))
                }",
        )],
    },
    Mutant {
        name: "AnswersCancel",
        wrong: "A cancel request gets a reply",
        seen_in: "pgbouncer#141",
        noticed_by: "cancels",
        changes: &[change(
            "engine/cancels.rs",
            "Requested::Unanswered(id, why) => «self.disconnect(id, Leaving::Unanswered(why), io)»",
            r#"{
                io.send_client(id, b"Z\0\0\0\x05I");
                self.disconnect(id, Leaving::Unanswered(why), io)
            }"#,
        )],
    },
    Mutant {
        name: "SkipsCheck",
        wrong: "A server that was idle for long is linked without a check",
        seen_in: "pgdog#1318, supavisor#941",
        noticed_by: "causes",
        changes: &[change(
            "lifecycle/prepare.rs",
            "if «!checked» && !settings.check_query",
            "false",
        )],
    },
    Mutant {
        name: "LeaksPlace",
        wrong: "Each closed server keeps its place in the pool",
        seen_in: "pgdog#1361, pg_doorman 3.5.2",
        noticed_by: "leaks",
        changes: &[change(
            "admission/pool.rs",
            "self.current -= u32::from(epoch == self.epoch); «self.forget_server(epoch);»",
            "",
        )],
    },
    Mutant {
        name: "ExceedsPoolSize",
        wrong: "More servers than the pool may have",
        seen_in: "pgbouncer#1386, pgbouncer#478",
        noticed_by: "limits",
        changes: &[change(
            "admission/pool.rs",
            "self.settings.size == 0 || «self.places() + self.elsewhere < self.settings.size»",
            "true",
        )],
    },
    Mutant {
        name: "NeverRetriesLogin",
        wrong: "After one failed login to PostgreSQL, no other is tried",
        seen_in: "pgbouncer#1582, pgbouncer#585",
        noticed_by: "waits",
        changes: &[change(
            "admission/pool/opening.rs",
            "Some(failure) => «self.opening == 0 && now >= failure.retry_at»,",
            "false",
        )],
    },
    Mutant {
        name: "RefusesInHaste",
        wrong: "A failed login refuses clients although the pool has servers",
        seen_in: "pgbouncer#1284",
        noticed_by: "causes",
        changes: &[change(
            "admission/pool.rs",
            "let Some(failure) = &self.failure && «self.has_none_open()»",
            "true",
        )],
    },
    Mutant {
        name: "ServesNewestFirst",
        wrong: "The client that came last is served first",
        seen_in: "pgagroal#1006",
        noticed_by: "order",
        changes: &[change(
            "admission/pool.rs",
            "let Some(waiter) = «queue.pop_front()» else { return Next::Park };",
            "queue.pop_back()",
        )],
    },
    Mutant {
        name: "NeverCrossesWorkers",
        wrong: "Each worker serves its own clients only",
        seen_in: "pgbouncer#1386, pgcat#872",
        noticed_by: "order",
        changes: &[change(
            "admission/pool.rs",
            "_ => «Some(oldest.2)»,",
            "Some(if self.waiting[own].is_empty() { oldest.2 } else { own })",
        )],
    },
    Mutant {
        name: "CrossesWithoutSecret",
        wrong: "A server that goes to another worker cannot be cancelled there",
        seen_in: "",
        noticed_by: "cancels",
        changes: &[change(
            "admission/pool/idle.rs",
            "stolen.server.leave_worker();",
            "stolen.server.leave_worker(); stolen.server.key.secret.clear();",
        )],
    },
    Mutant {
        name: "CancelsNeverArrive",
        wrong: "Cancel requests are not sent",
        seen_in: "",
        noticed_by: "waits",
        changes: &[change("cancel/requests.rs", "io.send_cancel(cancel, on, &packet);", "")],
    },
    Mutant {
        name: "CancelsNeverEnd",
        wrong: "A server waits for a cancel request that is over",
        seen_in: "",
        noticed_by: "waits",
        changes: &[change("cancel/requests.rs", "self.cancel.end();", "")],
    },
    Mutant {
        name: "ForgetsTurn",
        wrong: "A login that a console command ended still counts as opening",
        seen_in: "",
        noticed_by: "limits",
        changes: &[change(
            "engine/seats.rs",
            "io.close_server(id); «self.pools.opening_ended();»",
            "",
        )],
    },
    Mutant {
        name: "OpensNothing",
        wrong: "A waiting client does not make its pool open a server",
        seen_in: "",
        noticed_by: "orders",
        changes: &[change(
            "engine/linking.rs",
            "if open { «self.open_server(pool, io);»",
            "self.pools.exchange.pool(pool, crate::pool::Pool::withdraw_opening);",
        )],
    },
    Mutant {
        name: "TakesBackClosed",
        wrong: "A server that was closed after its client had left is taken back all the same",
        seen_in: "",
        noticed_by: "keys",
        changes: &[change(
            "engine/work.rs",
            "if «self.servers.is_free(server, serial)» { self.release(server, Cleaning::Left(left), io);",
            "true",
        )],
    },
    Mutant {
        name: "KeepsPlaceInQueue",
        wrong: "A client that has left keeps its place in the queue",
        seen_in: "",
        noticed_by: "keys",
        changes: &[change(
            "engine/leaving.rs",
            "self.pools.exchange.pool(waiter.pool, |pool| pool.forget(worker, waiter.ticket));",
            "",
        )],
    },
    Mutant {
        name: "IgnoresUserLimit",
        wrong: "max_user_connections is ignored",
        seen_in: "",
        noticed_by: "limits",
        changes: &[change("admission/limits.rs", "Scope::User => («limits.user»,", "0")],
    },
    Mutant {
        name: "IgnoresDatabaseLimit",
        wrong: "max_db_connections is ignored",
        seen_in: "",
        noticed_by: "limits",
        changes: &[change("admission/limits.rs", "Scope::Database => («limits.database»,", "0")],
    },
    Mutant {
        name: "CrossesWithWrongSecret",
        wrong: "A server that goes to another worker has another secret there",
        seen_in: "",
        noticed_by: "waits",
        changes: &[change(
            "admission/pool/idle.rs",
            "stolen.server.leave_worker();",
            "stolen.server.leave_worker(); stolen.server.key.secret.reverse();",
        )],
    },
    Mutant {
        name: "TrustsLateCancel",
        wrong: "A server is reused although a cancel request may still reach it",
        seen_in: "",
        noticed_by: "cancel::a_server_whose_request_was_given_up_serves_no_other_client",
        changes: &[change(
            "cancel/requests.rs",
            "if «end == (CancelEnd::Late { sent: true })» {",
            "false",
        )],
    },
    Mutant {
        name: "ForgetsUses",
        wrong: "server_max_uses counts anew when a server comes from another process or worker",
        seen_in: "",
        noticed_by: "limits",
        changes: &[
            change("handover/import.rs", "server.uses = «self.uses»;", "0"),
            change(
                "admission/pool/idle.rs",
                "stolen.server.leave_worker();",
                "stolen.server.leave_worker(); stolen.server.uses = 0;",
            ),
        ],
    },
    Mutant {
        name: "UsesOnceMore",
        wrong: "A server is used once more than server_max_uses",
        seen_in: "",
        noticed_by: "limits",
        changes: &[change(
            "lifecycle/release.rs",
            "if «server.uses >= settings.server_max_uses» {",
            "server.uses > settings.server_max_uses",
        )],
    },
    Mutant {
        name: "OpensNoSpares",
        wrong: "A pool in use has fewer idle servers than min_spare_servers",
        seen_in: "",
        noticed_by: "limits",
        changes: &[change(
            "admission/pool/spares.rs",
            "if «self.places() >= self.size_with_spares(now)» {",
            "true",
        )],
    },
    Mutant {
        name: "KeepsSpares",
        wrong: "A pool keeps more idle servers than max_spare_servers",
        seen_in: "",
        noticed_by: "limits",
        changes: &[change(
            "admission/pool/spares.rs",
            "«open.saturating_sub(kept).div_ceil(CLOSED_PART)»",
            "0",
        )],
    },
    Mutant {
        name: "SparesBeyondLimits",
        wrong: "A server that no client waits for is opened beyond a limit of several pools",
        seen_in: "",
        noticed_by: "limits",
        changes: &[change(
            "admission/limits.rs",
            "let free = «self.full(claim).is_none()» && self.has_turn(now);",
            "true",
        )],
    },
    Mutant {
        name: "ForgetsBusyMoments",
        wrong: "The demand of a pool is that of the present moment",
        seen_in: "",
        noticed_by: "spares::servers_are_closed_when_the_load_falls_the_coldest_first",
        changes: &[change("admission/pool/demand.rs", "«self.peak.max(self.before)»", "present")],
    },
];
