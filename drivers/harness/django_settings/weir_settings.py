"""Django's settings for a run of its tests: two databases behind one address, and a runner that
writes one JSON line for every result, at once, so that a run that dies half-way still tells what
became of the tests before."""

import json
import os
import unittest

from django.test.runner import DiscoverRunner


def _database(name):
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": "postgres",
        "HOST": os.environ["PGHOST"],
        "PORT": os.environ["PGPORT"],
        # Django's manual requires this with transaction pooling.
        "DISABLE_SERVER_SIDE_CURSORS": os.environ["WEIR_MODE"] == "transaction",
    }


DATABASES = {"default": _database("django"), "other": _database("django2")}
SECRET_KEY = "nobody logs in here"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
TEST_RUNNER = "weir_settings.Runner"


class Result(unittest.TextTestResult):
    """Test ids and what became of them; that of a subtest counts for its test."""

    def _record(self, test, result, message=""):
        with open(os.environ["WEIR_RECORD"], "a", encoding="utf8") as out:
            out.write(json.dumps([test.id(), result, message[-4000:]]) + "\n")

    def addSuccess(self, test):
        super().addSuccess(test)
        self._record(test, "passed")

    def addError(self, test, err):
        super().addError(test, err)
        self._record(test, "failed", self.errors[-1][1])

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._record(test, "failed", self.failures[-1][1])

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._record(test, "skipped", reason)

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self._record(test, "skipped")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self._record(test, "failed", "unexpected success")

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._record(test, "failed", self._exc_info_to_string(err, test))


class Runner(DiscoverRunner):
    def get_resultclass(self):
        return Result
