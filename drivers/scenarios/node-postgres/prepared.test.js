'use strict';
// Statements with and without names, and what becomes of them.

const { assert, row, scenarios } = require('./stage');
const scenario = scenarios(__filename);

const named = async (client, name, text, values) =>
  (await client.query({ name, text, values, rowMode: 'array' })).rows[0];

scenario('a named statement is parsed once and used often', async (stage) => {
  const client = await stage.connect();
  for (let number = 0; number < 30; number++) {
    assert.deepEqual(await named(client, 'often', 'select $1::int * 3', [number]), [number * 3]);
  }
});

scenario('many names on one connection', async (stage) => {
  const client = await stage.connect();
  for (const turn of [0, 1]) {
    for (let number = 0; number < 60; number++) {
      assert.deepEqual(await named(client, `s${number}`, `select ${number}, $1::int`, [turn]),
        [number, turn]);
    }
  }
});

scenario('more statements than a server keeps', async (stage) => {
  const client = await stage.connect();
  for (const turn of [0, 1]) {
    for (let number = 0; number < 320; number++) {
      assert.deepEqual(await named(client, `k${number}`, `select ${number}, $1::int`, [turn]),
        [number, turn]);
    }
  }
});

scenario('one name for different texts on different connections', async (stage) => {
  const clients = await stage.many(8);
  for (let turn = 0; turn < 10; turn++) {
    for (const [number, client] of clients.entries()) {
      assert.deepEqual(await named(client, 'mine', `select ${number * 1000} + $1::int`, [turn]),
        [number * 1000 + turn]);
    }
  }
});

scenario('one text under different names', async (stage) => {
  const client = await stage.connect();
  for (let number = 0; number < 10; number++) {
    assert.deepEqual(await named(client, `name ${number % 3}`, 'select $1::text', [`${number}`]),
      [`${number}`]);
  }
});

scenario('the driver refuses a second text under one name', async (stage) => {
  const client = await stage.connect();
  await named(client, 'fixed', 'select 1', []);
  await assert.rejects(client.query({ name: 'fixed', text: 'select 2' }), /must be unique/);
  assert.deepEqual(await named(client, 'fixed', 'select 1', []), [1]);
});

scenario('a name of strange letters', async (stage) => {
  const client = await stage.connect();
  for (const name of ['Grün "weir_1" \';', 'weir_1', 'n'.repeat(63), ' ']) {
    for (let turn = 0; turn < 5; turn++) {
      assert.deepEqual(await named(client, name, `select ${name.length}, $1::int`, [turn]),
        [name.length, turn]);
    }
  }
});

scenario('a Parse that fails leaves the name free', async (stage) => {
  const client = await stage.connect();
  await assert.rejects(client.query({ name: 'later', text: 'selekt' }), { code: '42601' });
  assert.deepEqual(await named(client, 'later', "select 'good'", []), ['good']);
});

scenario('a Bind that fails leaves the statement', async (stage) => {
  const client = await stage.connect();
  const ask = (value) => named(client, 'num', 'select $1::int', [value]);
  assert.deepEqual(await ask('1'), [1]);
  await assert.rejects(ask('no number'), { code: '22P02' });
  assert.deepEqual(await ask('2'), [2]);
});

scenario('a first use that fails at Bind', async (stage) => {
  const client = await stage.connect();
  const ask = (value) => named(client, 'first', 'select $1::int', [value]);
  await assert.rejects(ask('no number'), { code: '22P02' });
  assert.deepEqual(await ask('5'), [5]);
});

scenario('an execution that fails leaves the statement', async (stage) => {
  const client = await stage.connect();
  const ask = (value) => named(client, 'div', 'select 10 / $1::int', [value]);
  await assert.rejects(ask(0), { code: '22012' });
  assert.deepEqual(await ask(5), [2]);
});

scenario('too few parameters', async (stage) => {
  const client = await stage.connect();
  await assert.rejects(client.query({ name: 'two', text: 'select $1::int, $2::int', values: [1] }),
    { code: '08P01' });
  assert.deepEqual(await row(client, 'select 1'), [1]);
});

scenario('DEALLOCATE ALL, which the driver does not notice', async (stage) => {
  const client = await stage.connect();
  await named(client, 'gone', 'select 1', []);
  await client.query('deallocate all');
  await assert.rejects(named(client, 'gone', 'select 1', []), { code: '26000' });
  assert.deepEqual(await row(client, 'select 2'), [2]);
});

scenario('DISCARD ALL of one client does not touch the statements of others', async (stage) => {
  const [one, ...others] = await stage.many(6);
  for (let turn = 0; turn < 5; turn++) {
    for (const [number, other] of others.entries()) {
      assert.deepEqual(await named(other, 'kept', `select ${number}, $1::int`, [turn]),
        [number, turn]);
    }
    await one.query('discard all');
  }
});

scenario('statements without a name', async (stage) => {
  const client = await stage.connect();
  for (let number = 0; number < 50; number++) {
    assert.deepEqual(await row(client, `select ${number}, $1::text`, ['v']), [number, 'v']);
  }
});

scenario('a statement sees what has changed in the table', async (stage) => {
  const [reader, writer] = await stage.many(2);
  const table = await stage.table();
  for (let number = 0; number < 12; number++) {
    await writer.query(`insert into ${table} values ($1, 'x')`, [number]);
    assert.deepEqual(await named(reader, 'count', `select count(*)::int from ${table}`, []),
      [number + 1]);
  }
});

