//! A script, and how it is played: to PostgreSQL directly, then through Weir, several victims
//! taking turns.

use std::collections::BTreeMap;

use testkit::{Message, RawClient};

use super::differences::comparable;
use super::scenes::{Keeps, Scene};
use super::stage::Stage;
use super::ways::{Act, Ending, Step, Way};

/// What one victim does from its login to its end.
#[derive(Clone, Debug, Default)]
pub(super) struct Script {
    /// Settings in the startup packet.
    pub(super) startup: Vec<(String, String)>,
    pub(super) steps: Vec<Step>,
}

/// Scripts that are played at the same time.
#[derive(Debug)]
pub(super) struct Cast {
    pub(super) scripts: Vec<Script>,
    pub(super) keeps: Keeps,
}

impl Script {
    /// What was there before, the act, what can be seen of it, its undoing, what can be seen then.
    pub(super) fn of_scene(scene: &Scene, way: Way, ending: Ending, unique: usize) -> Option<Self> {
        let mut steps = Vec::new();
        Self::add_scene(&mut steps, scene, way, ending, unique)?;
        steps.push(Step::query(&scene.undo));
        steps.extend(scene.looks.iter().map(|sql| Step::query(sql)));
        Some(Self { startup: scene.startup.clone(), steps })
    }

    pub(super) fn add_scene(
        steps: &mut Vec<Step>,
        scene: &Scene,
        way: Way,
        ending: Ending,
        unique: usize,
    ) -> Option<()> {
        let (prelude, act): (Vec<Step>, Act) = way.steps(scene, unique)?;
        steps.extend(scene.before.iter().map(|sql| Step::query(sql)));
        steps.extend(prelude);
        steps.extend(ending.steps(&act));
        steps.extend(scene.looks.iter().map(|sql| Step::query(sql)));
        Some(())
    }
}

/// What was heard in answer to a step. Notifications come when they come, and are by themselves.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Heard {
    pub(super) replies: Vec<Message>,
    pub(super) notifications: Vec<Message>,
    /// The transaction's status; 0 if the connection is gone.
    pub(super) status: u8,
}

/// Says one step and reads what answers it.
pub(super) fn say(client: &mut RawClient, step: &Step) -> Heard {
    let mut heard = Heard::default();
    if client.try_send(&step.bytes).is_err() {
        return heard;
    }
    let mut readies = 0;
    while readies < step.readies {
        let Some(message) = client.try_read().unwrap_or_else(|error| {
            panic!("{}: no answer: {error}; so far {:?}", step.label, heard.replies)
        }) else {
            heard.status = 0;
            return heard;
        };
        if message.tag == b'Z' {
            readies += 1;
            heard.status = message.body[0];
        }
        let place = match message.tag {
            b'A' => &mut heard.notifications,
            _ => &mut heard.replies,
        };
        place.push(comparable(&message));
    }
    heard
}

/// One who plays a script through Weir.
struct Victim {
    client: RawClient,
    script: Script,
    expected: Vec<Heard>,
    /// What PostgreSQL has told of parameters in the end.
    parameters: BTreeMap<String, String>,
    /// What PostgreSQL has told directly that has not come through Weir yet.
    notifications: Vec<Message>,
    /// Was it in a transaction behind its last step?
    is_inside: bool,
    /// It keeps a server.
    holds: bool,
    /// The backend that it had last, if that is known.
    last: Option<u32>,
}

impl Stage {
    /// Plays it and remembers what is not as it should be.
    pub(super) fn play(&mut self, name: &str, cast: Cast) {
        let mut victims: Vec<Victim> =
            cast.scripts.into_iter().map(|script| self.enter(script)).collect();
        let longest = victims.iter().map(|victim| victim.script.steps.len()).max().unwrap_or(0);
        let (mut switches, mut chances) = (0, 0);
        for at in 0..longest {
            for index in 0..victims.len() {
                let victim = &mut victims[index];
                let Some(step) = victim.script.steps.get(at) else { continue };
                let heard = say(&mut victim.client, step);
                if let Err(what) = victim.hear(at, heard) {
                    self.note(
                        name,
                        index,
                        &format!("step {at}, {}", victim.script.steps[at].label),
                        &what,
                    );
                    return self.clear(name, victims);
                }
                let (is_inside, others) = (victim.is_inside, self.holding(&victims, index));
                let inside = victims.iter().filter(|victim| victim.is_inside).count();
                let passes = victims.iter().all(Victim::may_share_listener);
                let holding = self.wait_for_rest(passes, inside);
                let next = (index + 1) % victims.len();
                let avoid = victims[next].last;
                let victim = &mut victims[index];
                victim.holds = holding > others;
                if is_inside {
                    continue;
                }
                if victim.holds && cast.keeps == Keeps::Never && !more_is_kept() {
                    let pins = self.pins();
                    self.note(
                        name,
                        index,
                        &victim.script.steps[at].label,
                        &format!("keeps its server: {pins}"),
                    );
                    return self.clear(name, victims);
                }
                let left = self.switch(avoid);
                if !victim.holds {
                    chances += usize::from(victim.last.is_some());
                    switches += usize::from(victim.last.is_some_and(|last| Some(last) != left));
                    victim.last = left;
                }
            }
        }
        self.count(switches, chances);
        if cast.keeps == Keeps::Never && chances > 3 && switches == 0 {
            self.stayed += 1;
        }
        for (index, victim) in victims.iter_mut().enumerate() {
            // What is reported late is heard before the next answer.
            let heard = say(&mut victim.client, &Step::query(""));
            if let Err(what) = victim.take_notifications(heard.notifications) {
                self.note(name, index, "the end", &what);
            }
        }
        if let Some((index, what)) = misinformed(&victims) {
            self.note(name, index, "the parameters", &what);
        }
        if let Some((index, what)) = self.missing(&mut victims) {
            self.note(name, index, "the end", &what);
        }
        let pinned = victims.iter().any(|victim| victim.holds && !victim.is_inside);
        if pinned && cast.keeps != Keeps::ForGood && !more_is_kept() {
            // Behind a number that was drawn a server is kept for a few transactions.
            for victim in &mut victims {
                (0..5).for_each(|_| drop(say(&mut victim.client, &Step::query(""))));
            }
            let pins = self.pins();
            if pins != "[]" {
                self.note(name, 0, "the end", &format!("a server is kept: {pins}"));
            }
        }
        self.clear(name, victims);
    }

