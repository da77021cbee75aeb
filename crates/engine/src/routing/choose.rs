//! Chooses a place for an idle client's request.

use config::Balance;
use sql::{Refusal, Verdict};

use crate::admission::one_pool::OnePool;
use crate::client::{Client, ClientPhase};
use crate::context::Context;
use crate::ids::{Micros, NodeId, PoolId};
use crate::lifecycle::while_waiting::ReaderPlace;
use crate::routing::Place;
use crate::routing::freshness::Need;
use crate::routing::hold::must_wait;
use crate::routing::readers::Readers;
use crate::routing::rules::Drawn;
use crate::routing::sessions::{Harmless, Session};
use crate::routing::why::Why;
use crate::routing::wish::{Wish, token_of, wish_of};
use crate::shell::{Exchange, Io};

/// Maximal number of texts whose verdicts a worker remembers, at 32 bytes each.
const VERDICTS_MAX: usize = 4096;

/// The time that a read waits for a reader's pool in which all servers are in use.
pub(crate) const FULL_PATIENCE: Micros = 10_000;

/// The decision about a request.
struct Choice {
    /// The nodes that may run it, or why the primary runs it.
    nodes: Result<Drawn, Why>,
    /// If the judges say that it changes no data.
    harmless: Option<Harmless>,
    /// Does it name the node?
    is_fixed: bool,
    /// The writes that it must see.
    need: Need,
}

impl Choice {
    fn primary(why: Why, harmless: Option<Harmless>) -> Self {
        Self { nodes: Err(why), harmless, is_fixed: true, need: Need::default() }
    }

    /// A SET alone needs no primary: a standby runs it while there is none.
    fn or_orphan(self, readers: &Readers) -> Self {
        let is_set = self.harmless == Some(Harmless::Set);
        match readers.stand_in().filter(|_| is_set) {
            Some(node) => Self { nodes: Ok(Drawn::One(node)), ..self },
            None => self,
        }
    }
}

/// The place of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Route {
    /// It waits for a fresher standby.
    Held,
    Writer,
    /// The node was ordered, instead of the pool's rules.
    Ordered(NodeId),
    /// `is_fixed`: the request names the node.
    Drawn {
        drawn: Drawn,
        is_fixed: bool,
    },
}

/// Chooses the places of one client's requests.
pub(crate) struct Router<'a, X> {
    pub(crate) client: &'a mut Client,
    pub(crate) session: &'a mut Session,
    /// The client's pool.
    pub(crate) writer: OnePool<'a, X>,
    pub(crate) context: &'a mut Context,
    pub(crate) verdicts: &'a mut Option<Box<sql::Cache<Option<Verdict>>>>,
}

