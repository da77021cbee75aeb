//! The routing of one pool's requests: its rules, the standbys, and the dangerous names of its
//! database. The pool's clients share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use config::{Balance, Config, Database, Pattern, PoolMode, ReadAfterWrite, ReadsGo, WhenStale};
use sql::CatalogView;

use crate::ids::{Micros, NodeId};
use crate::routing::freshness::{Limits, Need, Shown, Wrote};
use crate::routing::readers::{Reader, Readers};
use crate::routing::stays::{Stays, share};
use crate::routing::why::{Counts, Why};

/// The keys of a database that concern routing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadRules {
    pub read_after_write: ReadAfterWrite,
    pub limits: Limits,
    pub balance: Balance,
    pub when_stale: WhenStale,
    /// The longest wait of a read for a standby that is fresh enough.
    pub stale_wait: Micros,
    /// The primary runs the texts that match one of these.
    pub primary_texts: Vec<Pattern>,
    /// The primary runs all requests of these applications.
    pub primary_applications: Vec<Pattern>,
}

impl ReadRules {
    /// Returns the rules of a database's pool, or None if its reads stay on the primary.
    pub fn of(config: &Config, database: &Database, user: &str) -> Option<Self> {
        let cluster = database.cluster.as_ref().and_then(|name| config.clusters.get(name));
        let is_on = config.reads(database, user) == ReadsGo::Standby
            && config.pool_mode(database, user) == PoolMode::Auto;
        (is_on && cluster.is_some()).then(|| Self {
            read_after_write: database.read_after_write,
            limits: Limits {
                age_max: database.max_staleness.as_micros() as Micros,
                lag_bytes_max: database.max_lag_bytes.into(),
            },
            balance: database.balance,
            when_stale: database.when_stale,
            stale_wait: database.stale_wait.as_micros() as Micros,
            primary_texts: database.primary_texts.clone(),
            primary_applications: database.primary_applications.clone(),
        })
    }

    /// Is this text on the list of those that the primary runs?
    pub(crate) fn lists_text(&self, text: &[u8]) -> bool {
        is_listed(&self.primary_texts, text)
    }

    /// Is the application on the list of those whose requests the primary runs?
    pub(crate) fn lists_application(&self, name: &[u8]) -> bool {
        is_listed(&self.primary_applications, name)
    }

    /// Is each read to see all commits before its arrival?
    pub(crate) fn are_strict(&self) -> bool {
        self.read_after_write == ReadAfterWrite::Strict
    }

    /// Does a read wait that no standby may run for this reason?
    pub(crate) fn wait_for(&self, why: Why) -> bool {
        let waits = self.when_stale == WhenStale::Wait;
        why == Why::OwnWrite && self.are_strict()
            || waits && matches!(why, Why::OwnWrite | Why::OwnRead | Why::Stale)
    }
}

fn is_listed(list: &[Pattern], text: &[u8]) -> bool {
    !list.is_empty() && {
        let text = String::from_utf8_lossy(text);
        list.iter().any(|pattern| pattern.matches(&text))
    }
}

/// The dangerous names of a database.
#[derive(Debug, Default)]
pub struct Catalog {
    pub view: CatalogView,
    /// Its number among all views of the process; 0 = it was never read.
    pub number: u64,
    /// Are transactions of some role SERIALIZABLE by default? Then the primary runs them all: a
    /// standby would refuse the second statement of a READ ONLY transaction.
    pub has_serializable: bool,
    /// The catalogs had this state when the number of schema changes was this.
    generation: AtomicU64,
    /// The catalogs had this state at this moment, or later.
    checked_as_of: AtomicU64,
    /// When a transaction last ended that may have changed the schema unseen; 0 = never. The next
    /// view of the database has the same.
    doubted_at: Arc<AtomicU64>,
}

