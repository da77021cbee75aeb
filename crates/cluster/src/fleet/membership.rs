//! The requests of one member to etcd, step by step.
//!
//! ```text
//! Out ─► Load ─► Grant ─► Register, with all records ─► In ─► changes of records
//!  ▲                                                     │
//!  └────────────── etcd says that the lease is gone ─────┘
//! ```
//!
//! The caller carries out one [`Request`] at a time and passes the [`Answer`]. Beside it, it renews the
//! lease ([`Membership::renewed`]) and passes the changes of records that it watches. Times are of a
//! clock that goes on while the machine sleeps.

use std::collections::BTreeMap;

use super::address::{Claim, Holding, OwnAddress, Step, life};
use super::lease::Lease;
use super::majority::Hesitation;
use super::records::{FORMAT, Holder, Leader, Member, Pause, Phase, Record, Seen, Term, Writer};
use super::view::View;
use crate::Micros;

/// The gate to the writer is shut so long before the lease ends. Then a worker that was stopped
/// compares the end itself.
pub const MARGIN: Micros = 1_000_000;
/// The pause after a request that has failed.
const RETRY: Micros = 500_000;
/// The pause after a record of a later version, or of another process with the name of this member.
const REFUSED: Micros = 2_000_000;
/// A leader that alone sees the writer leaves the lead after this time, and for this time.
const PATIENCE: Micros = 5_000_000;
const ABSTENTION: Micros = 15_000_000;

/// This process, as a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Me {
    pub member: String,
    /// A random word of this process. A successor of an online restart has that of its predecessor.
    pub instance: String,
    pub version: String,
    /// See [`Member::follows`].
    pub follows: bool,
    /// The predecessor may send to the writer until then; 0 if there is none.
    pub shared_until: Micros,
    /// The predecessor may have left the virtual address until then; 0 if there is none.
    pub address_until: Micros,
}

impl Me {
    fn as_holder(&self) -> Holder {
        Holder { member: self.member.clone(), instance: self.instance.clone() }
    }
}

/// The facts that this member has without etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// The primary by fresh facts.
    pub primary: Option<Writer>,
    pub nodes: BTreeMap<String, Seen>,
    /// The highest number of a term for which all pools wait, and have no server at the writer.
    pub waits_in: u64,
    /// This process changes the primary, and writes the terms itself.
    pub is_changing: bool,
    pub is_leaving: bool,
    pub address: OwnAddress,
}

/// One step at etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read all records.
    Load,
    /// Get a lease of [`super::lease::TTL`].
    Grant,
    Change(Transaction),
    /// End this lease, and so the records that live as long as it.
    Revoke(i64),
}

/// Changes of records that are made together, or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The paths with the revisions that their records must have; 0: there must be none.
    pub checks: Vec<(String, i64)>,
    pub puts: Vec<Record>,
    pub deletes: Vec<String>,
    /// The lease for the records that need one.
    pub lease: i64,
    /// Also read all records, as they are after it.
    pub is_loading: bool,
}

/// A record as etcd has it, or a change of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// The key without the prefix of the cluster.
    pub path: String,
    /// None: it was deleted.
    pub value: Option<Vec<u8>>,
    /// The revision of etcd at which it was changed last.
    pub revision: i64,
}

/// The answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Granted(i64),
    /// All records, and the revision of etcd at which they were read.
    Loaded {
        records: Vec<News>,
        revision: i64,
    },
    Done,
    /// A check was not true, and nothing is changed.
    Refused,
    /// It may be carried out or not.
    Failed(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Out,
    /// The records were read: there is room for this member.
    Looked,
    Granted {
        lease: i64,
        asked_at: Micros,
    },
    In {
        lease: i64,
    },
    /// The records are deleted, and the lease is not.
    Leaving {
        lease: i64,
    },
    Left,
}

/// May clients use the writer?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gate {
    Open,
    /// No client gets a server. Those that have one keep it.
    Wait(String),
    /// An operator has ordered that clients wait.
    Drain(String),
    /// Connections to the writer are closed, too.
    Cut(String),
}

