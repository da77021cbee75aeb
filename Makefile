# The two commands that do everything on a fresh Debian machine are `make demo` and `make test`.

.DEFAULT_GOAL := help
.PHONY: help demo check test verify test-full nightly binary sim fuzz fuzz-sessions soak bench thesis count setup setup-demo setup-check setup-verify setup-thesis setup-drivers drivers release regress route-diff install deb dist image extension install-extension test-extension setup-dist setup-extension

# Extra arguments, e.g. make demo ARGS='--bench 5'
ARGS ?=
# With no terminal to watch the live line on, the demo is the lab: it prints its table and ends.
LAB := --bench 5

help:
	@echo "make demo    a throw-away PostgreSQL with Weir in front of it; Ctrl-C removes both"
	@echo "             (ARGS=--library: with the library weir in the server)"
	@echo "             (ARGS=--builtin: a PostgreSQL that runs Weir itself;"
	@echo "             ARGS='--builtin --bench 5': its figures, proxied and direct, 5 s a row)"
	@echo "             (ARGS='--bench 5': pgbench direct and through each pool mode, 5 s a row)"
	@echo "make check   without PostgreSQL: formatting, lints, unit tests, 512 seeds of the simulator"
	@echo "make test    with PostgreSQL: the same tests, 2,048 seeds, a test of each feature"
	@echo "make verify  make test, and all other checks and tests: an hour"
	@echo "make test-full  one part of the longer suites, another one each day (SHARD=2/32: that one)"
	@echo "make nightly all of the longer suites: some hours"
	@echo "make sim     the engine with simulated clients, servers and faults (SEEDS=0..100000)"
	@echo "make fuzz    the fuzz targets, a minute each (ARGS='ledger 600': one, ten minutes)"
	@echo "make fuzz-sessions  random sessions on PostgreSQL and in auto mode (SEEDS=0..1000; SEED=7;"
	@echo "             DATA_PATH=proxied, library, direct or standbys: one data path only)"
	@echo "make soak    clients of direct pools for hours, with orders, restarts and samples of memory"
	@echo "             (ARGS='--hours 24'; default: 1)"
	@echo "make bench   CPU and memory of Weir beside PgBouncer's (ARGS are passed on)"
	@echo "make thesis  what a thesis of 2004 asks of a pool, requirement by requirement"
	@echo "             (ARGS=--quick: ten minutes; ARGS='lru crash': the requirements with these words)"
	@echo "make count   Weir's instructions per unit of work, against the record (valgrind)"
	@echo "make drivers the drivers' own test suites, direct and through Weir (ARGS='--quick')"
	@echo "make regress PostgreSQL's own suites through Weir, beside the direct run (ARGS=--quick;"
	@echo "             ARGS='--mode auto': with a hostile client between any two transactions)"
	@echo "make route-diff  which reads may run on a standby, beside PostgreSQL's parser (ARGS=--quick)"
	@echo "make install the program, its man page, systemd's units and a first configuration"
	@echo "             (PREFIX=/usr/local SYSCONFDIR=/etc DESTDIR=)"
	@echo "make extension  the library weir for PostgreSQL, which tells Weir what a session holds"
	@echo "             (PG_CONFIG=pg_config: of which server; extension/README.md)"
	@echo "make install-extension  the same, and installs it in that server"
	@echo "make test-extension  the library on PostgreSQL 15, 16, 17 and 18 (ARGS='--asan 16')"
	@echo "make dist    what is published, in target/dist: programs, packages, checksums, bill of materials"
	@echo "make image   a container image in target/dist, of a static program"
	@echo "make deb     Debian packages in target/: weir-core (the program), weir (its service), and the"
	@echo "             library for PostgreSQL 15"
	@echo "make help    this list"
	@echo
	@echo "Missing Debian packages are installed when root or by sudo, else named."

