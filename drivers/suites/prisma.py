"""Prisma: an ORM for Node.js, whose client compiles queries by WebAssembly and sends them over
node-postgres. The scenarios are our own."""

import shutil

from harness import cache
from harness.node import NodeSuite


class PrismaClient(NodeSuite):
    name = "prisma"
    version = "7.10.0"
    file = "prisma.test.js"
    installed = ("schema.prisma",)
    pool_size = {"session": 40}

    def install(self, path):
        super().install(path)
        shutil.copy(self.work / "schema.prisma", path)
        # The engine for migrations is not on npm, and the generator of the client does not run it.
        cache.run(["node_modules/.bin/prisma", "generate", "--schema", "schema.prisma"], cwd=path,
                  env={"PRISMA_SCHEMA_ENGINE_BINARY": "/bin/true", "CHECKPOINT_DISABLE": "1"})

    def environment(self, target):
        return {**target.libpq("postgres", "postgres"),
                "PRISMA_CLIENT": str(self.packages / "generated")}
