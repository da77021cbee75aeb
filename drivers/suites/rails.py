"""Rails: ActiveRecord over ruby-pg. The scenarios are our own."""

from harness.script import ScriptSuite
from harness.suite import MODES


class Rails(ScriptSuite):
    name = "rails"
    package = "ruby-activerecord"
    command = ("ruby", "scenarios.rb")
    modes = MODES
    pool_size = {"session": 30}
