//! Plays a script on direct connections, then through Weir, and compares the answers.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use testkit::{Message, Pooler, RawClient, frontend};

use crate::compare::{comparable, limit, show};
use crate::hostile::{self, ACTS, Act};
use crate::script::{Action, Script, Step};
use crate::stage::{Locks, Stage, state};

/// The result of a script.
#[derive(Debug)]
pub(crate) enum Outcome {
    Equal,
    /// The script differs as `docs/auto-mode.md` says. The steps after that were not played.
    Limit(&'static str),
    Failure(Failure),
}

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    pub(crate) what: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// PostgreSQL itself did not answer, so the script is wrong.
    Script,
    Hang,
    Reply,
    Parameters,
    Notifications,
    Locks,
    Rest,
    Panic,
}

/// The answers to one write.
#[derive(Debug, Default)]
struct Heard {
    replies: Vec<Message>,
    /// The transaction status, or 0 if the connection is closed.
    status: u8,
    parameters: Parameters,
}

/// The answers to a step on direct connections.
#[derive(Debug)]
enum Seen {
    Written(Heard),
    Left(Locks),
}

/// Values from ParameterStatus.
type Parameters = BTreeMap<String, String>;
/// Payloads in order, by channel and notifying session.
type News = BTreeMap<(String, String), Vec<String>>;

/// A connection that plays a session.
#[derive(Debug)]
struct Player {
    client: RawClient,
    news: News,
}

impl Player {
    fn new(client: RawClient) -> Self {
        Self { client, news: News::new() }
    }

    /// Writes the bytes, and reads until `readies` ReadyForQuery have come.
    fn write(&mut self, bytes: &[u8], readies: usize) -> Result<Heard, String> {
        let mut heard = Heard::default();
        if self.client.try_send(bytes).is_err() {
            return Ok(heard);
        }
        let mut count = 0;
        while count < readies {
            match self.client.try_read() {
                Ok(Some(message)) => {
                    if message.tag == b'Z' {
                        count += 1;
                        heard.status = message.body[0];
                    }
                    self.note(&message);
                    heard.replies.extend(comparable(&message));
                }
                Ok(None) => {
                    heard.status = 0;
                    break;
                }
                Err(error) => return Err(format!("{error}; so far {:?}", heard.replies)),
            }
        }
        heard.parameters.clone_from(&self.client.parameters);
        Ok(heard)
    }

    fn note(&mut self, message: &Message) {
        if message.tag == b'A' {
            let mut texts = message.body[4..].split(|byte| *byte == 0);
            let mut text =
                || String::from_utf8_lossy(texts.next().unwrap_or_default()).into_owned();
            let (channel, payload) = (text(), text());
            let notifier = payload.split('-').next().unwrap_or_default().to_owned();
            self.news.entry((channel, notifier)).or_default().push(payload);
        }
    }

    /// Ends the transaction and reads pending messages.
    fn rest(&mut self) -> Result<(), String> {
        self.write(&frontend::query("ROLLBACK"), 1)?;
        self.write(&frontend::query("SELECT 1"), 1)?;
        Ok(())
    }

    fn count_news(&self) -> usize {
        self.news.values().map(Vec::len).sum()
    }
}

/// Plays a script on both sides.
pub(crate) fn play(stage: &mut Stage, script: &Script) -> Outcome {
    let played = catch_unwind(AssertUnwindSafe(|| play_both(stage, script)));
    played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        failure(Kind::Panic, text.unwrap_or_default())
    })
}

fn failure(kind: Kind, what: String) -> Outcome {
    Outcome::Failure(Failure { kind, what })
}

fn play_both(stage: &mut Stage, script: &Script) -> Outcome {
    stage.reset();
    let (seen, told) = match play_directly(stage, script) {
        Ok(expected) => expected,
        Err(what) => return failure(Kind::Script, what),
    };
    let pooler = stage.pooler(script.setting);
    let mut performance = Performance::new(stage, script, &pooler);
    for (number, (step, seen)) in script.steps.iter().zip(&seen).enumerate() {
        match performance.play(step, seen) {
            Outcome::Equal => {}
            Outcome::Failure(Failure { kind, what }) => {
                let what = format!("step {number}:\n{step}\n    {what}");
                return failure(kind, what);
            }
            Outcome::Limit(name) => return Outcome::Limit(name),
        }
    }
    performance.end(&told)
}

