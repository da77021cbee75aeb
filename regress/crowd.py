"""Hostile clients of a direct pool: together they use all servers that are idle.

A backend of a direct pool stays with its client while another one is idle. A hostile client that
comes by itself would never meet a server that a client of the suite has left. And among idle servers
the first ones of a lobby take the next clients, so most clients of the suite would return to the
same server. So a hostile client keeps the server that was just left, now and then.
"""

import collections
import select

# The time in which an idle server takes a client.
PATIENCE_S = 0.3


class Crowd:
    """The hostile clients of one pool. `log_in` makes one; `count_idle` asks how many servers are
    idle; so many servers are kept, at most."""

    def __init__(self, log_in, count_idle, keeps):
        self.log_in = log_in
        self.count_idle = count_idle
        self.keeps = keeps
        # The clients that visit servers, and those that keep one, the longest first.
        self.members = []
        self.keepers = collections.deque()
        # The process of the server that was given back first, so that the suite got it next.
        self.first = 0

    def visit(self, left):
        """All are in a transaction at the same time. Afterwards one keeps the server of the process
        `left`, if there is such a number."""
        wanted = self.count_idle()
        while len(self.members) < wanted:
            self.members.append(self.log_in())
        waiting = {one.socket: one for one in self.members[:wanted]}
        inside = {}
        for one in waiting.values():
            one.ask("BEGIN; SELECT pg_backend_pid()")
        while waiting:
            ready = select.select(list(waiting), [], [], PATIENCE_S)[0]
            if not ready:
                # A client of the suite has taken a server meanwhile.
                self.give_back(inside, left)
                inside = {}
            for one in map(waiting.pop, ready):
                rows = one.rows_until_ready()
                if not rows:
                    raise ConnectionError
                inside[int(rows[0][0])] = one
        self.give_back(inside, left)

    def give_back(self, inside, left):
        """Begins with another server each time: that one takes the next client."""
        if keeper := inside.pop(left, None):
            self.keep(keeper)
        processes = sorted(inside)
        later = [process for process in processes if process > self.first]
        turn = processes.index(later[0]) if later else 0
        order = processes[turn:] + processes[:turn]
        for process in order:
            inside[process].query("COMMIT")
        if order:
            self.first = order[0]

    def keep(self, keeper):
        """A new transaction, as one that has read something has a snapshot, for which the suite's
        statements may wait."""
        keeper.query("COMMIT; BEGIN")
        self.members.remove(keeper)
        self.keepers.append(keeper)
        if len(self.keepers) > self.keeps:
            first = self.keepers.popleft()
            first.query("COMMIT")
            self.members.append(first)

    def close(self):
        for one in (*self.members, *self.keepers):
            one.close()