impl Catalog {
    pub fn new(view: CatalogView, number: u64, has_serializable: bool, generation: u64) -> Self {
        let generation = AtomicU64::new(generation);
        Self { view, number, has_serializable, generation, ..Self::default() }
    }

    /// Takes over the doubts about an earlier view of the database.
    #[must_use]
    pub fn after(self, earlier: &Self) -> Self {
        Self { doubted_at: earlier.doubted_at.clone(), ..self }
    }

    /// Notes that the catalogs had this state at this moment.
    pub fn check(&self, as_of: Micros) {
        self.checked_as_of.fetch_max(as_of, Ordering::Release);
    }

    /// Notes that a transaction has ended that may have changed the schema unseen.
    pub(crate) fn doubt(&self, now: Micros) {
        self.doubted_at.fetch_max(now, Ordering::Release);
    }

    /// May the catalogs have changed since they were checked?
    pub fn is_doubted(&self) -> bool {
        self.doubted_at.load(Ordering::Acquire) > self.checked_as_of.load(Ordering::Acquire)
    }

    /// Does it show all changes before this moment, when a session may have made one; 0 = never? If
    /// not, it is doubted.
    fn is_known_since(&self, doubted_at: Micros) -> bool {
        let is_known = doubted_at <= self.checked_as_of.load(Ordering::Acquire);
        if !is_known {
            self.doubt(doubted_at);
        }
        is_known
    }

    /// May reads of a session be judged by it? See [`Self::is_of`] and [`Self::is_known_since`].
    pub(crate) fn may_judge(&self, generation: u64, doubted_at: Micros) -> bool {
        self.is_of(generation) && self.is_known_since(doubted_at)
    }

    /// Notes that the catalogs had not changed when `generation` schema changes had been seen.
    pub fn confirm(&self, generation: u64) {
        self.generation.fetch_max(generation, Ordering::Release);
    }

    /// Was it read since the last schema change?
    pub fn is_of(&self, generation: u64) -> bool {
        self.number != 0 && self.generation.load(Ordering::Acquire) == generation
    }
}

/// The standbys that may run a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drawn {
    One(NodeId),
    /// The less busy one of two runs it.
    Two([NodeId; 2]),
    /// The session moves to a standby with a smaller share of the sessions, if a server is free there.
    Move {
        from: NodeId,
        to: NodeId,
    },
}

/// The routing of a pool's requests.
#[derive(Debug, Default)]
pub struct Routing {
    pub rules: ReadRules,
    pub readers: Arc<Readers>,
    pub catalog: Arc<Catalog>,
    pub counts: Arc<Counts>,
    /// When a transaction of the pool that may have written last ended; 0 = never.
    wrote_at: Arc<AtomicU64>,
    /// When another role, database or stored settings of the pool were noticed last; 0 = never.
    role_changed_at: Arc<AtomicU64>,
    /// For each node: was it too old for a read of this pool?
    is_too_old: Box<[AtomicBool]>,
    /// The sessions that stay with each node.
    pub(crate) stays: Arc<Stays>,
}

impl Routing {
    /// Returns the routing of a pool, whose routing was `before`.
    pub fn new(
        rules: ReadRules,
        readers: Arc<Readers>,
        catalog: Arc<Catalog>,
        before: Option<&Self>,
    ) -> Self {
        let stays = before.map(|before| &before.stays).filter(|stays| stays.are_with(&readers));
        Self {
            stays: stays.cloned().unwrap_or_else(|| Arc::new(Stays::new(readers.clone()))),
            rules,
            is_too_old: readers.all().map(|_| AtomicBool::new(false)).collect(),
            readers,
            catalog,
            counts: before.map(|before| before.counts.clone()).unwrap_or_default(),
            wrote_at: before.map(|before| before.wrote_at.clone()).unwrap_or_default(),
            role_changed_at: before.map(|own| own.role_changed_at.clone()).unwrap_or_default(),
        }
    }