#[derive(Clone, Debug)]
pub struct Membership {
    me: Me,
    stage: Stage,
    lease: Lease,
    view: View,
    /// The watched changes have a gap.
    is_outdated: bool,
    /// The reports of this member about the nodes, as they were written last.
    told: BTreeMap<String, Seen>,
    confirmed: u64,
    /// See [`Own::waits_in`], as it was passed last.
    waits_in: u64,
    wanted: Option<Term>,
    wanted_pause: Option<Option<Pause>>,
    /// A silent member to be removed.
    wanted_removal: Option<String>,
    /// When the last request was given out, and the revision of the view then.
    asked_at: Micros,
    asked_behind: i64,
    /// When a report was written last.
    told_at: Micros,
    retry_at: Micros,
    /// Since when a majority has overruled this leader.
    overruled_since: Option<Micros>,
    abstains_until: Micros,
    claim: Claim,
    trouble: Option<String>,
}

impl Membership {
    #[must_use]
    pub fn new(me: Me) -> Self {
        Self {
            lease: Lease::inherited(me.shared_until),
            me,
            stage: Stage::Out,
            view: View::default(),
            is_outdated: false,
            told: BTreeMap::new(),
            confirmed: 0,
            waits_in: 0,
            wanted: None,
            wanted_pause: None,
            wanted_removal: None,
            asked_at: 0,
            asked_behind: 0,
            told_at: 0,
            retry_at: 0,
            overruled_since: None,
            abstains_until: 0,
            claim: Claim::default(),
            trouble: None,
        }
    }

    #[must_use]
    pub fn me(&self) -> &Me {
        &self.me
    }

    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    #[must_use]
    pub fn lease(&self) -> Lease {
        self.lease
    }

    /// Returns why etcd does not do what this member asks for.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Returns the lease to be renewed.
    #[must_use]
    pub fn kept_lease(&self) -> Option<i64> {
        match self.stage {
            Stage::In { lease } | Stage::Granted { lease, .. } => Some(lease),
            Stage::Out | Stage::Looked | Stage::Leaving { .. } | Stage::Left => None,
        }
    }

    #[must_use]
    pub fn is_leaving(&self) -> bool {
        matches!(self.stage, Stage::Leaving { .. } | Stage::Left)
    }

    #[must_use]
    pub fn has_left(&self) -> bool {
        self.stage == Stage::Left
    }

    /// Is this process a member, as far as it knows?
    #[must_use]
    pub fn is_in(&self) -> bool {
        matches!(self.stage, Stage::In { .. })
    }

    #[must_use]
    pub fn leads(&self, now: Micros) -> bool {
        self.is_in() && self.lease.holds(now) && self.view.leads(&self.me.member, &self.me.instance)
    }

    /// Etcd has renewed this lease by a request that was sent at `asked_at`.
    pub fn renewed(&mut self, lease: i64, asked_at: Micros) {
        // Before it has read the term, a member sends nothing to a writer.
        if self.stage == (Stage::In { lease }) {
            self.lease.renewed(asked_at);
        }
    }

    /// Etcd says that this lease is gone.
    pub fn ended(&mut self, lease: i64) {
        if self.kept_lease() == Some(lease) {
            self.leave_stage("etcd has ended the lease of this Weir".to_owned());
        }
    }

    fn leave_stage(&mut self, why: String) {
        self.stage = Stage::Out;
        self.lease.end();
        self.told.clear();
        self.withdraw();
        self.overruled_since = None;
        self.trouble = Some(why);
    }

    /// Takes back what was asked for and is not written yet.
    pub fn withdraw(&mut self) {
        self.wanted = None;
        self.wanted_pause = None;
        self.wanted_removal = None;
    }

    /// Learns changes of records, in their order. All changes of one revision come together.
    pub fn learn(&mut self, news: &[News]) {
        // The watch may be behind what was read.
        let known = self.view.revision;
        news.iter().filter(|own| own.revision > known).for_each(|own| self.view.learn(own));
    }

    /// The changes that are watched have a gap from now on, until all records are read again.
    pub fn missed(&mut self) {
        self.is_outdated = true;
    }

