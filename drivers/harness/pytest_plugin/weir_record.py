"""A pytest plugin: one JSON line for every report, at once, so that a run that dies half-way still
tells what became of the tests before."""

import json
import os


def pytest_runtest_logreport(report):
    # A test is what its call was, unless setting up or tearing down was worse.
    if report.when != "call" and report.outcome == "passed":
        return
    result = report.outcome
    if hasattr(report, "wasxfail"):
        result = "skipped"
    message = "" if result == "passed" else report.longreprtext[-4000:]
    with open(os.environ["WEIR_RECORD"], "a", encoding="utf8") as out:
        out.write(json.dumps([report.nodeid, result, message]) + "\n")


def pytest_collectreport(report):
    if report.failed:
        with open(os.environ["WEIR_RECORD"], "a", encoding="utf8") as out:
            out.write(json.dumps([f"{report.nodeid}:collect", "failed", str(report.longrepr)[-4000:]]) + "\n")