    /// Is this the routing by these rules, readers and catalog?
    pub fn is_by(&self, rules: &ReadRules, readers: &Arc<Readers>, catalog: &Arc<Catalog>) -> bool {
        self.rules == *rules
            && Arc::ptr_eq(&self.readers, readers)
            && Arc::ptr_eq(&self.catalog, catalog)
    }

    /// Notes that a transaction has ended that may have written. See [`Wrote::note`] for `now`.
    pub(crate) fn note_write(&self, now: Micros) {
        self.wrote_at.fetch_max(now, Ordering::Release);
        self.readers.want_as_of(now);
    }

    /// Notes that the primary has another role, database or stored settings for the pool's names. A
    /// standby that lacks the change would log its servers in as before.
    pub(crate) fn note_role_change(&self, now: Micros) {
        self.role_changed_at.fetch_max(now, Ordering::Release);
        self.readers.want_as_of(now);
    }

    /// Returns the moment of the last such change; 0 = never.
    pub(crate) fn role_changed_at(&self) -> Micros {
        self.role_changed_at.load(Ordering::Acquire)
    }

    /// Returns the moment of the last such change, if this node has it; otherwise 0.
    pub(crate) fn role_change_at(&self, node: NodeId) -> Micros {
        let (changed_at, reader) = (self.role_changed_at(), self.readers.get(node));
        let has_it = reader.and_then(Reader::fresh_as_of).is_some_and(|as_of| as_of >= changed_at);
        if has_it { changed_at } else { 0 }
    }

    /// Returns the need of a read that has arrived at `since`, after this write and this read of its
    /// session.
    pub(crate) fn need(&self, session: Wrote, shown: Shown, since: Micros) -> Need {
        let user = Wrote::at(self.wrote_at.load(Ordering::Acquire));
        Need::of(self.rules.read_after_write, [session, user], shown, since)
    }

    /// Returns whether the node may run a read with this need.
    fn allows(&self, node: NodeId, reader: &Reader, need: Need, now: Micros) -> Result<(), Why> {
        let Some(fresh_as_of) = reader.fresh_as_of() else { return Err(Why::NoStandby) };
        if fresh_as_of < self.role_changed_at() {
            return Err(Why::Stale);
        }
        let state = self.is_too_old.get(usize::from(node.0));
        let was_too_old = state.is_some_and(|state| state.load(Ordering::Relaxed));
        let limits = self.rules.limits;
        let may = limits.allow(was_too_old, Some(fresh_as_of), reader.lag_bytes(), now);
        if let Some(state) = state.filter(|_| may == was_too_old) {
            state.store(!may, Ordering::Relaxed);
        }
        if !may && !need.any_age {
            return Err(Why::Stale);
        }
        if !need.is_met(Some(fresh_as_of), reader.reached()) {
            return Err(Why::OwnWrite);
        }
        match need.shown.is_at(node, reader.life(), Some(fresh_as_of)) {
            true => Ok(()),
            false => Err(Why::OwnRead),
        }
    }

    /// Returns each node with its name, and whether it may run a read of a new session.
    pub fn nodes(&self, now: Micros) -> impl Iterator<Item = (NodeId, &str, Why)> {
        self.readers.all().map(move |(node, reader)| {
            let need = self.need(Wrote::default(), Shown::default(), now);
            let allowed = self.allows(node, reader, need, now);
            (node, &*reader.name, allowed.err().unwrap_or(Why::Read))
        })
    }

    /// Returns whether this node may run a read, whatever its weight.
    pub(crate) fn node(&self, node: NodeId, need: Need, now: Micros) -> Result<(), Why> {
        let reader = self.readers.get(node).ok_or(Why::NoStandby)?;
        self.allows(node, reader, need, now)
    }