    /// The script on a direct connection, and a client to play it through Weir.
    fn enter(&self, script: Script) -> Victim {
        let mut direct = self.direct(&script.startup);
        let expected: Vec<_> = script.steps.iter().map(|step| say(&mut direct, step)).collect();
        let client = self.client(&script.startup);
        let notifications = expected.iter().flat_map(|heard| heard.notifications.clone()).collect();
        let parameters = direct.parameters;
        let (is_inside, holds, last) = (false, false, None);
        Victim { client, script, expected, parameters, notifications, is_inside, holds, last }
    }

    /// How many of the others hold a server.
    fn holding(&self, victims: &[Victim], except: usize) -> usize {
        let others = victims.iter().enumerate().filter(|(index, _)| *index != except);
        others.filter(|(_, victim)| victim.holds).count()
    }

    /// Notifications that do not come.
    fn missing(&self, victims: &mut [Victim]) -> Option<(usize, String)> {
        victims.iter_mut().enumerate().find_map(|(index, victim)| {
            while let Some(expected) = victim.notifications.first() {
                match victim.client.try_read() {
                    Ok(Some(message)) if comparable(&message) == *expected => {
                        victim.notifications.remove(0);
                    }
                    other => return Some((index, format!("{other:?} and not {expected:?}"))),
                }
            }
            None
        })
    }

    /// All leave, and nothing may be left of them.
    fn clear(&mut self, name: &str, victims: Vec<Victim>) {
        drop(victims);
        if let Err(what) = self.wait_until_free() {
            self.note(name, 0, "all have left", &what);
        }
    }
}

/// In a direct pool, a role and channels keep the server, too (`docs/direct.md`).
fn more_is_kept() -> bool {
    testkit::pools_are_direct()
}

/// Who has been told other parameters than a direct connection.
fn misinformed(victims: &[Victim]) -> Option<(usize, String)> {
    victims.iter().enumerate().find_map(|(index, victim)| {
        let (told, direct) = (&victim.client.parameters, &victim.parameters);
        (told != direct).then(|| (index, format!("{told:?} and not {direct:?}")))
    })
}

impl Victim {
    /// The listener has the encoding of the database. A client with another one listens by itself.
    fn may_share_listener(&self) -> bool {
        self.client.parameters.get("client_encoding").is_none_or(|encoding| encoding == "UTF8")
    }

    fn hear(&mut self, at: usize, heard: Heard) -> Result<(), String> {
        let expected = &self.expected[at];
        self.is_inside = !matches!(heard.status, b'I' | 0);
        // Difference 3.
        let reports_late = !self.script.startup.is_empty();
        let counts = |message: &&Message| message.tag != b'S' || !reports_late;
        let through: Vec<_> = heard.replies.iter().filter(counts).collect();
        let direct: Vec<_> = expected.replies.iter().filter(counts).collect();
        if through != direct {
            let same = through.iter().zip(&direct).take_while(|(one, other)| one == other).count();
            return Err(format!(
                "message {same} is {:?} and not {:?}",
                through.get(same),
                direct.get(same)
            ));
        }
        self.take_notifications(heard.notifications)
    }

    fn take_notifications(&mut self, all: Vec<Message>) -> Result<(), String> {
        for message in all {
            if self.notifications.first() != Some(&message) {
                return Err(format!("{message:?} and not {:?}", self.notifications.first()));
            }
            self.notifications.remove(0);
        }
        Ok(())
    }
}