    /// Asks for this term, which the leader writes next. Whether it was written shows in the view.
    pub fn propose(&mut self, term: Term) {
        self.wanted = Some(term);
    }

    /// Asks for FAILOVER PAUSE, or RESUME if None.
    pub fn propose_pause(&mut self, pause: Option<Pause>) {
        self.wanted_pause = Some(pause);
    }

    /// Asks for the removal of a silent member. Returns false if there is none of this name.
    ///
    /// # Errors
    /// When the member takes part.
    pub fn propose_removal(&mut self, member: &str) -> Result<bool, String> {
        if self.view.is_alive(member) {
            return Err(format!("member {member} takes part: only a silent one can be removed"));
        }
        let is_known = self.view.members.contains_key(member);
        self.wanted_removal = is_known.then(|| member.to_owned());
        Ok(is_known)
    }

    /// Returns the next request.
    pub fn next(&mut self, own: &Own, now: Micros) -> Option<Request> {
        self.waits_in = own.waits_in;
        if now < self.retry_at {
            return None;
        }
        (self.asked_at, self.asked_behind) = (now, self.view.revision);
        match self.stage {
            Stage::Left => None,
            Stage::Out if own.is_leaving => {
                self.stage = Stage::Left;
                None
            }
            Stage::Out => Some(Request::Load),
            Stage::Looked => Some(Request::Grant),
            Stage::Granted { lease, .. } => Some(Request::Change(self.registration(own, lease))),
            // Another member takes the address as soon as the lease is gone.
            Stage::Leaving { lease } => (!own.address.is_up).then_some(Request::Revoke(lease)),
            Stage::In { .. } if self.is_outdated => Some(Request::Load),
            Stage::In { lease } => self.duty(own, lease, now).map(Request::Change),
        }
    }

    /// Registers the member, unless its record has changed since it was read.
    fn registration(&self, own: &Own, lease: i64) -> Transaction {
        let mut checks = vec![self.own_check()];
        let mut puts = self.reports(own);
        puts.push(self.member(self.confirmed));
        if let Some((holder, revision)) = self.view.holder()
            && self.holds_address()
        {
            // It lives as long as this lease from now on.
            checks.push(("address".to_owned(), revision));
            puts.push(Record::Address(holder.clone()));
        }
        let mut deletes = self.stale(own);
        if self.view.leads(&self.me.member, &self.me.instance) {
            // That record lives as long as an older lease of this member.
            deletes.push("leader".to_owned());
        }
        Transaction { checks, puts, deletes, lease, is_loading: true }
    }

    /// Returns the check that nobody else has written this member's record.
    fn own_check(&self) -> (String, i64) {
        let path = format!("members/{}", self.me.member);
        let revision = self.view.revisions.get(&path).copied().unwrap_or_default();
        (path, revision)
    }

    fn member(&self, confirmed: u64) -> Record {
        let Me { member, instance, version, follows, .. } = self.me.clone();
        Record::Member(member, Member { format: FORMAT, version, instance, confirmed, follows })
    }

    /// Returns the reports of this member about the nodes that were not written yet.
    fn reports(&self, own: &Own) -> Vec<Record> {
        let news = own.nodes.iter().filter(|(node, seen)| self.told.get(*node) != Some(*seen));
        news.map(|(node, seen)| Record::Seen(self.me.member.clone(), node.clone(), seen.clone()))
            .collect()
    }

    /// Returns the paths of records about nodes that this member does not watch any more.
    fn stale(&self, own: &Own) -> Vec<String> {
        let written = self.view.seen.get(&self.me.member).into_iter().flatten();
        let gone = written.filter(|(node, _)| !own.nodes.contains_key(*node));
        gone.map(|(node, _)| format!("seen/{}/{node}", self.me.member)).collect()
    }