    /// Returns the other nodes that may run a read.
    pub(crate) fn others(
        &self,
        node: NodeId,
        need: Need,
        now: Micros,
    ) -> impl Iterator<Item = NodeId> {
        let drawn = move |(other, reader): &(NodeId, &Reader)| *other != node && reader.weight > 0;
        let all = self.readers.all().filter(drawn);
        all.filter(move |(other, reader)| self.allows(*other, reader, need, now).is_ok())
            .map(|(other, _)| other)
    }

    /// Returns the nodes that may run a read. If there is none, returns why the best one may not.
    fn fit(&self, need: Need, now: Micros) -> Result<Vec<(NodeId, &Reader)>, Why> {
        let mut why = Why::NoStandby;
        let mut fit = Vec::new();
        for (node, reader) in self.readers.all().filter(|(_, reader)| reader.weight > 0) {
            match self.allows(node, reader, need, now) {
                Ok(()) => fit.push((node, reader)),
                Err(own) if near(own) > near(why) => why = own,
                Err(_) => {}
            }
        }
        if fit.is_empty() { Err(why) } else { Ok(fit) }
    }

    /// Draws two different nodes of those that may run a read, by weight.
    pub(crate) fn draw(&self, need: Need, now: Micros, random: u64) -> Result<Drawn, Why> {
        let mut fit = self.fit(need, now)?;
        // Until then, the session can only stay with the standby that has answered last.
        self.readers.want_as_of(need.shown.at);
        let one = draw_from(&mut fit, random >> 32).ok_or(Why::NoStandby)?;
        let other = draw_from(&mut fit, random & 0xffff_ffff);
        Ok(other.map_or(Drawn::One(one), |other| Drawn::Two([one, other])))
    }

    /// Returns the node for a read of a session. A session that stays with `own` keeps it while that
    /// node may run the read and has no more than its share of the sessions. Otherwise the node with
    /// the smallest share gets the session.
    pub(crate) fn node_of_session(
        &self,
        own: Option<NodeId>,
        need: Need,
        now: Micros,
        random: u64,
    ) -> Result<Drawn, Why> {
        let stays = |node: &NodeId| {
            self.readers.get(*node).is_some_and(|reader| reader.weight > 0)
                && self.node(*node, need, now).is_ok()
        };
        if let Some(own) = own.filter(stays) {
            let lighter = self.lighter(own, need, now);
            return Ok(lighter.map_or(Drawn::One(own), |to| Drawn::Move { from: own, to }));
        }
        let mut fit = self.fit(need, now)?;
        // Of nodes that have the same shares, any may be the first.
        let first = random as usize % fit.len().max(1);
        fit.rotate_left(first);
        self.least_of(fit.into_iter()).map(Drawn::One).ok_or(Why::NoStandby)
    }

    /// Returns another node for a session, if that makes the shares more even.
    fn lighter(&self, own: NodeId, need: Need, now: Micros) -> Option<NodeId> {
        let here = share(self.stays.at(own), self.readers.get(own)?.weight);
        let gains = |(node, reader): &(NodeId, &Reader)| {
            *node != own
                && reader.weight > 0
                && self.stays.with_one_more(*node, reader)[0] < here
                && self.allows(*node, reader, need, now).is_ok()
        };
        self.least_of(self.readers.all().filter(gains))
    }

    /// Returns the node that has the smallest share of the sessions after one more.
    fn least_of<'a>(&self, nodes: impl Iterator<Item = (NodeId, &'a Reader)>) -> Option<NodeId> {
        let shares = nodes.map(|(node, reader)| (self.stays.with_one_more(node, reader), node));
        let least = shares.min_by(|([own, all], _), ([other_own, other_all], _)| {
            own.total_cmp(other_own).then(all.total_cmp(other_all))
        });
        least.map(|(_, node)| node)
    }
}

/// Returns how near to a read on a standby this reason is: which one is told of several standbys.
fn near(why: Why) -> usize {
    let by_nearness = [Why::Stale, Why::OwnWrite, Why::OwnRead];
    by_nearness.iter().position(|known| *known == why).map_or(0, |at| at + 1)
}

