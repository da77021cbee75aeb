"""The library under AddressSanitizer or valgrind."""

import collections
import os
import re
import subprocess
from dataclasses import dataclass, field

from servers import EXTENSION


@dataclass
class Tool:
    words: str = ""
    flags: list = field(default_factory=list)
    wrapper: list = field(default_factory=list)

    def findings(self, cluster):
        """What the tool has written into the log of the cluster that is an error of ours."""
        return []

    def judge(self, run, cluster):
        run.failures += self.findings(cluster)


class Asan(Tool):
    """Only the library is instrumented: what it writes to, and what it reads through libc."""

    def findings(self, cluster):
        log = cluster.log.read_text(errors="replace")
        return re.findall(r"ERROR: AddressSanitizer.*|runtime error:.*", log)


# The server's own part of a statement, which the library's hooks call.
OF_SERVER = re.compile(r"\bstandard_(ProcessUtility|Executor\w+)\b")


class Valgrind(Tool):
    """Errors, and memory of malloc() that is lost. What is found counts if the library's own code is in
    the stack, and did not only pass the statement on. PostgreSQL writes bytes that it has not set; that
    is none of ours."""

    def findings(self, cluster):
        files = "|".join(path.stem for path in EXTENSION.glob("*.c"))
        ours = re.compile(rf"weir\.so\b|\(({files})\.c:")
        texts = collections.defaultdict(str)
        for pid, text in re.findall(r"^==(\d+)==(.*)$", cluster.log.read_text(errors="replace"),
                                    re.MULTILINE):
            texts[pid] += f"{text.rstrip()}\n"
        blocks = [block for text in texts.values() for block in text.split("\n\n")]
        return [block.strip("\n") for block in blocks if ours.search(OF_SERVER.split(block)[0])]


def tool(options, work):
    if options.asan:
        runtime = subprocess.run(
            ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
        ).stdout.strip()
        flags = "-fsanitize=address,undefined -fno-omit-frame-pointer -g -O1"
        return Asan(
            words=" with AddressSanitizer",
            flags=[f"PG_CFLAGS={flags}", f"PG_LDFLAGS={flags}", f"SHLIB_LINK={flags}"],
            # The sanitizer of gcc 12 hangs where the kernel places memory at random.
            wrapper=[
                "setarch", "-R", "env", f"LD_PRELOAD={os.path.realpath(runtime)}",
                "ASAN_OPTIONS=detect_leaks=0", "UBSAN_OPTIONS=print_stacktrace=1",
            ],
        )
    if options.valgrind:
        return Valgrind(
            words=" under valgrind",
            flags=["PG_CFLAGS=-g -O1"],
            # The pooler is no process of the server, and none of its code.
            wrapper=["valgrind", "--quiet", "--trace-children=yes", "--trace-children-skip=*/weir",
                     "--leak-check=full", "--show-leak-kinds=definite", "--undef-value-errors=yes",
                     "--error-exitcode=0"],
        )
    return Tool()
