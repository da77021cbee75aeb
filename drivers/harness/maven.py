"""Suites of Java packages: the tests of a source release, run by Maven, and scenarios of our own."""

import hashlib
import xml.etree.ElementTree as xml

from . import cache
from .outcome import FAILED, PASSED, SKIPPED, Outcome
from .suite import SCENARIOS, Suite

MAVEN = ("mvn", "-B", "-q")
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
# The same for all that a pom.xml depends on.
COPY_ALL = f"{COPY}-dependencies"


class MavenSuite(Suite):
    """Tests that Surefire runs and tells of in one XML file a class."""

    # group:artifact, and the classifier of the tar file that has the sources with their tests.
    artifact = ""
    classifier = ""
    # Further arguments of Maven.
    arguments = ()
    # The classes to run, in the form of Surefire's option `test`. `left_out` and `fatal` add
    # CLASS#METHOD to be left out.
    classes = ()
    # Changes to the tests: (file, old, new).
    patches = ()

    def configure(self, target):
        """Tells the tests in `self.work` where to connect to."""
        raise NotImplementedError

    def fetch(self):
        name = self.artifact.partition(":")[2]
        mark = hashlib.sha256(repr(self.patches).encode()).hexdigest()[:8]
        self.work = cache.folder(f"{name}-{self.version}-{self.classifier}-{mark}", self.build)

    def build(self, path):
        download = path / ".download"
        cache.run([*MAVEN, COPY, f"-DoutputDirectory={download}",
                   f"-Dartifact={self.artifact}:{self.version}:tar.gz:{self.classifier}"], cwd="/")
        archive, = download.iterdir()
        cache.unpack(archive, path)
        for name, old, new in self.patches:
            text = (path / name).read_text()
            assert old in text, f"{name} of {self.name} is not what the patch is for"
            (path / name).write_text(text.replace(old, new))
        cache.run([*MAVEN, *self.arguments, "test-compile"], cwd=path)

    def run(self, target, log):
        self.configure(target)
        reports = self.work / "target/surefire-reports"
        for old in reports.glob("*.xml"):
            old.unlink()
        chosen = ",".join([*self.classes, *(f"!{test}" for test in self.skipped(target))])
        outcome = self.spawn(
            [*MAVEN, *self.arguments, "surefire:test", "-Dmaven.test.failure.ignore=true",
             f"-Dtest={chosen}"],
            self.work, {}, log, Outcome(), lambda *_: None,
        )
        for path in sorted(reports.glob("TEST-*.xml")):
            read_report(path, outcome)
        return outcome


class JavaScenarioSuite(Suite):
    """Scenarios of our own: one file that Java runs as it is, with the packages in `self.jars`. It
    prints `passed NAME`, or `failed NAME: why`."""

    file = "Scenarios.java"

    def fetch(self):
        # One of the suites has a file that names what it depends on.
        sources = (SCENARIOS / self.name).glob("pom.xml")
        mark = "".join("-" + hashlib.sha256(each.read_bytes()).hexdigest()[:8] for each in sources)
        self.jars = cache.folder(f"{self.name}-{self.version}-jars{mark}", self.download)

    def download(self, path):
        """Gets the packages into the folder `path`."""
        raise NotImplementedError

    def environment(self, target):
        raise NotImplementedError

    def run(self, target, log):
        argv = ["java", "-cp", f"{self.jars}/*", SCENARIOS / self.name / self.file]
        return self.spawn(argv, "/", self.environment(target), log, Outcome(), read_line)


def read_line(outcome, line):
    result, _, rest = line.partition(" ")
    name, _, why = rest.partition(": ")
    if result in (PASSED, FAILED):
        outcome.add(name, result, why)


def read_report(path, outcome):
    for case in xml.parse(path).getroot().iter("testcase"):
        test = f"{case.get('classname')}.{case.get('name')}"
        result, message = PASSED, ""
        for child in case:
            if child.tag in ("failure", "error"):
                result, message = FAILED, child.text or child.get("message") or ""
            elif child.tag == "skipped":
                result = SKIPPED
        outcome.add(test, result, message[-4000:])
