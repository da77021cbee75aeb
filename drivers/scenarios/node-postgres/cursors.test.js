'use strict';
// pg-cursor, pg-query-stream and cursors in SQL: rows that come in portions.

const Cursor = require('pg-cursor');
const QueryStream = require('pg-query-stream');
const { assert, row, scenarios } = require('./stage');
const scenario = scenarios(__filename);

const upTo = (count) => Array.from({ length: count }, (_, n) => n + 1);

scenario('portions of a portal', async (stage) => {
  const client = await stage.connect();
  const cursor = client.query(new Cursor('select n from generate_series(1, 25) n'));
  const seen = [];
  for (let rows; (rows = await cursor.read(10)).length;) seen.push(rows.map(({ n }) => n));
  assert.deepEqual(seen.map((rows) => rows.length), [10, 10, 5]);
  assert.deepEqual(seen.flat(), upTo(25));
  assert.deepEqual(await row(client, 'select 1'), [1]);
});

scenario('a portal with parameters', async (stage) => {
  const client = await stage.connect();
  const cursor = client.query(new Cursor('select $1::text || n as t from generate_series(1, $2) n',
    ['row ', 3]));
  assert.deepEqual(await cursor.read(100), [{ t: 'row 1' }, { t: 'row 2' }, { t: 'row 3' }]);
  await cursor.close();
});

scenario('a portal closed before its end', async (stage) => {
  const client = await stage.connect();
  for (let turn = 0; turn < 6; turn++) {
    const cursor = client.query(new Cursor('select n from generate_series(1, 100000) n'));
    assert.deepEqual((await cursor.read(3)).map(({ n }) => n), [1, 2, 3]);
    await cursor.close();
    assert.deepEqual(await row(client, 'select $1::int', [turn]), [turn]);
  }
});

scenario('an error in a later portion', async (stage) => {
  const client = await stage.connect();
  const cursor = client.query(new Cursor('select 1 / (5 - n) as q from generate_series(1, 9) n'));
  assert.equal((await cursor.read(3)).length, 3);
  await assert.rejects(cursor.read(5), { code: '22012' });
  assert.deepEqual(await row(client, 'select 1'), [1]);
});

scenario('an error at the first portion', async (stage) => {
  const client = await stage.connect();
  const cursor = client.query(new Cursor('select * from nowhere'));
  await assert.rejects(cursor.read(5), { code: '42P01' });
  assert.deepEqual(await row(client, 'select 1'), [1]);
});

scenario('portals within a transaction', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  await client.query('begin');
  await client.query(`insert into ${table} select n, '' from generate_series(1, 30) n`);
  const cursor = client.query(new Cursor(`select id from ${table} order by id`));
  assert.equal((await cursor.read(20)).length, 20);
  assert.equal((await cursor.read(20)).length, 10);
  await cursor.close();
  await client.query('rollback');
  assert.deepEqual(await row(client, `select count(*)::int from ${table}`), [0]);
});

scenario('many clients hold portals at the same time, each in its turn', async (stage) => {
  // As many as have a server in transaction mode: an open portal holds one.
  const clients = await stage.many(3);
  const cursors = clients.map((client, number) =>
    client.query(new Cursor(`select ${number} as c, n from generate_series(1, 30) n`)));
  for (let part = 0; part < 3; part++) {
    for (const [number, cursor] of cursors.entries()) {
      const rows = await cursor.read(10);
      assert.deepEqual(rows.map(({ n }) => n), upTo(10).map((n) => n + part * 10));
      assert.ok(rows.every(({ c }) => c === number));
    }
  }
  await Promise.all(cursors.map((cursor) => cursor.close()));
});

scenario('a stream of rows', async (stage) => {
  const client = await stage.connect();
  const seen = [];
  for await (const { n } of client.query(
    new QueryStream('select n from generate_series(1, 1000) n', [], { batchSize: 37 }))) seen.push(n);
  assert.deepEqual(seen, upTo(1000));
});

scenario('a stream given up half-way', async (stage) => {
  const client = await stage.connect();
  for await (const { n } of client.query(
    new QueryStream('select n from generate_series(1, 100000) n', []))) if (n === 50) break;
  assert.deepEqual(await row(client, 'select 1'), [1]);
});

scenario('a stream that fails', async (stage) => {
  const client = await stage.connect();
  await assert.rejects((async () => {
    for await (const one of client.query(new QueryStream(
      'select 1 / (300 - n) as q from generate_series(1, 500) n', []))) assert.ok(one.q >= 0);
  })(), { code: '22012' });
  assert.deepEqual(await row(client, 'select 1'), [1]);
});

scenario('a stream of large rows to a slow reader', async (stage) => {
  const client = await stage.connect();
  let number = 0;
  for await (const { t } of client.query(new QueryStream(
    "select repeat('s', 20000) as t from generate_series(1, 500) n", [], { batchSize: 20 }))) {
    assert.equal(t.length, 20_000);
    if (++number % 50 === 0) await new Promise((done) => setImmediate(done));
  }
  assert.equal(number, 500);
});

scenario('a cursor in SQL, forwards and backwards', async (stage) => {
  const client = await stage.connect();
  await client.query('begin');
  await client.query('declare c scroll cursor for select generate_series(1, 10)');
  assert.deepEqual(await row(client, 'fetch absolute 7 from c'), [7]);
  assert.deepEqual(await row(client, 'fetch backward 3 from c'), [6]);
  assert.deepEqual(await row(client, 'fetch last from c'), [10]);
  await client.query('commit');
  await assert.rejects(client.query('fetch c'), { code: '34000' });
});

scenario('a held cursor outlives its transaction', async (stage) => {
  const client = await stage.connect();
  await client.query('declare keep cursor with hold for select generate_series(1, 6)');
  for (const number of upTo(6)) assert.deepEqual(await row(client, 'fetch keep'), [number]);
  await client.query('close keep');
});
