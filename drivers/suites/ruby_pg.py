"""ruby-pg: Ruby's driver over libpq, which it uses without blocking. The scenarios are our own."""

from harness.script import ScriptSuite


class RubyPg(ScriptSuite):
    name = "ruby-pg"
    package = "ruby-pg"
    command = ("ruby", "scenarios.rb")