impl<X: Exchange> Router<'_, X> {
    /// Returns when the client's request has arrived, and the need of a request that was judged before.
    pub(crate) fn arrival(&mut self, io: &impl Io<X>) -> (Micros, Option<Need>) {
        self.session.release().unwrap_or_else(|| (self.writer.view.arrival(io), None))
    }

    /// Chooses the place of a request that has arrived at `since`. `first`: the need of a request that
    /// was judged before.
    pub(crate) fn route(
        &mut self,
        request: &[u8],
        since: Micros,
        now: Micros,
        first: Option<Need>,
    ) -> Route {
        let is_late = self.session.take_late();
        if let Some(place) = self.writer.exchange.route(self.writer.id, request) {
            self.session.is_judged_read = place != Place::Writer;
            return match place {
                Place::Reader(node) if !is_late => Route::Ordered(node),
                Place::Writer | Place::Reader(_) => Route::Writer,
            };
        }
        let Choice { nodes, harmless, is_fixed, need } = self.choose(request, since, now, first);
        self.session.need = need;
        let nodes = if is_late { nodes.and(Err(Why::Full)) } else { nodes };
        if let Some(routing) = self.writer.view.settings.routing.as_deref() {
            if let Err(why) = nodes
                && !is_late
                && must_wait(routing, self.session, why, since, now)
            {
                return Route::Held;
            }
            routing.counts.add(nodes.err().unwrap_or(Why::Read));
            if nodes == Err(Why::OwnRead) {
                routing.readers.want_as_of(need.shown.at);
            }
        }
        self.client.while_waiting.choose_reader(is_fixed);
        self.session.is_judged_read = harmless.is_some_and(|kind| kind != Harmless::Doubted);
        self.session.expect(harmless.map(|kind| (kind, request.len())));
        nodes.map_or(Route::Writer, |drawn| Route::Drawn { drawn, is_fixed })
    }

    /// Sends a request to the writer without judging it.
    pub(crate) fn leave_unjudged(&mut self) {
        self.session.expect(None);
        if let Some(routing) = self.writer.view.settings.routing.as_deref() {
            routing.counts.add(Why::Long);
        }
    }

    /// Judges a request of a client that has kept its server.
    pub(crate) fn judge_kept(&mut self, request: &[u8], now: Micros) {
        let kind = self.choose(request, now, now, None).harmless;
        self.session.expect(kind.map(|kind| (kind, request.len())));
    }

    /// Chooses nodes for a request that has arrived at `since`, or says why the primary runs it.
    /// `first`: the need of a request that was judged before.
    fn choose(
        &mut self,
        request: &[u8],
        since: Micros,
        now: Micros,
        first: Option<Need>,
    ) -> Choice {
        let Self { client, session, writer, context, verdicts } = self;
        let schema = writer.exchange.schema();
        let random = scatter(context.next_serial());
        let Some(routing) = writer.view.settings.routing.as_deref() else {
            return Choice::primary(Why::NoStandby, None);
        };
        let verdicts = verdicts.get_or_insert_with(|| {
            let seed = u64::from_le_bytes(*context.seed.first_chunk().unwrap_or(&[0; 8]));
            Box::new(sql::Cache::new(!seed, VERDICTS_MAX))
        });
        let catalog = &routing.catalog;
        let judge = |text: &[u8]| match verdicts.judge(text, Some(&catalog.view), catalog.number) {
            _ if routing.rules.lists_text(text) => Err(Why::List),
            Verdict::ReadOnlyTransaction if catalog.has_serializable => {
                Ok(Verdict::Refused(Refusal::Serializable))
            }
            verdict @ (Verdict::Read | Verdict::ReadOnlyTransaction | Verdict::Refused(_)) => {
                Ok(verdict)
            }
        };
        let asked = wish_of(client, request, &routing.rules, judge);
        let may_judge = catalog.may_judge(schema, session.doubted_at);
        let harmless = asked.harmless.map(|kind| if may_judge { kind } else { Harmless::Doubted });
        let wish = match asked.place {
            Ok(Wish::Standby) if !may_judge => Err(Why::Catalogs),
            place => place,
        };
        let stay = session.node(&routing.stays);
        let mut need = first.unwrap_or_else(|| routing.need(session.wrote, session.shown, since));
        let (wish, token) = match wish.and_then(|wish| Ok((wish, token_of(client)?))) {
            Ok(found) => found,
            Err(why) => return Choice::primary(why, harmless).or_orphan(&routing.readers),
        };
        need.token = token;
        need.any_age =
            routing.readers.are_orphaned() && matches!(wish, Wish::Hinted | Wish::Node(_));
        let nodes = match wish {
            Wish::Node(name) => match routing.readers.named(name) {
                Some(node) => routing.node(node, need, now).map(|()| Drawn::One(node)),
                None => Err(Why::Hint),
            },
            Wish::Standby | Wish::Hinted => match routing.rules.balance {
                Balance::Session => routing.node_of_session(stay, need, now, random),
                Balance::Statement => routing.draw(need, now, random),
            },
        };
        if token > 0 && nodes.is_err() {
            // Weir does not know when it was written.
            routing.readers.want_as_of(now);
        }
        Choice { nodes, harmless, is_fixed: matches!(wish, Wish::Node(_)), need }
    }

    /// Notes that a standby gets the client's request. `is_fixed`: the request names it, so the session
    /// does not stay there.
    pub(crate) fn go_to(&mut self, node: NodeId, is_fixed: bool) {
        let Some(routing) = self.writer.view.settings.routing.as_deref() else { return };
        if let Some(reader) = routing.readers.get(node) {
            self.session.goes_to((node, reader.life()));
        }
        if !is_fixed && routing.rules.balance == Balance::Session {
            self.session.stay_with(node, &routing.stays);
        }
    }
}

impl Client {
    /// Has it sent a request ahead that must be routed, now that it has no server? The rest of a
    /// partial message is awaited.
    #[cold]
    pub(crate) fn has_request_to_route(&mut self) -> bool {
        self.await_nothing();
        self.stream.holds_message()
    }

    /// May its request be routed again, because this reader's pool does not serve it? Its server has
    /// got no byte of the request.
    pub(crate) fn may_leave_reader(&self, pool: PoolId) -> bool {
        match *self.phase {
            ClientPhase::Idle | ClientPhase::Waiting(_) => {
                self.pool.id().is_some_and(|own| own != pool)
            }
            ClientPhase::Login(_)
            | ClientPhase::Preparing(_)
            | ClientPhase::Linked
            | ClientPhase::Failed(_)
            | ClientPhase::Canceling { .. } => false,
        }
    }
}

/// Spreads a counter over all numbers (SplitMix64).
fn scatter(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Is this reader's pool too full for a request with this place?
pub(crate) fn is_full<X: Exchange>(
    pool: &mut OnePool<'_, X>,
    place: ReaderPlace,
    now: Micros,
) -> bool {
    pool.lock(|pool| match place {
        ReaderPlace::Fixed => false,
        ReaderPlace::Open => pool.is_full(FULL_PATIENCE, now),
        ReaderPlace::Left => pool.is_used_up(),
    })
}