    /// Returns the next change of a member that is in.
    fn duty(&mut self, own: &Own, lease: i64, now: Micros) -> Option<Transaction> {
        let change = Transaction { lease, ..Transaction::default() };
        let path = format!("members/{}", self.me.member);
        if own.is_leaving || self.view.later_format().is_some() {
            self.stage = Stage::Leaving { lease };
            self.lease.end();
            return Some(Transaction { deletes: vec![path], ..change });
        }
        if let Some(number) = self.confirmation(own, now) {
            let (checks, puts) = (vec![self.own_check()], vec![self.member(number)]);
            return Some(Transaction { checks, puts, ..change });
        }
        if !self.view.is_alive(&self.me.member) && now >= self.told_at + RETRY {
            // Somebody has deleted the reports.
            self.told.clear();
        }
        let (puts, deletes) = (self.reports(own), self.stale(own));
        if !puts.is_empty() || !deletes.is_empty() {
            return Some(Transaction { puts, deletes, ..change });
        }
        if let Some(pause) = self.wanted_pause.take() {
            return Some(match pause {
                Some(pause) => Transaction { puts: vec![Record::Pause(pause)], ..change },
                None => Transaction { deletes: vec!["pause".to_owned()], ..change },
            });
        }
        if let Some(member) = self.wanted_removal.take()
            && !self.view.is_alive(&member)
        {
            let path = format!("members/{member}");
            let revision = self.view.revisions.get(&path).copied().unwrap_or_default();
            let checks = vec![(path.clone(), revision)];
            return Some(Transaction { checks, deletes: vec![path], ..change });
        }
        let is_blind = own.primary.is_none() && self.view.is_writable_elsewhere(&self.me.member);
        let (me, facts) = (self.me.as_holder(), (own.address, is_blind));
        if let Some(step) = self.claim.next(&me, self.view.holder(), facts, now) {
            return Some(self.address_change(step, change));
        }
        if self.view.leader.is_none() {
            let may_campaign = !self.me.follows && now >= self.abstains_until;
            let Me { member, instance, .. } = self.me.clone();
            let leader = Record::Leader(Leader { member, instance });
            let checks = vec![("leader".to_owned(), 0)];
            return may_campaign.then(|| Transaction { checks, puts: vec![leader], ..change });
        }
        let leader = self.view.leader.as_ref().filter(|_| self.leads(now))?.revision;
        if self.is_overruled(own, now) {
            self.abstains_until = now + ABSTENTION;
            let checks = vec![("leader".to_owned(), leader)];
            return Some(Transaction { checks, deletes: vec!["leader".to_owned()], ..change });
        }
        let term = match self.wanted.take() {
            Some(term) => self.is_next(&term).then_some(term),
            None if own.is_changing => None,
            None => self.due_term(own),
        };
        let known = self.view.term.as_ref().map_or(0, |term| term.revision);
        let checks = vec![("leader".to_owned(), leader), ("term".to_owned(), known)];
        term.map(|term| Transaction { checks, puts: vec![Record::Term(term)], ..change })
    }

    fn address_change(&self, step: Step, change: Transaction) -> Transaction {
        let path = "address".to_owned();
        match step {
            Step::Take => {
                let puts = vec![Record::Address(self.me.as_holder())];
                Transaction { checks: vec![(path, 0)], puts, ..change }
            }
            Step::Leave(revision) => Transaction {
                checks: vec![(path.clone(), revision)],
                deletes: vec![path],
                ..change
            },
        }
    }

    /// Returns the number of the term to be confirmed.
    fn confirmation(&self, own: &Own, now: Micros) -> Option<u64> {
        let term = self.view.present()?;
        let is_due = term.phase != Phase::Serving
            && own.waits_in >= term.number
            && self.confirmed < term.number
            && now >= self.me.shared_until;
        is_due.then_some(term.number)
    }

    /// Do the others see that the writer is lost, while this leader sees it?
    fn is_overruled(&mut self, own: &Own, now: Micros) -> bool {
        let writer = own.primary.as_ref().map(|writer| writer.node.as_str());
        let is_overruled = writer.is_some_and(|node| self.view.is_overruled(&self.me.member, node));
        if !is_overruled {
            self.overruled_since = None;
            return false;
        }
        now >= *self.overruled_since.get_or_insert(now) + PATIENCE
    }

    /// Is it the term after the present one? A proposal may be written already.
    fn is_next(&self, term: &Term) -> bool {
        term.number == self.view.present().map_or(0, |present| present.number) + 1
    }

