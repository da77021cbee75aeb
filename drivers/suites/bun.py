"""bun: an ORM for Go, over pgx and over its own driver. The scenarios are our own."""

from harness.go import GoScenarioSuite


class Bun(GoScenarioSuite):
    name = "bun"
    version = "v1.2.18"
