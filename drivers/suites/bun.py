"""bun: an ORM for Go, over pgx and over its own driver. The scenarios are our own."""

from harness.go import GoScenarioSuite


class Bun(GoScenarioSuite):
    name = "bun"
    version = "v1.2.18"
    # Each scenario has a schema of its own, named at login.
    keys = {"track_extra_parameters": "IntervalStyle, search_path"}
