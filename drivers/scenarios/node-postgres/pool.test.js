'use strict';
// pg-pool: a pool in front of the pool.

const { assert, row, running, scenarios, until } = require('./stage');
const scenario = scenarios(__filename);

scenario('queries by the pool itself', async (stage) => {
  const pool = stage.pool({ max: 5 });
  const asked = Array.from({ length: 60 }, (_, number) =>
    pool.query({ text: 'select $1::int', values: [number], rowMode: 'array' }));
  assert.deepEqual((await Promise.all(asked)).map(({ rows }) => rows[0][0]),
    asked.map((_, number) => number));
  assert.ok(pool.totalCount <= 5);
});

scenario('a client lent, used in a transaction, and taken back', async (stage) => {
  const pool = stage.pool({ max: 2 });
  const table = await stage.table();
  for (let number = 0; number < 10; number++) {
    const client = await pool.connect();
    await client.query('begin');
    await client.query(`insert into ${table} values ($1, '')`, [number]);
    await client.query(number % 2 ? 'commit' : 'rollback');
    client.release();
  }
  const { rows } = await pool.query(`select count(*)::int as n from ${table}`);
  assert.deepEqual(rows, [{ n: 5 }]);
});

scenario('nobody gets one when all are lent', async (stage) => {
  const pool = stage.pool({ max: 1, connectionTimeoutMillis: 200 });
  const client = await pool.connect();
  await assert.rejects(pool.connect(), /timeout/);
  client.release();
  assert.deepEqual((await pool.query('select 1 as n')).rows, [{ n: 1 }]);
});

scenario('who waits gets the one that is given back', async (stage) => {
  const pool = stage.pool({ max: 1 });
  const client = await pool.connect();
  const waiting = pool.query('select 2 as n');
  assert.equal(pool.waitingCount, 1);
  client.release();
  assert.deepEqual((await waiting).rows, [{ n: 2 }]);
});

scenario('a client released with an error is replaced', async (stage) => {
  const pool = stage.pool({ max: 1 });
  const client = await pool.connect();
  client.release(new Error('broken'));
  const other = await pool.connect();
  assert.notEqual(other, client);
  assert.deepEqual(await row(other, 'select 1'), [1]);
  other.release();
});

scenario('a client used so many times is replaced', async (stage) => {
  const pool = stage.pool({ max: 1, maxUses: 3 });
  const seen = new Set();
  for (let turn = 0; turn < 9; turn++) {
    const client = await pool.connect();
    seen.add(client);
    assert.deepEqual(await row(client, 'select $1::int', [turn]), [turn]);
    client.release();
  }
  assert.equal(seen.size, 3);
});

scenario('a lent client whose backend is terminated', async (stage) => {
  const pool = stage.pool({ max: 1 });
  const watcher = await stage.connect();
  const client = await pool.connect();
  client.on('error', () => {});
  const caught = assert.rejects(client.query(`select pg_sleep(60), '${stage.name}'`),
    { code: '57P01' });
  const pid = await until(() => running(watcher, stage.name));
  await watcher.query('select pg_terminate_backend($1)', [pid]);
  await caught;
  client.release(true);
  assert.deepEqual((await pool.query('select 1 as n')).rows, [{ n: 1 }]);
});

scenario('prepared statements by a pool', async (stage) => {
  const pool = stage.pool({ max: 6 });
  const asked = Array.from({ length: 100 }, (_, number) => pool.query({
    name: `by pool ${number % 5}`, text: `select ${number % 5}, $1::int`, values: [number],
    rowMode: 'array',
  }));
  assert.deepEqual((await Promise.all(asked)).map(({ rows }) => rows[0]),
    asked.map((_, number) => [number % 5, number]));
});