/// Takes one of these nodes, by weight.
fn draw_from(fit: &mut Vec<(NodeId, &Reader)>, random: u64) -> Option<NodeId> {
    let total: u64 = fit.iter().map(|(_, reader)| u64::from(reader.weight)).sum();
    let mut at = random.checked_rem(total)?;
    let drawn = fit.iter().position(|(_, reader)| {
        let is_it = at < u64::from(reader.weight);
        at = at.saturating_sub(u64::from(reader.weight));
        is_it
    });
    drawn.map(|drawn| fit.remove(drawn).0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::stays::Stay;

    fn routing(weights: &[u32]) -> Routing {
        let nodes = weights.iter().enumerate().map(|(at, weight)| (at.to_string(), *weight));
        let rules = ReadRules {
            limits: Limits { age_max: 1_000, lag_bytes_max: 0 },
            ..ReadRules::default()
        };
        Routing::new(rules, Arc::new(Readers::new(nodes)), Arc::default(), None)
    }

    fn set(routing: &Routing, node: u16, fresh_as_of: Micros) {
        routing.readers.get(NodeId(node)).expect("a node").set(Some(fresh_as_of), 0, 0);
    }

    fn wrote(moment: Micros) -> Need {
        Need { wrote: Wrote::at(moment), ..Need::default() }
    }

    #[test]
    fn only_fresh_nodes_are_drawn_by_their_weight() {
        let routing = routing(&[1, 3, 0, 1]);
        let never = Need::default();
        assert_eq!(routing.draw(never, 5_000, 7), Err(Why::NoStandby));
        set(&routing, 0, 4_900);
        set(&routing, 1, 4_900);
        set(&routing, 2, 4_900);
        set(&routing, 3, 100);
        let mut drawn = [0; 4];
        for at in 0..400 {
            let two = routing.draw(never, 5_000, at << 32 | at);
            let Ok(Drawn::Two([one, other])) = two else { panic!("{two:?}") };
            assert_ne!(one, other, "the busier one could not be told");
            drawn[usize::from(one.0)] += 1;
        }
        assert_eq!(drawn, [100, 300, 0, 0]);
        assert_eq!(routing.node(NodeId(2), never, 5_000), Ok(()), "by its name");
        assert_eq!(routing.node(NodeId(3), never, 5_000), Err(Why::Stale));
        assert_eq!(routing.node(NodeId(9), never, 5_000), Err(Why::NoStandby));
    }

    /// A standby without the change would log its servers in as the former role.
    #[test]
    fn a_standby_is_read_once_it_has_a_change_of_the_role() {
        let routing = routing(&[1]);
        set(&routing, 0, 4_900);
        let hinted = Need { any_age: true, ..Need::default() };
        routing.note_role_change(4_950);
        for need in [Need::default(), hinted] {
            assert_eq!(routing.node(NodeId(0), need, 5_000), Err(Why::Stale));
        }
        let after = Routing::new(
            routing.rules.clone(),
            routing.readers.clone(),
            Arc::default(),
            Some(&routing),
        );
        assert_eq!(after.node(NodeId(0), hinted, 5_000), Err(Why::Stale), "after a reload");
        set(&routing, 0, 4_950);
        assert_eq!(after.node(NodeId(0), Need::default(), 5_000), Ok(()));
    }

    /// Has a session of this pool read, which stays with a node or with none yet.
    fn reads(routing: &Routing, session: &mut Option<Stay>, read_at: Micros) -> u16 {
        let own = session.as_ref().and_then(|stay| stay.node_in(&routing.stays));
        let by = own.and_then(|node| Some((node, routing.readers.get(node)?.life())));
        let need = Need { shown: Shown { at: read_at, by }, ..Need::default() };
        let node = routing.node_of_session(own, need, 5_000, 7);
        let node = match node.expect("a node") {
            Drawn::One(node) | Drawn::Move { to: node, .. } => node,
            two @ Drawn::Two(_) => panic!("{two:?}"),
        };
        if own != Some(node) {
            *session = Some(Stays::begin(&routing.stays, node));
        }
        node.0
    }

    fn number_at(routing: &Routing, nodes: u16) -> Vec<u32> {
        (0..nodes).map(|node| routing.stays.at(NodeId(node))).collect()
    }

    #[test]
    fn sessions_are_spread_evenly_by_weight() {
        let routing = routing(&[1, 3, 0, 1]);
        (0..4).for_each(|node| set(&routing, node, 4_900));
        let mut sessions: Vec<_> = (0..20).map(|_| None).collect();
        for session in &mut sessions {
            reads(&routing, session, 0);
            // No node has more than another one would have with one session more.
            for (one, other) in
                [0, 1, 3].into_iter().flat_map(|one| [0, 1, 3].map(|other| (one, other)))
            {
                let has = share(routing.stays.at(NodeId(one)), [1, 3, 0, 1][usize::from(one)]);
                let other = NodeId(other);
                let reader = routing.readers.get(other).expect("a node");
                assert!(has <= routing.stays.with_one_more(other, reader)[0], "{one}, {other:?}");
            }
        }
        assert_eq!(number_at(&routing, 4), [4, 12, 0, 4]);
        // They stay, and are counted until they end.
        sessions.iter_mut().for_each(|session| assert!(reads(&routing, session, 0) != 2));
        assert_eq!(number_at(&routing, 4), [4, 12, 0, 4]);
        sessions.clear();
        assert_eq!(number_at(&routing, 4), [0; 4]);
    }

    #[test]
    fn a_session_returns_to_a_standby_that_is_back_without_going_back_in_time() {
        let routing = routing(&[1, 1]);
        set(&routing, 0, 4_900);
        let mut sessions: Vec<_> = (0..8).map(|_| None).collect();
        sessions.iter_mut().for_each(|session| assert_eq!(reads(&routing, session, 0), 0));
        // It has everything before 4,800, and the sessions have read later.
        set(&routing, 1, 4_800);
        sessions.iter_mut().for_each(|session| assert_eq!(reads(&routing, session, 4_800), 0));
        sessions.iter_mut().for_each(|session| _ = reads(&routing, session, 4_799));
        assert_eq!(number_at(&routing, 2), [4, 4]);
        // Nobody moves for nothing.
        let before: Vec<_> = sessions.iter_mut().map(|one| reads(&routing, one, 0)).collect();
        let after: Vec<_> = sessions.iter_mut().map(|one| reads(&routing, one, 0)).collect();
        assert_eq!(before, after);
    }

    #[test]
    fn pools_with_one_session_each_share_the_nodes() {
        let first = routing(&[1, 1]);
        (0..2).for_each(|node| set(&first, node, 4_900));
        let pool =
            || Routing::new(first.rules.clone(), first.readers.clone(), Arc::default(), None);
        let pools: Vec<_> = (0..8).map(|_| pool()).collect();
        let mut sessions: Vec<_> = (0..8).map(|_| None).collect();
        let all = pools.iter().zip(&mut sessions);
        let at_first =
            all.map(|(pool, session)| reads(pool, session, 0)).filter(|at| *at == 0).count();
        assert_eq!(at_first, 4);
    }

    #[test]
    fn other_nodes_have_no_sessions_and_other_catalogs_have_the_same() {
        let routing = routing(&[1, 1]);
        (0..2).for_each(|node| set(&routing, node, 4_900));
        let mut session = None;
        let node = NodeId(reads(&routing, &mut session, 0));
        let renewed =
            |readers| Routing::new(routing.rules.clone(), readers, Arc::default(), Some(&routing));
        assert_eq!(renewed(routing.readers.clone()).stays.at(node), 1);
        let others = renewed(Arc::new(Readers::new([("x".to_owned(), 1)])));
        assert_eq!(session.expect("a stay").node_in(&others.stays), None);
    }

    #[test]
    fn the_best_reason_against_the_standbys_is_told() {
        let routing = routing(&[1, 1]);
        set(&routing, 0, 4_900);
        set(&routing, 1, 100);
        assert_eq!(routing.draw(wrote(4_900), 5_000, 0), Err(Why::OwnWrite));
        assert_eq!(routing.draw(wrote(4_899), 5_000, 0), Ok(Drawn::One(NodeId(0))));
        assert_eq!(routing.draw(Need::default(), 9_000, 0), Err(Why::Stale));
        routing.readers.get(NodeId(0)).expect("a node").set(None, 0, 0);
        assert_eq!(routing.draw(Need::default(), 1_100, 0), Err(Why::Stale), "it was too old");
    }

    #[test]
    fn writes_of_others_count_for_a_user_alone() {
        let mut routing = routing(&[1]);
        set(&routing, 0, 4_900);
        routing.note_write(4_950);
        let draw = |routing: &Routing| {
            let need = routing.need(Wrote::default(), Shown::default(), 5_000);
            routing.draw(need, 5_000, 0)
        };
        assert_eq!(draw(&routing), Ok(Drawn::One(NodeId(0))));
        routing.rules.read_after_write = ReadAfterWrite::User;
        assert_eq!(draw(&routing), Err(Why::OwnWrite));
        let next = Routing::new(
            routing.rules.clone(),
            routing.readers.clone(),
            Arc::default(),
            Some(&routing),
        );
        assert_eq!(draw(&next), Err(Why::OwnWrite), "it is not forgotten");
    }

    #[test]
    fn a_read_waits_only_for_what_time_can_mend() {
        let known = |why: &Why| matches!(why, Why::OwnWrite | Why::OwnRead | Why::Stale);
        let whys = || Why::all().filter(|why| !known(why));
        for (read_after_write, when_stale, own_write, stale) in [
            (ReadAfterWrite::Session, WhenStale::Primary, false, false),
            (ReadAfterWrite::Session, WhenStale::Wait, true, true),
            (ReadAfterWrite::Strict, WhenStale::Primary, true, false),
        ] {
            let rules = ReadRules { read_after_write, when_stale, ..ReadRules::default() };
            assert_eq!(rules.wait_for(Why::OwnWrite), own_write);
            assert_eq!(rules.wait_for(Why::Stale), stale);
            assert_eq!(rules.wait_for(Why::OwnRead), stale);
            assert!(!whys().any(|why| rules.wait_for(why)));
        }
    }

    #[test]
    fn a_catalog_is_good_until_the_next_schema_change() {
        assert!(!Catalog::default().is_of(0), "it was never read");
        let catalog = Catalog::new(CatalogView::default(), 1, false, 4);
        assert!(catalog.is_of(4));
        assert!(!catalog.is_of(5));
        catalog.confirm(5);
        catalog.confirm(4);
        assert!(catalog.is_of(5));
    }

    #[test]
    fn a_view_is_doubted_until_it_was_checked() {
        let catalog = Catalog::new(CatalogView::default(), 1, false, 4);
        assert!(!catalog.is_doubted() && catalog.may_judge(4, 0));
        catalog.doubt(70);
        assert!(catalog.is_doubted() && catalog.may_judge(4, 0), "another session");
        catalog.check(69);
        assert!(catalog.is_doubted() && !catalog.may_judge(4, 70));
        let next = Catalog::new(CatalogView::default(), 2, false, 4).after(&catalog);
        next.check(80);
        assert!(!next.is_doubted() && next.may_judge(4, 70));
        assert!(catalog.is_doubted() && !catalog.may_judge(4, 70), "its names are the old ones");
        catalog.doubt(90);
        assert!(next.is_doubted());
    }
}
