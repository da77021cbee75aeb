"""gorm: Go's most used ORM, over pgx. The scenarios are our own."""

from harness.go import GoScenarioSuite


class Gorm(GoScenarioSuite):
    name = "gorm"
    version = "v1.31.2"