    /// Returns the term that the leader has to write, if it changes no primary itself.
    fn due_term(&self, own: &Own) -> Option<Term> {
        let last = self.view.present();
        let serving = |writer: &Writer| Term::after(last, writer.clone(), Phase::Serving);
        let Some(term) = last else { return own.primary.as_ref().map(serving) };
        let is_later = |own: &&Writer| {
            own.system == term.writer.system && own.timeline >= term.writer.timeline
        };
        match &term.phase {
            // Another member led the change, and has left it.
            Phase::Draining { .. } => Some(serving(&term.writer)),
            Phase::Closed { .. } => own.primary.as_ref().filter(is_later).map(serving),
            // A person or a cluster manager has promoted a node.
            Phase::Serving => own
                .primary
                .as_ref()
                .filter(is_later)
                .filter(|own| **own != term.writer)
                .map(serving),
        }
    }

    /// Learns the answer to the last request.
    pub fn done(&mut self, request: &Request, answer: Answer, own: &Own, now: Micros) {
        if !matches!(answer, Answer::Failed(_) | Answer::Refused) {
            self.trouble = None;
        }
        match (request, answer) {
            (_, Answer::Failed(why)) => {
                self.retry_at = now + RETRY;
                self.trouble = Some(why);
                // Nobody knows whether it was written.
                self.told.clear();
            }
            (Request::Load, Answer::Loaded { records, revision }) => {
                if revision < self.asked_behind {
                    self.leave_stage("etcd has lost records: was it restored?".to_owned());
                    self.view = View::default();
                    self.retry_at = now + REFUSED;
                }
                self.load(&records, revision);
                if self.stage == Stage::Out && !self.is_outdated {
                    self.look(now);
                }
            }
            (Request::Grant, Answer::Granted(lease)) => {
                self.stage = Stage::Granted { lease, asked_at: self.asked_at };
            }
            (Request::Change(_), Answer::Loaded { records, revision }) => {
                self.load(&records, revision);
                if let Stage::Granted { lease, asked_at } = self.stage {
                    self.stage = Stage::In { lease };
                    self.lease.renewed(asked_at);
                    self.told.clone_from(&own.nodes);
                    self.told_at = now;
                }
            }
            (Request::Change(change), Answer::Done) => self.changed(change, now),
            (Request::Change(_), Answer::Refused) => match self.stage {
                Stage::Granted { .. } => {
                    self.stage = Stage::Out;
                    self.trouble = Some("the record of this member has changed".to_owned());
                    self.retry_at = now + REFUSED;
                }
                // Somebody else was faster.
                _ => self.retry_at = now + RETRY / 10,
            },
            (Request::Revoke(_), _) => {
                self.stage = if own.is_leaving { Stage::Left } else { Stage::Out };
                self.told.clear();
                self.retry_at = now + REFUSED;
            }
            (_, Answer::Granted(_) | Answer::Loaded { .. } | Answer::Done | Answer::Refused) => {}
        }
    }

    /// Takes all records as they were read, unless the watch has brought later ones meanwhile.
    fn load(&mut self, records: &[News], revision: i64) {
        if revision < self.view.revision {
            return;
        }
        self.view = View { revision, ..View::default() };
        records.iter().for_each(|own| self.view.learn(own));
        self.is_outdated = false;
    }

    /// Is there room for this member?
    fn look(&mut self, now: Micros) {
        let Me { member, instance, .. } = &self.me;
        let rival = self.view.members.get(member).filter(|own| own.instance != *instance);
        let why = match (self.view.later_format(), rival) {
            (Some(why), _) => why.to_owned(),
            (None, Some(_)) if self.view.is_alive(member) => format!(
                "another process is member {member} of this cluster: if it was not ended just now, \
                 set the key member"
            ),
            (None, _) => {
                self.stage = Stage::Looked;
                return;
            }
        };
        self.trouble = Some(why);
        self.retry_at = now + REFUSED;
    }

