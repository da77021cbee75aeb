"""Hostile clients of a direct pool: together they use all servers that are idle.

A backend of a direct pool stays with its client while another one is idle. A hostile client that
comes by itself would never meet a server that a client of the suite has left.
"""

import select

# The time in which an idle server takes a client.
PATIENCE_S = 0.3


class Crowd:
    """The hostile clients of one pool. `log_in` makes one; `count_idle` asks how many servers are
    idle."""

    def __init__(self, log_in, count_idle):
        self.log_in = log_in
        self.count_idle = count_idle
        self.members = []
        # The process of the server that was given back first, so that the suite got it next.
        self.first = 0

    def visit(self):
        """All are in a transaction at the same time."""
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
                self.give_back(inside)
                inside = {}
            for one in map(waiting.pop, ready):
                rows = one.rows_until_ready()
                if not rows:
                    raise ConnectionError
                inside[int(rows[0][0])] = one
        self.give_back(inside)

    def give_back(self, inside):
        """Begins with another server each time: that one takes the next client."""
        processes = sorted(inside)
        later = [process for process in processes if process > self.first]
        turn = processes.index(later[0]) if later else 0
        order = processes[turn:] + processes[:turn]
        for process in order:
            inside[process].query("COMMIT")
        if order:
            self.first = order[0]

    def close(self):
        for one in self.members:
            one.close()