scenario('a result type that changes within a transaction', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  await client.query('begin');
  await client.query(`insert into ${table} values (1, 'one')`);
  const ask = () => named(client, 'star', `select * from ${table}`, []);
  assert.deepEqual(await ask(), [1, 'one']);
  await client.query('savepoint before');
  await client.query(`alter table ${table} add column more int default 5`);
  await assert.rejects(ask(), { code: '0A000' });
  await client.query('rollback to savepoint before');
  assert.deepEqual(await ask(), [1, 'one']);
  await client.query('rollback');
});

scenario('a new name after a change of the table', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  await client.query(`insert into ${table} values (1, 'one')`);
  for (let turn = 0; turn < 6; turn++) {
    assert.deepEqual(await named(client, 'old', `select * from ${table}`, []), [1, 'one']);
  }
  await client.query(`alter table ${table} add column more int default 5`);
  for (let turn = 0; turn < 6; turn++) {
    assert.deepEqual(await named(client, `new${turn}`, `select * from ${table}`, []),
      [1, 'one', 5]);
  }
});

scenario('a dropped column that the statement names', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  await named(client, 'word', `select data from ${table}`, []);
  await client.query(`alter table ${table} drop column data`);
  await assert.rejects(named(client, 'word', `select data from ${table}`, []), { code: '42703' });
});

scenario('a table dropped and made anew', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  const ask = () => named(client, 'anew', `select count(*)::int from ${table}`, []);
  assert.deepEqual(await ask(), [0]);
  await client.query(`drop table ${table}`);
  await assert.rejects(ask(), { code: '42P01' });
  await client.query(`create table ${table} as select 1 as id`);
  assert.deepEqual(await ask(), [1]);
});

scenario('a few rows at a time out of one portal', async (stage) => {
  const client = await stage.connect();
  const { rows } = await client.query({
    text: 'select n from generate_series(1, 100) n', rows: 7, rowMode: 'array', values: [],
  });
  assert.deepEqual(rows.map(([number]) => number), Array.from({ length: 100 }, (_, n) => n + 1));
});

scenario('PREPARE and EXECUTE in SQL', async (stage) => {
  const client = await stage.connect();
  await client.query('prepare by_sql (int) as select $1 * 3 as n');
  for (let number = 0; number < 6; number++) {
    assert.deepEqual(await row(client, `execute by_sql(${number})`), [number * 3]);
  }
});

scenario('PREPARE and EXECUTE within a transaction', async (stage) => {
  const client = await stage.connect();
  await client.query('begin');
  await client.query('prepare in_tx (text) as select upper($1)');
  assert.deepEqual(await row(client, "execute in_tx('abc')"), ['ABC']);
  await client.query('deallocate in_tx');
  await client.query('commit');
});

// The driver's pipelines: every query is sent at once, each with a Sync of its own.

scenario('a pipeline of queries without names', async (stage) => {
  const client = await stage.connect({ pipeline: true });
  const asked = Array.from({ length: 100 }, (_, number) => row(client, 'select $1::int', [number]));
  assert.deepEqual(await Promise.all(asked), asked.map((_, number) => [number]));
});

scenario('a pipeline of named statements', async (stage) => {
  const client = await stage.connect({ pipeline: true });
  const asked = Array.from({ length: 60 }, (_, number) =>
    named(client, `p${number % 4}`, `select ${number % 4}, $1::int`, [number]));
  assert.deepEqual(await Promise.all(asked), asked.map((_, number) => [number % 4, number]));
});

scenario('errors in a pipeline hit only their own query', async (stage) => {
  const client = await stage.connect({ pipeline: true });
  const asked = Array.from({ length: 30 }, (_, number) =>
    row(client, 'select 100 / ($1::int % 3)', [number]).catch((error) => error.code));
  assert.deepEqual(await Promise.all(asked), asked.map((_, number) =>
    (number % 3 === 0 ? '22012' : [Math.trunc(100 / (number % 3))])));
});

scenario('a transaction sent as one pipeline', async (stage) => {
  const client = await stage.connect({ pipeline: true });
  const table = await stage.table();
  const [, , , counted] = await Promise.all([
    client.query('begin'), client.query(`insert into ${table} values (1, 'x')`),
    client.query('commit'), row(client, `select count(*)::int from ${table}`),
  ]);
  assert.deepEqual(counted, [1]);
});

scenario('simple and extended queries in one pipeline', async (stage) => {
  const client = await stage.connect({ pipeline: true });
  const asked = Array.from({ length: 40 }, (_, number) => (number % 2
    ? row(client, `select ${number}`) : row(client, 'select $1::int', [number])));
  assert.deepEqual(await Promise.all(asked), asked.map((_, number) => [number]));
});

scenario('megabytes both ways in a pipeline', async (stage) => {
  const client = await stage.connect({ pipeline: true });
  const asked = Array.from({ length: 20 }, (_, number) =>
    row(client, 'select $1::text', [`${number} ${'z'.repeat(400_000)}`]));
  const answers = await Promise.all(asked);
  assert.ok(answers.every(([text], number) => text.startsWith(`${number} z`)
    && text.length >= 400_002));
});
