//! Plays a script on direct connections, then through Weir, and compares the answers.

use std::panic::{AssertUnwindSafe, catch_unwind};

use testkit::{Pooler, RawClient, frontend};

use crate::compare::{difference, misinformed};
use crate::hostile::{self, ACTS, Act};
use crate::limits::limit;
use crate::path::DataPath;
use crate::player::{Heard, News, Parameters, Player, Rows, now};
use crate::script::{Action, Event, Login, Script, Start, Step};
use crate::stage::{Locks, Side, Stage, state};

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
    /// Servers outlive their role or its settings.
    Outlived,
    Panic,
}

/// The answers to a step on direct connections.
#[derive(Debug)]
enum Seen {
    /// The answers, and other rows that they may have: see `Check::Reading`.
    Written(Heard, Rows),
    Left(Locks),
    Happened,
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

/// Plays the script again if an hour has ended: then 'today' may have changed in some time zone.
fn play_both(stage: &mut Stage, script: &Script) -> Outcome {
    let hour = || (now() / 3600.0).floor();
    let before = hour();
    let outcome = play_once(stage, script);
    match hour() == before {
        true => outcome,
        false => play_once(stage, script),
    }
}

fn play_once(stage: &mut Stage, script: &Script) -> Outcome {
    stage.on_path = 0;
    stage.reset(Side::Direct);
    let (seen, told) = match play_directly(stage, script) {
        Ok(expected) => expected,
        Err(what) => return failure(Kind::Script, what),
    };
    stage.reset(Side::Through);
    let pooler = stage.pooler(script);
    let mut performance = Performance::new(stage, script, &pooler);
    for (number, (step, seen)) in script.steps.iter().zip(&seen).enumerate() {
        match performance.play(number, step, seen) {
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
    let log_in = |stage: &Stage| {
        let login = |start: &Start| Player::new(stage.direct(start));
        script.sessions.iter().map(login).collect::<Vec<_>>()
    };
    let mut players = log_in(stage);
    let mut seen = Vec::new();
    for step in &script.steps {
        let player = &mut players[step.session];
        seen.push(match &step.action {
            Action::Write(requests) => {
                let heard = player.play(step, requests);
                let heard = heard.map_err(|what| format!("{step}\n    directly: {what}"))?;
                let rows = player.readings(step, &heard)?;
                if let Some(what) = difference(step, &heard, &heard, &rows) {
                    return Err(format!("{step}\n    directly: {what}"));
                }
                Seen::Written(heard, rows)
            }
            Action::Leave { says_goodbye } => {
                let backend = player.client.pid;
                leave(player, *says_goodbye, stage.direct(&script.sessions[step.session]));
                Seen::Left(stage.direct_locks_without(backend))
            }
            Action::Happens(event) => {
                players.clear();
                stage.happen(*event, Side::Direct);
                players = log_in(stage);
                Seen::Happened
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
        let players = Vec::new();
        let mut performance = Self { stage, script, pooler, players, hostile: [None, None] };
        performance.log_in();
        performance
    }

    fn log_in(&mut self) {
        let login = |start: &Start| Player::new(self.stage.through(self.pooler, start));
        self.players = self.script.sessions.iter().map(login).collect();
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        self.players.clear();
        self.hostile = [None, None];
        self.stage.happen(event, Side::Through);
        for login in [Login::Owner, Login::Chief, Login::Clerk] {
            if self.script.sessions.iter().any(|start| start.login == login) {
                self.stage.settle(self.pooler, login)?;
            }
        }
        self.log_in();
        Ok(())
    }

    fn hostile(&mut self, place: usize, act: &Act) -> Result<(), String> {
        let mut client = match self.hostile[place].take() {
            Some(client) => client,
            None => {
                let start = Start { login: Login::Owner, parameters: Vec::new() };
                self.stage.through(self.pooler, &start)
            }
        };
        hostile::act(&mut client, act)
            .map_err(|what| format!("{act:?}: {what}{}", state(self.pooler)))?;
        let keeps = self.stage.path == DataPath::Direct && act.keeps_in_direct_pool();
        if !matches!(act, Act::Leaves(_)) && !keeps {
            self.hostile[place] = Some(client);
        }
        Ok(())
    }

    fn intrude(&mut self, step: &Step) -> Result<(), String> {
        for number in &step.intrusion.acts {
            self.hostile(0, &ACTS[*number])?;
        }
        match step.intrusion.stays {
            true if step.intrusion.acts.is_empty() => {
                self.hostile(1, &Act::Query("BEGIN; SELECT 1"))
            }
            // In a cluster, this one keeps a server of a standby.
            true => self.hostile(1, &Act::Query("BEGIN READ ONLY; SELECT 1")),
            false => Ok(()),
        }
    }

    fn play(&mut self, number: usize, step: &Step, seen: &Seen) -> Outcome {
        if let Err(what) = self.intrude(step) {
            return failure(Kind::Hang, format!("a hostile client: {what}"));
        }
        let outcome = match (&step.action, seen) {
            (Action::Write(requests), Seen::Written(expected, rows)) => {
                let player = &mut self.players[step.session];
                match player.play(step, requests) {
                    Ok(heard) => self.judge(number, expected, rows, &heard),
                    Err(what) => {
                        let state = state(self.pooler);
                        failure(Kind::Hang, format!("no answer: {what}{state}"))
                    }
                }
            }
            (Action::Leave { says_goodbye }, Seen::Left(locks)) => {
                let next = self.stage.through(self.pooler, &self.script.sessions[step.session]);
                leave(&mut self.players[step.session], *says_goodbye, next);
                match self.stage.wait_for_locks(locks) {
                    Ok(()) => Outcome::Equal,
                    Err(seen) => failure(Kind::Locks, format!("{seen:?} and not {locks:?}")),
                }
            }
            (Action::Happens(event), Seen::Happened) => match self.happen(*event) {
                Ok(()) => Outcome::Equal,
                Err(what) => failure(Kind::Outlived, what),
            },
            _ => unreachable!("a step is seen as what it is"),
        };
        if step.intrusion.stays
            && let Err(what) = self.hostile(1, &Act::Query("COMMIT"))
        {
            return failure(Kind::Hang, format!("a hostile client: {what}"));
        }
        outcome
    }

    fn judge(&self, number: usize, expected: &Heard, rows: &Rows, heard: &Heard) -> Outcome {
        let step = &self.script.steps[number];
        if let Some(what) = difference(step, expected, heard, rows) {
            let (direct, through) = (&expected.replies, &heard.replies);
            return match limit(self.stage.path, self.script, number, direct, through) {
                Some(name) => Outcome::Limit(name),
                None => failure(Kind::Reply, what),
            };
        }
        // A RESET to a value of the startup packet is reported at the end of the transaction, and
        // so with the next answer.
        let reports_late = !self.script.sessions[step.session].parameters.is_empty();
        let is_compared = heard.status == b'I' && !reports_late;
        match misinformed(&expected.parameters, &heard.parameters) {
            Some(what) if is_compared => failure(Kind::Parameters, what),
            _ => Outcome::Equal,
        }
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
        self.stage.note_path(self.pooler);
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
