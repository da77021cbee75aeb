"""DBD::Pg: Perl's driver over libpq. The scenarios are our own."""

from harness.script import ScriptSuite


class DbdPg(ScriptSuite):
    name = "dbd-pg"
    package = "libdbd-pg-perl"
    command = ("perl", "scenarios.pl")