/// The notifications and parameters of a session at rest.
#[derive(Debug)]
struct Told {
    news: News,
    parameters: Parameters,
}

type Expected = (Vec<Seen>, Vec<Told>);

fn play_directly(stage: &mut Stage, script: &Script) -> Result<Expected, String> {
    let mut players: Vec<_> =
        script.startups.iter().map(|startup| Player::new(stage.direct(startup))).collect();
    let mut seen = Vec::new();
    for step in &script.steps {
        let player = &mut players[step.session];
        seen.push(match &step.action {
            Action::Write(requests) => {
                let heard = player.write(&Step::bytes(requests), Step::readies(requests));
                Seen::Written(heard.map_err(|what| format!("{step}\n    directly: {what}"))?)
            }
            Action::Leave { says_goodbye } => {
                let backend = player.client.pid;
                leave(player, *says_goodbye, stage.direct(&script.startups[step.session]));
                Seen::Left(stage.direct_locks_without(backend))
            }
        });
    }
    let mut told = Vec::new();
    for player in &mut players {
        player.rest()?;
        let (news, parameters) = (player.news.clone(), player.client.parameters.clone());
        told.push(Told { news, parameters });
    }
    Ok((seen, told))
}

/// Lets the player continue with another connection.
fn leave(player: &mut Player, says_goodbye: bool, next: RawClient) {
    if says_goodbye {
        let _ = player.client.try_send(frontend::terminate());
    }
    *player = Player::new(next);
}

/// A script that is being played through Weir.
#[derive(Debug)]
struct Performance<'a> {
    stage: &'a mut Stage,
    script: &'a Script,
    pooler: &'a Pooler,
    players: Vec<Player>,
    /// The hostile client that acts, and the one that keeps a server during a step.
    hostile: [Option<RawClient>; 2],
}

impl<'a> Performance<'a> {
    fn new(stage: &'a mut Stage, script: &'a Script, pooler: &'a Pooler) -> Self {
        let login = |startup: &Vec<_>| Player::new(stage.through(pooler, startup));
        let players = script.startups.iter().map(login).collect();
        Self { stage, script, pooler, players, hostile: [None, None] }
    }

    fn hostile(&mut self, place: usize, act: &Act) -> Result<(), String> {
        let mut client = match self.hostile[place].take() {
            Some(client) => client,
            None => self.stage.through(self.pooler, &[]),
        };
        hostile::act(&mut client, act)
            .map_err(|what| format!("{act:?}: {what}{}", state(self.pooler)))?;
        if !matches!(act, Act::Leaves(_)) {
            self.hostile[place] = Some(client);
        }
        Ok(())
    }

    fn intrude(&mut self, step: &Step) -> Result<(), String> {
        for number in &step.intrusion.acts {
            self.hostile(0, &ACTS[*number])?;
        }
        match step.intrusion.stays {
            true => self.hostile(1, &Act::Query("BEGIN; SELECT 1")),
            false => Ok(()),
        }
    }

    fn play(&mut self, step: &Step, seen: &Seen) -> Outcome {
        if let Err(what) = self.intrude(step) {
            return failure(Kind::Hang, format!("a hostile client: {what}"));
        }
        let outcome = match (&step.action, seen) {
            (Action::Write(requests), Seen::Written(expected)) => {
                let player = &mut self.players[step.session];
                match player.write(&Step::bytes(requests), Step::readies(requests)) {
                    Ok(heard) => judge(step, self.script, expected, &heard),
                    Err(what) => {
                        let state = state(self.pooler);
                        failure(Kind::Hang, format!("no answer: {what}{state}"))
                    }
                }
            }
            (Action::Leave { says_goodbye }, Seen::Left(locks)) => {
                let next = self.stage.through(self.pooler, &self.script.startups[step.session]);
                leave(&mut self.players[step.session], *says_goodbye, next);
                match self.stage.wait_for_locks(locks) {
                    Ok(()) => Outcome::Equal,
                    Err(seen) => failure(Kind::Locks, format!("{seen:?} and not {locks:?}")),
                }
            }
            _ => unreachable!("a step is seen as what it is"),
        };
        if step.intrusion.stays
            && let Err(what) = self.hostile(1, &Act::Query("COMMIT"))
        {
            return failure(Kind::Hang, format!("a hostile client: {what}"));
        }
        outcome
    }

