//! The list of mutants: rules of `cluster` that are broken on purpose, each in one way. Many are
//! faults of other poolers and cluster managers. The simulator must notice each of them, by the check
//! whose name begins its report (`crates/cluster/tests/sim/world.rs`).
//!
//! To add a mutant, add an entry: the fault, its place, and the check that must notice it. Its name
//! becomes a test: `cargo test -p weir-cluster-mutants NAME`.

/// A crate that is broken in one way.
#[derive(Debug)]
pub struct Mutant {
    /// In CamelCase, starting with a verb whose subject is Weir.
    pub name: &'static str,
    /// The fault, in a sentence for readers who do not know the code.
    pub wrong: &'static str,
    /// The check of the simulator that must notice it.
    pub noticed_by: &'static str,
    pub changes: &'static [Change],
}

/// One place of the source that a mutant changes; see `crates/mutants/src/list.rs`.
#[derive(Debug)]
pub struct Change {
    /// Path below `crates/cluster/src`.
    pub file: &'static str,
    pub source: &'static str,
    pub broken: &'static str,
}

/// The folder of the source, for messages.
pub const SOURCE: &str = "crates/cluster/src";

const fn change(file: &'static str, source: &'static str, broken: &'static str) -> Change {
    Change { file, source, broken }
}

/// All mutants. A mutant's number is its position in this list.
pub fn mutants() -> impl Iterator<Item = &'static Mutant> {
    MUTANTS.iter()
}

