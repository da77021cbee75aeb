"""Random walks of some clients through two backends. Each client has a twin, which is a session of its
own and is sent the same: it tells what the client has to be answered. A walk is known by its seed."""

import random

from direct.contexts import MEANINGS
from direct.lobby import SYNC, Lobby, ask, execute, message, ok, parse

BACKENDS = 3
CLIENTS = 4
STEPS = 250
SEEDS = 6
# A table or a path that changes makes the server analyze a text again, in the context of that time.
READ = [one for one in MEANINGS if one[0] != "search_path"]
MOMENT = "SELECT 'now'::timestamptz::text"


class Walker:
    def __init__(self, run, pooler, dice):
        self.sides = pooler.client(timezone="UTC"), run.session(timezone="UTC")
        self.dice = dice
        self.is_open = False
        self.moments = {}  # of statements with the time of their Parse

    def both(self, data):
        """What both are answered."""
        mine, theirs = (ask(side, data) for side in self.sides)
        assert mine.errors == theirs.errors and mine.rows == theirs.rows, (mine.__dict__, theirs.__dict__)
        return mine

    def query(self, text):
        return self.both(message(b"Q", text.encode() + b"\0"))

    def step(self, may_open):
        kinds = [self.sets, self.prepares, self.prepares, self.closes, *[self.runs] * 4, self.keeps_moment]
        if self.is_open:
            kinds += [self.ends, self.goes_back]
        elif may_open:
            kinds += [self.begins] * 2
        self.dice.choice(kinds)()

    def begins(self):
        ok(self.query("BEGIN; SAVEPOINT a"))
        self.is_open = True

    def ends(self):
        self.query(self.dice.choice(("COMMIT", "ROLLBACK")))
        self.is_open = False

    def goes_back(self):
        self.query("ROLLBACK TO a")

    def sets(self):
        name, value, *_ = self.dice.choice(READ)
        self.query(self.dice.choice((
            f"SET {name} = '{value}'", f"SET LOCAL {name} = '{value}'", f"RESET {name}", "RESET ALL",
            f"SELECT set_config('{name}', '{value}', true)",
            f"DO $$BEGIN PERFORM set_config('{name}', '{value}', false); END$$",
        )))

    def prepares(self):
        number = self.dice.randrange(len(READ))
        data = parse(f"s{number}", READ[number][2])
        if self.dice.randrange(3):
            data = message(b"C", b"Ss%d\0" % number) + data
        self.both(data + SYNC)

    def closes(self):
        self.both(message(b"C", b"Ss%d\0" % self.dice.randrange(len(READ))) + SYNC)

    def runs(self):
        self.both(execute(f"s{self.dice.randrange(len(READ))}") + SYNC)
        self.checks_moment()

    def keeps_moment(self):
        """The value is that of the transaction, under the settings of the moment."""
        if self.is_open or self.moments:
            return self.checks_moment()
        client = self.sides[0]
        ok(self.query("BEGIN; RESET ALL"))
        ok(ask(client, parse("m", MOMENT) + SYNC))
        self.moments["m"] = ok(client.query("SELECT now()::text")).value()
        ok(self.query("COMMIT"))
        return None

    def checks_moment(self):
        client = self.sides[0]
        if not self.moments or self.is_open or self.dice.randrange(3):
            return
        ok(self.query("RESET ALL"))
        assert ok(ask(client, execute("m") + SYNC)).value() == self.moments["m"]
        if self.dice.randrange(4) == 0:
            ok(ask(client, message(b"C", b"Sm\0") + SYNC))
            self.moments.clear()


def direct_each_client_of_a_random_walk_finds_its_own_meanings(run):
    for seed in range(SEEDS):
        dice = random.Random(seed)
        with Lobby(run, BACKENDS) as pooler:
            walkers = [Walker(run, pooler, dice) for _ in range(CLIENTS)]
            for number in range(STEPS):
                opened = sum(walker.is_open for walker in walkers)
                one = dice.choice(walkers)
                try:
                    one.step(may_open=opened < BACKENDS - 1)
                except AssertionError as why:
                    raise AssertionError(f"seed {seed}, step {number}: {why}") from why
            for walker in walkers:
                walker.query("ROLLBACK")
