'use strict';
// Statements and their results: several in one, none at all, batches; LISTEN and NOTIFY.

const { assert, row, scenarios, until } = require('./stage');
const scenario = scenarios(__filename);

scenario('several statements are several results', async (stage) => {
  const client = await stage.connect();
  const results = await client.query("select 1 as a; select 'two' as b, 2 as c; select where false");
  assert.deepEqual(results.map(({ rows }) => rows), [[{ a: 1 }], [{ b: 'two', c: 2 }], []]);
});

scenario('several statements are one transaction', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  await assert.rejects(client.query(`insert into ${table} values (1, ''); select 1 / 0`),
    { code: '22012' });
  assert.deepEqual(await row(client, `select count(*)::int from ${table}`), [0]);
});

scenario('several statements with parameters are refused', async (stage) => {
  const client = await stage.connect();
  await assert.rejects(client.query('select $1::int; select 2', [1]), { code: '42601' });
});

scenario('begin and commit within one query', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  await client.query(`begin; insert into ${table} values (1, ''); commit`);
  assert.deepEqual(await row(client, `select count(*)::int from ${table}`), [1]);
});

scenario('a query of five hundred results', async (stage) => {
  const client = await stage.connect();
  const results = await client.query(
    Array.from({ length: 500 }, (_, n) => `select ${n} as n`).join('; '));
  assert.deepEqual(results.map(({ rows }) => rows[0].n), results.map((_, n) => n));
});

for (const text of ['', ' ', ';', '-- nothing', '/* nothing */']) {
  scenario(`nothing to do: "${text}"`, async (stage) => {
    const client = await stage.connect();
    assert.deepEqual((await client.query(text)).rows, []);
    if (text) assert.deepEqual((await client.query({ text, queryMode: 'extended' })).rows, []);
    assert.deepEqual(await row(client, 'select 1'), [1]);
  });
}

scenario('commands and counts', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  const seen = [];
  for (const text of [`insert into ${table} select n, '' from generate_series(1, 10) n`,
    `update ${table} set data = 'x' where id > 4`, `delete from ${table} where id > 8`,
    `select * from ${table}`, 'begin', 'commit', 'show timezone', 'do $$ begin end $$']) {
    const { command, rowCount } = await client.query(text);
    seen.push([command, rowCount]);
  }
  assert.deepEqual(seen, [['INSERT', 10], ['UPDATE', 6], ['DELETE', 2], ['SELECT', 8],
    ['BEGIN', null], ['COMMIT', null], ['SHOW', null], ['DO', null]]);
});

scenario('returning', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  assert.deepEqual((await client.query(
    `insert into ${table} values ($1, $2), ($3, $4) returning id, upper(data) as data`,
    [1, 'a', 2, 'b'])).rows, [{ id: 1, data: 'A' }, { id: 2, data: 'B' }]);
});

scenario('five hundred inserts and a count', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  await client.query('begin');
  for (let number = 0; number < 500; number++) {
    await client.query({ name: 'ins', text: `insert into ${table} values ($1, $2)`,
      values: [number, `row ${number}`] });
  }
  await client.query('commit');
  assert.deepEqual(await row(client, `select count(*)::int, sum(id)::int from ${table}`),
    [500, 124750]);
});

scenario('a thousand small queries', async (stage) => {
  const client = await stage.connect();
  for (let number = 0; number < 1000; number++) {
    assert.deepEqual(await row(client, 'select $1::int', [number]), [number]);
  }
});

scenario('callbacks in the order of asking', async (stage) => {
  const client = await stage.connect();
  const seen = [];
  await new Promise((done) => {
    for (let number = 0; number < 20; number++) {
      client.query('select $1::int as n', [number], (error, result) => {
        seen.push(error ?? result.rows[0].n);
        if (seen.length === 20) done();
      });
    }
  });
  assert.deepEqual(seen, Array.from({ length: 20 }, (_, n) => n));
});

scenario('currval needs the same session', async (stage) => {
  const client = await stage.connect();
  await client.query(`create sequence ${stage.name}`);
  try {
    for (let turn = 0; turn < 4; turn++) {
      const value = await row(client, `select nextval('${stage.name}')`);
      assert.deepEqual(await row(client, `select currval('${stage.name}')`), value);
    }
  } finally {
    await client.query(`drop sequence ${stage.name}`);
  }
});

// Direct they come at once; this is how long one that does not come is waited for.
const HEAR_MS = 8000;

const listening = async (stage) => {
  const client = await stage.connect();
  client.heard = [];
  client.on('notification', ({ channel, payload }) => client.heard.push([channel, payload]));
  await client.query(`listen ${stage.name}`);
  return client;
};

scenario('a notification reaches who listens', async (stage) => {
  const client = await listening(stage);
  const other = await stage.connect();
  for (const payload of ['one', 'two']) {
    await other.query('select pg_notify($1, $2)', [stage.name, payload]);
  }
  await until(() => client.heard.length === 2, HEAR_MS);
  assert.deepEqual(client.heard, [[stage.name, 'one'], [stage.name, 'two']]);
});

scenario('a notification waits for the commit', async (stage) => {
  const client = await listening(stage);
  const other = await stage.connect();
  await other.query('begin');
  await other.query(`notify ${stage.name}, 'undone'`);
  await other.query('rollback');
  await other.query('begin');
  await other.query(`notify ${stage.name}, 'done'`);
  await client.query('select 1');
  assert.deepEqual(client.heard, []);
  await other.query('commit');
  await until(() => client.heard.length, HEAR_MS);
  assert.deepEqual(client.heard, [[stage.name, 'done']]);
});

scenario('listeners are not inherited', async (stage) => {
  await (await listening(stage)).end();
  for (let turn = 0; turn < 5; turn++) {
    const other = await stage.connect();
    const heard = [];
    other.on('notification', (message) => heard.push(message));
    await other.query(`notify ${stage.name}, 'for nobody'`);
    assert.deepEqual(await row(other, 'select 1'), [1]);
    assert.deepEqual(heard, []);
  }
});