static MUTANTS: &[Mutant] = &[
    Mutant {
        name: "TakesAnEndedSessionForADeath",
        wrong: "`pg_terminate_backend` of Weir's session makes the node down, as in Pgpool-II",
        noticed_by: "calm",
        changes: &[change(
            "node.rs",
            "(Fact::Unasked(obstacle), _) => «Condition::Unasked(obstacle.to_string())»,",
            "match obstacle { crate::Obstacle::SessionEnded => Condition::Down(Reason::Refused), \
             obstacle => Condition::Unasked(obstacle.to_string()) }",
        )],
    },
    Mutant {
        name: "TakesAFullNodeForADeath",
        wrong: "A node without a free connection (53300) is down",
        noticed_by: "calm",
        changes: &[change(
            "node.rs",
            "(Fact::Unasked(obstacle), _) => «Condition::Unasked(obstacle.to_string())»,",
            "match obstacle { crate::Obstacle::Full => Condition::Down(Reason::Refused), \
             obstacle => Condition::Unasked(obstacle.to_string()) }",
        )],
    },
    Mutant {
        name: "BelievesOneRefusal",
        wrong: "A single refused connection makes a node down",
        noticed_by: "calm",
        changes: &[change(
            "node.rs",
            "(Fact::Refused, _) => «Condition::Refused»,",
            "Condition::Down(Reason::Refused)",
        )],
    },
    Mutant {
        name: "WaitsForARefusingNode",
        wrong: "A node that refuses all connections is never down",
        noticed_by: "down",
        changes: &[change(
            "node.rs",
            "(Fact::Refused, Condition::Silent(_)) => «{ self.sample = None; \
             Condition::Down(Reason::Refused) }»",
            "Condition::Refused",
        )],
    },
    Mutant {
        name: "WaitsForASilentNode",
        wrong: "A node that does not answer (SIGSTOP, a partition) is never down",
        noticed_by: "down",
        changes: &[change(
            "node.rs",
            "«now.saturating_sub(since) >= SILENCE * health_timeout»",
            "false",
        )],
    },
    Mutant {
        name: "TakesOldAnswers",
        wrong: "An answer that was overtaken by a later one counts",
        noticed_by: "writers",
        changes: &[change("node.rs", "if «asked_at < self.asked_at» { return; }", "false")],
    },
    Mutant {
        name: "KeepsTheRoleOverARestart",
        wrong: "A node that has restarted is taken for what it was before",
        noticed_by: "writers",
        changes: &[change("node.rs", "«self.sample = None;» Condition::Unready", "")],
    },
    Mutant {
        name: "TrustsAnyTimeline",
        wrong: "A primary that comes back on its old timeline is taken for the primary",
        noticed_by: "writers",
        changes: &[change(
            "cluster.rs",
            "own.role == Role::Primary && «own.timeline == timeline»",
            "true",
        )],
    },
    Mutant {
        name: "ForgetsTimelines",
        wrong: "The highest timeline is forgotten when its node cannot be reached",
        noticed_by: "writers",
        changes: &[change(
            "cluster.rs",
            "«let timelines = self.nodes.iter().filter_map(|node| node.timeline_of(system)); \
             self.newest = timelines.fold(self.newest, u32::max);»",
            "let timelines = self.nodes.iter().filter_map(|node| match node.standing() { \
             Standing::Present(own) if own.system == system => Some(own.timeline), _ => None }); \
             self.newest = timelines.fold(0, u32::max);",
        )],
    },
    Mutant {
        name: "TrustsAnyNode",
        wrong: "A node of another cluster may be used",
        noticed_by: "strangers",
        changes: &[
            change(
                "cluster.rs",
                "Standing::Present(sample) if «Some(sample.system) == self.system» => Some(*sample),",
                "true",
            ),
            change("node.rs", "self.known.filter(|known| «known.system == system»).map", "true"),
        ],
    },
    Mutant {
        name: "TakesTheFirstOfTwo",
        wrong: "Of two primaries the first one of the configuration is used, as in Pgpool-II",
        noticed_by: "writers",
        changes: &[change(
            "cluster.rs",
            "if «claimants.iter().all(|own| own.started == first.started)» { return Ok(*first); }",
            "true",
        )],
    },
    Mutant {
        name: "ForgetsTheLastPrimary",
        wrong: "When the primary is lost, another node of its timeline may become the primary",
        noticed_by: "copy",
        changes: &[change(
            "cluster.rs",
            "self.last.filter(|last| «last.timeline == timeline»)",
            "last.timeline == timeline && false",
        )],
    },
    Mutant {
        name: "KnowsThePrimaryByItsAddress",
        wrong: "A primary that restarts at another address is a false primary forever",
        noticed_by: "found",
        changes: &[change(
            "cluster.rs",
            "(«is_gone(own)» || Some(own.node) == last.node)",
            "is_gone(own) && false",
        )],
    },
    Mutant {
        name: "TakesAnOldCopy",
        wrong: "An old copy of the primary at another address is taken for the primary",
        noticed_by: "copy",
        changes: &[change("claim.rs", "«self.first.settled() < written.settled()»", "false")],
    },
    Mutant {
        name: "TakesACopyThatHasWritten",
        wrong: "An old copy that has written more than the primary is taken for the primary",
        noticed_by: "copy",
        changes: &[
            change("claim.rs", "self.is_copy |= «is_behind» || primary", "is_behind && false"),
            change("claim.rs", "«self.first.settled()» < written.settled()", "self.wal.settled()"),
        ],
    },
    Mutant {
        name: "TakesACopyThatWasRestarted",
        wrong: "An old copy that has written and is restarted is taken for the primary",
        noticed_by: "copy",
        changes: &[change(
            "claim.rs",
            "was_standby || restarted.as_ref().is_some_and(|own| «own.is_copy»)",
            "own.is_copy && false",
        )],
    },
    Mutant {
        name: "TakesACopyThatRanBeside",
        wrong: "A copy that ran beside the primary becomes the primary when that is lost",
        noticed_by: "beside",
        changes: &[change(
            "claim.rs",
            "self.is_copy |= is_behind || «primary.is_some_and(is_beside)»;",
            "primary.is_some_and(is_beside) && false",
        )],
    },
    Mutant {
        name: "TakesASecondPromotion",
        wrong: "A standby promoted to the timeline of the lost primary is taken for that primary",
        noticed_by: "second",
        changes: &[change(
            "claim.rs",
            "is_copy: «was_standby» || restarted",
            "was_standby && false",
        )],
    },
    Mutant {
        name: "TakesACopyBesideASilentPrimary",
        wrong: "A copy is taken for the primary when that is only silent",
        noticed_by: "gone",
        changes: &[change(
            "cluster.rs",
            "is_another || may_be_elsewhere && «node.is_empty()» || is_unnamed()",
            "node.is_down()",
        )],
    },
    Mutant {
        name: "TakesTwoAddressesForTwoServers",
        wrong: "A primary with two addresses is two primaries, of which none is used",
        noticed_by: "found",
        changes: &[change(
            "cluster.rs",
            "«claimants.iter().all(|own| own.started == first.started)»",
            "claimants.len() == 1",
        )],
    },
    Mutant {
        name: "HurriesAtTheStart",
        wrong: "The first primary that answers is used before the other nodes were heard",
        noticed_by: "early",
        changes: &[change("cluster.rs", "if «self.last.is_none()» && let Some(missing)", "false")],
    },
    Mutant {
        name: "ReadsWithoutAPrimary",
        wrong: "Standbys are readable when the primary is lost",
        noticed_by: "readers",
        changes: &[change(
            "cluster.rs",
            "(Role::Standby(_), Err(_)) => «Verdict::Unfit(self.orphan(own.timeline))»,",
            "Verdict::Readable",
        )],
    },
    Mutant {
        name: "ReadsAnOldTimelineWithoutAPrimary",
        wrong: "While there is no primary, a standby of an earlier primary counts as one of the last",
        noticed_by: "readers",
        changes: &[change("cluster.rs", "_ if «own < newest» => Reason::OldTimeline", "false")],
    },
    Mutant {
        name: "ReadsBehindAnUnknownPrimary",
        wrong: "A standby of a primary that was never seen counts as one of the last primary",
        noticed_by: "readers",
        changes: &[change(
            "cluster.rs",
            "Some(last) if «last.timeline < newest» => Reason::NoneWrites",
            "false",
        )],
    },
    Mutant {
        name: "ReadsFromAnOldTimeline",
        wrong: "A standby of the dead primary is readable when another one was promoted",
        noticed_by: "readers",
        changes: &[change(
            "cluster.rs",
            "_ if «timeline != primary.timeline» => Verdict::Unfit",
            "false",
        )],
    },
    Mutant {
        name: "ReadsFromALonelyStandby",
        wrong: "A standby that follows nobody is readable",
        noticed_by: "readers",
        changes: &[change(
            "cluster.rs",
            "None => «Verdict::Unfit(Reason::NotStreaming)»,",
            "Verdict::Readable",
        )],
    },
    Mutant {
        name: "ForgetsDownNodes",
        wrong: "A node that is down is not asked any more, as in Pgpool-II",
        noticed_by: "found",
        changes: &[change(
            "cluster.rs",
            "Ok(_) if node.is_down() => «(DOWN_INTERVALS * interval).min(DOWN_PAUSE_MAX)»,",
            "3_600_000_000",
        )],
    },
    Mutant {
        name: "PromotesBesideARunningPrimary",
        wrong: "`stop_command` is believed: another node is promoted while the old primary runs",
        noticed_by: "two",
        changes: &[
            change(
                "promotion.rs",
                "match «cluster.is_stopped(self.from)» { true => Step::CatchUp(*mark),",
                "true",
            ),
            change("promotion.rs", "Step::CatchUp(_) if «!cluster.is_stopped(self.from)»", "false"),
        ],
    },
    Mutant {
        name: "PromotesBesideASilentPrimary",
        wrong: "After `stop_command`, a node that is only silent is taken for stopped",
        noticed_by: "two",
        changes: &[change(
            "cluster.rs",
            "«self.nodes[usize::from(node.0)].is_stopped()»",
            "self.nodes[usize::from(node.0)].is_down()",
        )],
    },
    Mutant {
        name: "ElectsByOldPositions",
        wrong: "A standby that has not answered since the loss counts with its old position",
        noticed_by: "loss",
        changes: &[change(
            "cluster.rs",
            "let node = &self.nodes[usize::from(node.0)]; «node.sampled_at»",
            "node.asked_at",
        )],
    },
    Mutant {
        name: "ElectsADetachedNode",
        wrong: "A standby that an operator has detached is promoted when the primary is lost",
        noticed_by: "detached",
        changes: &[change("promotion.rs", "«!cluster.is_detached(*node)»", "true")],
    },
    Mutant {
        name: "ReadsFromADetachedNode",
        wrong: "A standby that an operator has detached is as good as another one",
        noticed_by: "detached",
        changes: &[change("cluster.rs", "if «self.nodes[at].is_detached»", "false")],
    },
    Mutant {
        name: "PromotesBeforeTheReplay",
        wrong: "A standby is promoted before it has received the end of the WAL",
        noticed_by: "loss",
        changes: &[change("promotion.rs", "&& «sample.wal.settled() >= mark.settled()»", "true")],
    },
    Mutant {
        name: "StopsUnderRunningTransactions",
        wrong: "The primary is stopped while clients have servers",
        noticed_by: "drain",
        changes: &[change("promotion.rs", "_ if «servers == 0» => Ok(Some(match", "true")],
    },
    Mutant {
        name: "MarksBesideRunningTransactions",
        wrong: "The end of the WAL is read when the connections are closed by force, and not later",
        noticed_by: "drain",
        changes: &[change(
            "promotion.rs",
            "Overtime::Close if !is_closing => «Ok(Some(Step::Close))»,",
            "Ok(Some(Step::Mark))",
        )],
    },
    Mutant {
        name: "LeavesTheOldPrimaryStopped",
        wrong: "When a switchover fails behind `stop_command`, nobody starts the old primary",
        noticed_by: "start",
        changes: &[change(
            "promotion.rs",
            "(Step::Stop(_), Outcome::Failed(why) | Outcome::Unsent(why)) => { \
             «Step::back(Failure::NotStopped(why), now)» }",
            "Step::Ended(Err(Failure::NotStopped(why)))",
        )],
    },
    Mutant {
        name: "GoesBackAfterAPromotion",
        wrong: "When the promotion is reported as failed, the old primary is started",
        noticed_by: "back",
        changes: &[change(
            "promotion.rs",
            "(Step::Promote(to), Outcome::Failed(why) | Outcome::Unsent(why)) => { \
             «Step::Verify(to, Some(why))» }",
            "{ let _ = to; Step::back(Failure::NotStopped(why), now) }",
        )],
    },
    Mutant {
        name: "BelievesPgPromote",
        wrong: "The switchover ends with the answer of `pg_promote`, whatever the facts say",
        noticed_by: "verify",
        changes: &[change(
            "promotion.rs",
            "(Step::Promote(to), Outcome::Done) => «Step::Verify(to, None)»,",
            "Step::Ended(Ok(to))",
        )],
    },
    Mutant {
        name: "BelievesTheClusterManager",
        wrong: "The switchover ends with the cluster manager's answer, whatever the facts say",
        noticed_by: "verify",
        changes: &[change(
            "promotion.rs",
            "(Step::Request(to), Outcome::Done) => «Step::Settle(to, None)»,",
            "Step::Ended(Ok(to))",
        )],
    },
    Mutant {
        name: "PromotesWithoutAFence",
        wrong: "A standby is promoted although `fence_command` has failed",
        noticed_by: "fence",
        changes: &[change(
            "promotion.rs",
            "(Step::Fence, Outcome::Failed(why) | Outcome::Unsent(why)) => { \
             «Step::Ended(Err(Failure::NotFenced(why)))» }",
            "{ drop(why); Step::Elect }",
        )],
    },
    Mutant {
        name: "PromotesWithoutAQuorum",
        wrong: "A standby is promoted although it may lack committed transactions",
        noticed_by: "loss",
        changes: &[change("promotion.rs", "if «missing >= quorum» {", "false")],
    },
    Mutant {
        name: "CountsAllThatReceiveWal",
        wrong: "With `*` in `synchronous_standby_names`, commits count as confirmed by the nodes",
        noticed_by: "loss",
        changes: &[change(
            "commits.rs",
            "for name in &listed.names { «nodes.push(confirmer(name, primary, own, members)?);» }",
            "match confirmer(name, primary, own, members) { \
             Err(Doubt::Anyone) => nodes.extend(members.iter().map(|member| member.id)), \
             found => nodes.push(found?) }",
        )],
    },
    Mutant {
        name: "IgnoresNamesOfNoNode",
        wrong: "A name in `synchronous_standby_names` that is no node's is skipped",
        noticed_by: "loss",
        changes: &[change(
            "commits.rs",
            "for name in &listed.names { «nodes.push(confirmer(name, primary, own, members)?);» }",
            "match confirmer(name, primary, own, members) { \
             Err(Doubt::NoNode(_)) => {} found => nodes.push(found?) }",
        )],
    },
    Mutant {
        name: "IgnoresASecondSender",
        wrong: "A program that has connected under the name of a standby is not noticed",
        noticed_by: "loss",
        changes: &[change("commits.rs", "if «count > 1» {", "false")],
    },
    Mutant {
        name: "ForgetsDoubtsAtOnce",
        wrong: "When a program with the name of a standby has left, its confirmations count",
        noticed_by: "loss",
        changes: &[change("commits.rs", "since: «told.wal» });", "Lsn::default()")],
    },
    Mutant {
        name: "TrustsNewSettingsAtOnce",
        wrong: "Commits count as synchronous before all processes of the primary know the setting",
        noticed_by: "loss",
        changes: &[change(
            "commits.rs",
            "Ok(_) if «is_reloaded» => return self.doubt(Doubt::Reloaded, now),",
            "false",
        )],
    },
    Mutant {
        name: "PromotesByFactsFromBeforeItWasStopped",
        wrong: "After SIGSTOP and SIGCONT of Weir, a standby is chosen by old answers",
        noticed_by: "returned",
        changes: &[
            change(
                "promotion.rs",
                "let is_outdated = «now.saturating_sub(self.looked_at) >= FRESH»;",
                "false",
            ),
            change(
                "promotion.rs",
                "let is_stopped = «self.step == Step::Judge || has_refused»;",
                "true",
            ),
        ],
    },
    Mutant {
        name: "PromotesTheWrongStandby",
        wrong: "Of the standbys, the one that has received least is promoted",
        noticed_by: "loss",
        changes: &[change(
            "promotion.rs",
            "«candidates.iter().max()».copied()",
            "candidates.iter().min()",
        )],
    },
    Mutant {
        name: "HoldsItsLeaseLongerThanEtcd",
        wrong: "A member sends to a writer after its records have vanished from etcd",
        noticed_by: "fleet confirmed",
        changes: &[change(
            "fleet/lease.rs",
            "self.until = self.until.max(«asked_at + VIEW»);",
            "asked_at + 3 * VIEW",
        )],
    },
    Mutant {
        name: "TrustsAStoppedClock",
        wrong: "A lease never ends by the member's own clock",
        noticed_by: "fleet confirmed",
        changes: &[change(
            "fleet/lease.rs",
            "«now < self.until»",
            "now < self.until || self.until > 0",
        )],
    },
    Mutant {
        name: "ServesBeforeItHasReadTheTerm",
        wrong: "A new member uses the term that it has read before it was registered",
        noticed_by: "fleet confirmed",
        changes: &[
            change(
                "fleet/membership.rs",
                "if «self.stage == (Stage::In { lease })» {",
                "matches!(self.stage, Stage::In { .. } | Stage::Granted { .. })",
            ),
            change(
                "fleet/membership.rs",
                "let mut puts = self.reports(own);\n        puts.push(«self.member(self.confirmed)»);",
                "self.member(u64::MAX)",
            ),
        ],
    },
    Mutant {
        name: "ConfirmsWhileItServes",
        wrong: "A member confirms a closed term while its pools are open",
        noticed_by: "fleet confirmed",
        changes: &[change(
            "fleet/membership.rs",
            "&& «own.waits_in >= term.number»",
            "(own.waits_in >= term.number || term.number > 0)",
        )],
    },
    Mutant {
        name: "PromotesBeforeAllWait",
        wrong: "The leader does not wait for members that hold a lease",
        noticed_by: "fleet confirmed",
        changes: &[change(
            "fleet/membership.rs",
            "match («awaited.is_empty()», now >= self.me.shared_until) {",
            "awaited.len() < 99",
        )],
    },
    Mutant {
        name: "WaitsForOthersOnly",
        wrong: "The leader does not wait for the clients of its own",
        noticed_by: "fleet confirmed",
        changes: &[change("fleet/membership.rs", "if «self.waits_in < number» {", "number == 0")],
    },
    Mutant {
        name: "CountsSilentMembersOut",
        wrong: "A majority of the members that answer is enough",
        noticed_by: "fleet majority",
        changes: &[change(
            "fleet/view.rs",
            "«self.members.keys().chain(self.seen.keys()).map(String::as_str).collect()»",
            "self.seen.keys().map(String::as_str).collect()",
        )],
    },
    Mutant {
        name: "LeadsAlone",
        wrong: "The leader's own facts are enough to replace a primary",
        noticed_by: "fleet majority",
        changes: &[change(
            "fleet/majority.rs",
            "match «lost >= needed» {",
            "lost >= needed.min(1)",
        )],
    },
    Mutant {
        name: "OrdersAnotherNode",
        wrong: "A new leader does not know that a node was ordered to promote itself",
        noticed_by: "fleet fence",
        changes: &[change(
            "fleet/succession.rs",
            "Phase::Closed { .. } => «last.phase.clone()»,",
            "Phase::Closed { is_fenced: true, ordered: None }",
        )],
    },
    Mutant {
        name: "ConfirmsForItsPredecessor",
        wrong: "After an online restart, a member confirms although the old process still serves",
        noticed_by: "fleet writer",
        changes: &[change("fleet/membership.rs", "&& «now >= self.me.shared_until»;", "now > 0")],
    },
    Mutant {
        name: "OverlooksAGap",
        wrong: "After a gap in the watched changes, the records are not read again",
        noticed_by: "fleet rest",
        changes: &[change("fleet/membership.rs", "«self.is_outdated = true;»", "")],
    },
    Mutant {
        name: "ReadsAnOldCopy",
        wrong: "Records that were read replace later ones that the watch has brought",
        noticed_by: "fleet rest",
        changes: &[change(
            "fleet/membership.rs",
            "if «revision < self.view.revision» {",
            "revision < 0",
        )],
    },
    Mutant {
        name: "LeavesTheChangeToNobody",
        wrong: "A new leader does not end what the last one has begun",
        noticed_by: "fleet rest",
        changes: &[change(
            "fleet/membership.rs",
            "Phase::Closed { .. } => «own.primary.as_ref().filter(is_later).map(serving)»,",
            "None",
        )],
    },
    Mutant {
        name: "WritesATermOnce",
        wrong: "A term whose writing has failed is not written again",
        noticed_by: "fleet rest",
        changes: &[
            change(
                "fleet/succession.rs",
                "«membership.propose(self.term.clone());»\n                return Turn::Later",
                "",
            ),
            change(
                "fleet/succession.rs",
                "_ if «now >= self.proposed_at + PATIENCE» =>",
                "now == 0",
            ),
        ],
    },
    Mutant {
        name: "NeverRegistersAgain",
        wrong: "A member whose lease was ended stays out",
        noticed_by: "fleet rest",
        changes: &[change(
            "fleet/membership.rs",
            "fn leave_stage(&mut self, why: String) {\n        self.stage = «Stage::Out»;",
            "Stage::Left",
        )],
    },
    Mutant {
        name: "KeepsTheAddressBeyondItsLease",
        wrong: "The kernel removes the virtual address three seconds after the lease has ended",
        noticed_by: "fleet address",
        changes: &[change(
            "fleet/address.rs",
            "let rest = «until.saturating_sub(now)».saturating_sub(LATENESS)",
            "(until + 5_000_000).saturating_sub(now)",
        )],
    },
    Mutant {
        name: "HoldsWhatItHasGivenUp",
        wrong: "A member takes the virtual address from a record that it has asked to delete",
        noticed_by: "fleet address",
        changes: &[change(
            "fleet/address.rs",
            "holder == me && «revision > self.given_up»)",
            "revision > 0",
        )],
    },
    Mutant {
        name: "EndsItsLeaseBeforeTheAddress",
        wrong: "A member that leaves ends its lease while its machine still has the address",
        noticed_by: "fleet address",
        changes: &[change(
            "fleet/membership.rs",
            "(«!own.address.is_up»).then_some(Request::Revoke(lease))",
            "lease > 0",
        )],
    },
    Mutant {
        name: "LeavesTheAddressToAnOldLease",
        wrong: "The record of the address lives as long as the lease of the process before",
        noticed_by: "fleet address",
        changes: &[change(
            "fleet/membership.rs",
            "«puts.push(Record::Address(holder.clone()));»",
            "",
        )],
    },
];