    /// Brings all sessions to rest, compares their notifications and parameters, and lets them
    /// leave.
    fn end(mut self, told: &[Told]) -> Outcome {
        let mut outcome = Outcome::Equal;
        for (session, (player, expected)) in self.players.iter_mut().zip(told).enumerate() {
            if let Err(what) = hear(player, &expected.news) {
                let unlistens =
                    ["unlisten", "discard"].iter().any(|word| self.script.says(session, word));
                if !unlistens || !lacks_only_the_last(&player.news, &expected.news) {
                    return failure(Kind::Notifications, format!("session {session}: {what}"));
                }
                outcome = Outcome::Limit("a notification just before UNLISTEN");
            }
            if let Some(what) = misinformed(&expected.parameters, &player.client.parameters) {
                return failure(Kind::Parameters, format!("session {session}: {what}"));
            }
        }
        drop(self.players);
        drop(self.hostile);
        match self.stage.wait_for_rest(self.pooler) {
            Ok(()) => outcome,
            Err(what) => failure(Kind::Rest, what),
        }
    }
}

/// Returns whether `heard` equals `expected` without the last notifications of some senders.
fn lacks_only_the_last(heard: &News, expected: &News) -> bool {
    heard.iter().all(|(from, payloads)| {
        expected.get(from).is_some_and(|expected| expected.starts_with(payloads))
    })
}

/// Waits for the notifications of the direct connection, and checks that no others come.
fn hear(player: &mut Player, expected: &News) -> Result<(), String> {
    player.rest()?;
    let count: usize = expected.values().map(Vec::len).sum();
    while player.count_news() < count {
        match player.client.try_read() {
            Ok(Some(message)) => player.note(&message),
            other => return Err(format!("{other:?}; {:?} and not {expected:?}", player.news)),
        }
    }
    player.rest()?;
    match player.news == *expected {
        true => Ok(()),
        false => Err(format!("{:?} and not {expected:?}", player.news)),
    }
}

fn judge(step: &Step, script: &Script, expected: &Heard, heard: &Heard) -> Outcome {
    let (direct, through) = (&expected.replies, &heard.replies);
    if direct != through || expected.status != heard.status {
        if let Some(name) = limit(step, script.shares_names, direct, through) {
            return Outcome::Limit(name);
        }
        let same = direct.iter().zip(through).take_while(|(one, other)| one == other).count();
        let [direct, through] = [direct.get(same), through.get(same)].map(show);
        let what = format!("message {same}\n    direct:  {direct}\n    through: {through}");
        return failure(Kind::Reply, what);
    }
    // A RESET to a value of the startup packet is reported at the end of the transaction, and so
    // with the next answer.
    let reports_late = !script.startups[step.session].is_empty();
    let is_compared = heard.status == b'I' && !reports_late;
    match misinformed(&expected.parameters, &heard.parameters) {
        Some(what) if is_compared => failure(Kind::Parameters, what),
        _ => Outcome::Equal,
    }
}

/// Returns the parameters whose values differ from those on a direct connection.
fn misinformed(direct: &Parameters, through: &Parameters) -> Option<String> {
    let differing = direct.iter().filter_map(|(name, value)| {
        let other = through.get(name);
        (other != Some(value)).then(|| format!("{name}: direct {value:?}, through {other:?}"))
    });
    let differing: Vec<_> = differing.collect();
    (!differing.is_empty()).then(|| differing.join("; "))
}
