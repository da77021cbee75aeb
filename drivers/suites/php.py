"""PHP: pdo_pgsql and pgsql over libpq. The scenarios are our own."""

from harness.script import ScriptSuite


class Php(ScriptSuite):
    name = "php"
    package = "php-pgsql"
    command = ("php", "scenarios.php")