demo: setup-demo release $(if $(findstring --library,$(ARGS)),extension) \
	$(if $(filter --builtin,$(ARGS)),setup-extension)
	@if [ -n "$(filter --builtin,$(ARGS))" ]; then \
		WEIR=$(BUILT)/release/weir scripts/demo-builtin $(filter-out --builtin,$(ARGS)); \
	elif [ -n "$(strip $(ARGS))" ] || [ -t 1 ]; then \
		cargo run -q --locked --release -p weir-cli -- demo $(ARGS); \
	else \
		cargo run -q --locked --release -p weir-cli -- demo $(LAB); \
	fi

check: setup-check
	@scripts/check quick

test: setup
	@scripts/check core

verify: setup-verify test
	@scripts/check rest

# scripts/full --list prints the contents of each part.
test-full: setup-drivers binary release
	@scripts/full

nightly: verify setup-drivers binary release
	@scripts/full --all

# The end-to-end tests start this one; cargo does not know that they need it.
binary:
	@cargo build --locked -p weir-cli

# make verify runs the first 20480 of them. A seed that fails prints itself; SIM_SEED=N replays it with a trace.
SEEDS ?= 0..100000
sim:
	SIM_SEEDS=$(SEEDS) cargo test --locked --profile sim -p weir-engine --test sim \
		each_client_gets_its_own_replies_and_none_waits_forever -- --exact --nocapture

# make verify runs some of them. A seed that fails is cut down and printed; SEED=N plays it again.
fuzz-sessions: SEEDS = 0..1000
fuzz-sessions: setup-verify binary
	$(if $(SEED),SEED=$(SEED)) $(if $(DATA_PATH),DATA_PATH=$(DATA_PATH)) SEEDS=$(SEEDS) \
		cargo test --locked -p weir-e2e --test sessions -- --nocapture

# make verify runs it for 20 seconds.
soak: setup-verify release
	@scripts/soak $(ARGS)

# Needs the nightly toolchain; where that is missing it fails.
fuzz:
	@fuzz/run $(ARGS)

bench: setup-verify release
	@bench/run $(ARGS)

# A line for each requirement and path; tables and plots in target/thesis.
thesis: setup-thesis setup-extension release
	@thesis/run $(ARGS)

# Instructions per unit of work against the record: bench/instructions.json.
count: setup-verify
	@bench/count $(ARGS)

drivers: setup-drivers release
	@drivers/run $(ARGS)

regress: setup-verify
	@regress/run $(ARGS)

route-diff: setup-verify
	@regress/route-diff $(ARGS)

BUILT = $(abspath $(or $(CARGO_TARGET_DIR),target))
export PREFIX SYSCONFDIR DESTDIR

install: release
	@BINARY=$(BUILT)/release/weir packaging/install

deb: release setup-extension
	@BINARY=$(BUILT)/release/weir OUT=$(BUILT) packaging/deb
	@OUT=$(BUILT) packaging/deb-library

dist: setup-dist
	@packaging/dist $(ARGS)

image: setup-dist
	@packaging/dist --image

PG_CONFIG ?= pg_config

extension: setup-extension
	@$(MAKE) -s -C extension PG_CONFIG=$(PG_CONFIG)

install-extension: extension
	@$(MAKE) -s -C extension PG_CONFIG=$(PG_CONFIG) install
	@PG_CONFIG=$(PG_CONFIG) packaging/has-program

test-extension: setup-extension
	@extension/test/run $(ARGS)

release:
	@echo "building weir (release); the first build takes a few minutes"
	@cargo build --locked --release -p weir-cli

setup:
	@scripts/setup test

setup-verify:
	@scripts/setup verify

setup-check:
	@scripts/setup check

setup-demo:
	@scripts/setup demo

setup-dist:
	@scripts/setup dist

setup-extension:
	@scripts/setup extension

setup-thesis:
	@scripts/setup thesis

setup-drivers:
	@scripts/setup drivers
