'use strict';
// Helpers of the scenarios: connections that are closed afterwards, tables of their own, waiting.

const assert = require('node:assert/strict');
const path = require('node:path');
const { after, test } = require('node:test');
const { Client, Pool } = require('pg');

const SCENARIO_MS_MAX = 120_000;
const leftOut = new Set(process.argv.slice(2));
let numbers = 0;

/** Everything a scenario opens; `close` ends it all, whatever state it is in. */
class Stage {
  constructor() {
    this.opened = [];
    this.tables = [];
    // A name nobody else uses, in this run and on this server.
    this.name = `t${process.pid}_${numbers++}`;
  }

  /** A client that is not connected yet. Errors it meets on its own are gathered in `failures`. */
  client(options = {}) {
    const client = new Client(options);
    client.failures = [];
    client.on('error', (error) => client.failures.push(error));
    this.opened.push(client);
    return client;
  }

  async connect(options) {
    const client = this.client(options);
    await client.connect();
    return client;
  }

  many(count, options) {
    return Promise.all(Array.from({ length: count }, (_, number) =>
      this.connect(typeof options === 'function' ? options(number) : options)));
  }

  pool(options) {
    const pool = new Pool(options);
    pool.on('error', () => {});
    this.opened.push(pool);
    return pool;
  }

  /** A table (id int primary key, data text), seen by all and dropped at the end. */
  async table() {
    const table = `${this.name}_${this.tables.length}`;
    this.tables.push(table);
    await once((owner) => owner.query(`create table ${table} (id int primary key, data text)`));
    return table;
  }

  async close() {
    await Promise.all(this.opened.map(async (one) => {
      if (one.ended || one._ended) return;
      one.connection?.stream.destroy();
      await Promise.race([one.end().catch(() => {}), new Promise((done) => {
        setTimeout(done, 2000).unref();
      })]);
    }));
    for (const table of this.tables) {
      await once(async (owner) => {
        // Whatever the scenario left behind may not block this for ever.
        await owner.query(`select pg_terminate_backend(pid) from pg_locks
          where relation = to_regclass($1) and pid <> pg_backend_pid()`, [table]);
        await owner.query(`drop table if exists ${table}`);
      });
    }
  }
}

/** Does something on a connection of its own. */
async function once(work) {
  const client = new Client();
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

/** `scenarios(__filename)` gives the function that declares the scenarios of a file. */
function scenarios(file) {
  const topic = path.basename(file, '.test.js');
  return (title, play) => {
    const id = `${topic}: ${title}`;
    if (leftOut.has(id)) return;
    test(id, { timeout: SCENARIO_MS_MAX }, async () => {
      const stage = new Stage();
      try {
        await play(stage);
      } finally {
        await stage.close();
      }
    });
  };
}

/** Asks until the answer is yes, and gives it. */
async function until(question, ms = 20_000) {
  const deadline = Date.now() + ms;
  for (;;) {
    const answer = await question();
    if (answer) return answer;
    assert.ok(Date.now() < deadline, `${question} stayed ${answer}`);
    await new Promise((done) => setTimeout(done, 20));
  }
}

/** Does PostgreSQL work at this moment on a statement that contains `marker`? Its pid, if so. */
async function running(watcher, marker) {
  const { rows } = await watcher.query(`select pid from pg_stat_activity where state = 'active'
    and pid <> pg_backend_pid() and position($1 in query) > 0`, [marker]);
  return rows[0]?.pid;
}

/** The first row of a query, as an array. */
async function row(client, text, values) {
  return (await client.query({ text, values, rowMode: 'array' })).rows[0];
}

/** Resolves with the first `event`. */
function event(emitter, name) {
  return new Promise((done) => emitter.once(name, done));
}

// A connection a scenario lost track of may not keep the process alive.
after(() => setTimeout(() => process.exit(), 5000).unref());

module.exports = { assert, event, once, row, running, scenarios, until };