    fn changed(&mut self, change: &Transaction, now: Micros) {
        for record in &change.puts {
            match record {
                Record::Seen(_, node, seen) => {
                    self.told.insert(node.clone(), seen.clone());
                    self.told_at = now;
                }
                Record::Member(_, own) => self.confirmed = own.confirmed,
                Record::Leader(_) | Record::Term(_) | Record::Pause(_) | Record::Address(_) => {}
            }
        }
    }

    /// May clients use the writer now? `primary`: the one by this member's own facts.
    #[must_use]
    pub fn gate(&self, primary: Option<&Writer>, now: Micros) -> Gate {
        if !self.lease.holds(now + MARGIN) {
            let why = self.trouble.as_deref().unwrap_or("etcd has not answered in time");
            return Gate::Cut(format!("this Weir holds no lease at etcd: {why}"));
        }
        let Some(term) = self.view.present() else {
            return Gate::Wait("the members have agreed on no primary yet".to_owned());
        };
        match &term.phase {
            Phase::Draining { to } => Gate::Drain(format!("switchover to node {to}")),
            Phase::Closed { .. } => {
                Gate::Cut(format!("failover: the members replace node {}", term.writer.node))
            }
            Phase::Serving if primary.is_some_and(|own| *own != term.writer) => {
                Gate::Wait(format!(
                    "the members have agreed on node {}, timeline {}",
                    term.writer.node, term.writer.timeline
                ))
            }
            Phase::Serving => Gate::Open,
        }
    }

    fn holds_address(&self) -> bool {
        self.claim.holds(&self.me.as_holder(), self.view.holder())
    }

    /// This machine cannot have the virtual address: gives it up, and leaves it to others for a while.
    pub fn abstain(&mut self, now: Micros) {
        self.claim.abstain(self.view.holder().map(|(_, revision)| revision), now);
    }

    /// Is the lease too short for a whole second of the virtual address?
    #[must_use]
    pub fn is_too_short_for_address(&self, now: Micros) -> bool {
        life(self.lease.until(), now).is_none()
    }

    /// Has this machine the virtual address now?
    #[must_use]
    pub fn holding(&self, now: Micros) -> Holding {
        if !self.is_in() {
            return if now < self.me.address_until { Holding::Inherited } else { Holding::No };
        }
        let seconds = self.holds_address().then(|| life(self.lease.until(), now)).flatten();
        seconds.map_or(Holding::No, Holding::For)
    }

    /// May this member begin to replace the lost writer `node` now?
    ///
    /// # Errors
    /// Why not.
    pub fn may_begin(&self, node: &str, now: Micros) -> Result<(), Hesitation> {
        self.may_lead_on(now)?;
        if let Some(pause) = &self.view.pause {
            return Err(Hesitation::Paused(pause.by.clone()));
        }
        let term = self.view.present().ok_or(Hesitation::NoTerm)?;
        if term.writer.node != node {
            return Err(Hesitation::OtherWriter(term.writer.node.clone()));
        }
        self.view.is_lost_by_majority(&self.me.member, node)
    }

    /// May this member go on with a change of the primary?
    ///
    /// # Errors
    /// Why not: it has lost the lead.
    pub fn may_lead_on(&self, now: Micros) -> Result<(), Hesitation> {
        if !self.lease.holds(now) {
            return Err(Hesitation::NoLease);
        }
        match &self.view.leader {
            None => Err(Hesitation::NoLeader),
            Some(_) if self.leads(now) => Ok(()),
            Some(leader) => Err(Hesitation::OtherLeader(leader.record.member.clone())),
        }
    }

    /// Does this member wait since the term of this number, which the view must have? And do all others,
    /// or have they lost their leases?
    ///
    /// # Errors
    /// Why not.
    pub fn do_all_wait(&self, number: u64, now: Micros) -> Result<(), Hesitation> {
        let awaited: Vec<_> = self.view.awaited(&self.me.member, number).collect();
        if self.waits_in < number {
            return Err(Hesitation::Busy);
        }
        match (awaited.is_empty(), now >= self.me.shared_until) {
            (true, true) => Ok(()),
            (true, false) => Err(Hesitation::Predecessor),
            (false, _) => Err(Hesitation::Awaited(awaited.join(", "))),
        }
    }
}
