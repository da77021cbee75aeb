'use strict';
// Errors with all their fields, notices, cancelled queries, lost backends.

const { Client } = require('pg');
const { assert, event, row, running, scenarios, until } = require('./stage');
const scenario = scenarios(__filename);

const ERRORS = [
  ['selekt 1', '42601', '1'], ['select nothing', '42703', '8'],
  ["select 'Grüße', nothing", '42703', '17'], ['select * from nowhere', '42P01', '15'],
  ['select no_function(1)', '42883', '8'], ["select 'x'::int", '22P02', '8'],
  ['select 1 / 0', '22012', undefined], ['select sqrt(-1)', '2201F', undefined],
  ['set no_such_setting = 1', '42704', undefined], ['drop table nowhere', '42P01', undefined],
];

for (const [text, code, position] of ERRORS) {
  scenario(`${text} is ${code} in simple and extended queries`, async (stage) => {
    const client = await stage.connect();
    for (const query of [{ text }, { text, values: [], queryMode: 'extended' }]) {
      await assert.rejects(client.query(query), { code, position, severity: 'ERROR' });
    }
    assert.deepEqual(await row(client, "select 'alive'"), ['alive']);
  });
}

scenario('a violation names schema, table, column, constraint', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  await client.query(`alter table ${table} alter data set not null`);
  await assert.rejects(client.query(`insert into ${table} values (1, null)`),
    { code: '23502', schema: 'public', table, column: 'data' });
  await client.query(`insert into ${table} values (1, 'x')`);
  await assert.rejects(client.query(`insert into ${table} values ($1, 'x')`, [1]),
    { code: '23505', constraint: `${table}_pkey`, detail: 'Key (id)=(1) already exists.' });
});

scenario('every field a function can set', async (stage) => {
  const client = await stage.connect();
  await assert.rejects(client.query(`do $$ begin raise exception using message = 'said',
    detail = 'more', hint = 'try', errcode = 'XX999', column = 'c', constraint = 'k',
    datatype = 'd', table = 't', schema = 's'; end $$`), {
    message: 'said', detail: 'more', hint: 'try', code: 'XX999', column: 'c', constraint: 'k',
    dataType: 'd', table: 't', schema: 's', file: 'pl_exec.c',
  });
});

scenario('an error inside a function has query and position', async (stage) => {
  const client = await stage.connect();
  await assert.rejects(client.query('do $$ begin perform * from missing; end $$'),
    (error) => /missing/.test(error.internalQuery) && Number(error.internalPosition) > 0);
});

scenario('a message of megabytes', async (stage) => {
  const client = await stage.connect();
  await assert.rejects(
    client.query("do $$ begin raise exception '%', repeat('m', 2000000); end $$"),
    (error) => error.message.length === 2_000_000);
  assert.deepEqual(await row(client, 'select 1'), [1]);
});

scenario('a hundred errors, each in its place', async (stage) => {
  const client = await stage.connect();
  for (let number = 0; number < 100; number++) {
    await assert.rejects(client.query('select $1::text::int', [`no ${number} number`]),
      (error) => error.message.includes(`"no ${number} number"`));
    assert.deepEqual(await row(client, 'select $1::int', [number]), [number]);
  }
});

scenario('privileges are those of the user', async (stage) => {
  const client = await stage.connect({ user: 'alice', password: 'secret' });
  const table = await stage.table();
  await assert.rejects(client.query(`select * from ${table}`), { code: '42501' });
});

scenario('an error after some rows', async (stage) => {
  const client = await stage.connect();
  await assert.rejects(client.query('select 1 / (3 - n) from generate_series(1, 5) n'),
    { code: '22012' });
  assert.deepEqual(await row(client, 'select 1'), [1]);
});

scenario('notices in order and with their fields', async (stage) => {
  const client = await stage.connect();
  const heard = [];
  client.on('notice', ({ message, detail, severity }) => heard.push([message, detail, severity]));
  await client.query(`do $$ begin for i in 1..20 loop
    raise notice 'n%', i using detail = 'd' || i; end loop; raise warning 'w'; end $$`);
  assert.deepEqual(heard.slice(0, 20), Array.from({ length: 20 }, (_, n) =>
    [`n${n + 1}`, `d${n + 1}`, 'NOTICE']));
  assert.equal(heard[20][2], 'WARNING');
});

scenario('notices reach only their asker', async (stage) => {
  const clients = await stage.many(10);
  const heard = clients.map((client) => {
    const mine = [];
    client.on('notice', ({ message }) => mine.push(message));
    return mine;
  });
  for (let turn = 0; turn < 5; turn++) {
    await Promise.all(clients.map((client, number) =>
      client.query(`do $$ begin raise notice 'turn ${turn} of ${number}'; end $$`)));
  }
  assert.deepEqual(heard, clients.map((_, number) =>
    Array.from({ length: 5 }, (__, turn) => `turn ${turn} of ${number}`)));
});

scenario('a warning about a transaction that is there already', async (stage) => {
  const client = await stage.connect();
  const heard = [];
  client.on('notice', ({ code }) => heard.push(code));
  for (const text of ['begin', 'begin', 'commit', 'commit']) await client.query(text);
  assert.deepEqual(heard, ['25001', '25P01']);
});

scenario('statement_timeout in a transaction', async (stage) => {
  const client = await stage.connect();
  await client.query('begin');
  await client.query('set local statement_timeout = 50');
  await assert.rejects(client.query('select pg_sleep(30)'), { code: '57014' });
  await client.query('rollback');
  assert.deepEqual(await row(client, 'show statement_timeout'), ['0']);
});

scenario('the driver gives up waiting', async (stage) => {
  const [client, other] = [await stage.connect({ query_timeout: 200 }), await stage.connect()];
  await assert.rejects(client.query('select pg_sleep(1)'), /timeout/);
  for (let turn = 0; turn < 6; turn++) {
    assert.deepEqual(await row(other, 'select $1::int', [turn]), [turn]);
  }
});

// Cancel requests.

/** Cancels by the client's own key, as the driver does it: over a connection of its own. */
function cancel(client) {
  const messenger = new Client();
  messenger.cancel(client, client.activeQuery);
  return event(messenger.connection, 'end');
}

scenario('a running query is cancelled, and the connection lives', async (stage) => {
  const [client, watcher] = await stage.many(2);
  const caught = assert.rejects(client.query(`select pg_sleep(60), '${stage.name}'`),
    { code: '57014' });
  await until(() => running(watcher, stage.name));
  await cancel(client);
  await caught;
  assert.deepEqual(await row(client, "select 'alive'"), ['alive']);
});

scenario('of two running queries only the one meant ends', async (stage) => {
  const [one, two, watcher] = await stage.many(3);
  const ended = [];
  const asked = [one, two].map((client, number) =>
    client.query(`select pg_sleep(60), '${stage.name} ${number}'`)
      .catch((error) => ended.push([number, error.code])));
  await until(() => running(watcher, `${stage.name} 0`));
  await until(() => running(watcher, `${stage.name} 1`));
  await cancel(two);
  await asked[1];
  assert.deepEqual(ended, [[1, '57014']]);
  assert.ok(await running(watcher, `${stage.name} 0`));
  await cancel(one);
  await asked[0];
  assert.deepEqual(ended, [[1, '57014'], [0, '57014']]);
});

scenario('a cancel that comes too late harms nobody', async (stage) => {
  const [client, other] = await stage.many(2);
  for (let turn = 0; turn < 15; turn++) {
    const asked = row(client, 'select $1::int', [turn]);
    const messenger = new Client();
    const { processID, secretKey, activeQuery } = client;
    assert.deepEqual(await asked, [turn]);
    const ended = event(messenger.connection, 'end');
    messenger.cancel({ processID, secretKey, activeQuery }, activeQuery);
    assert.deepEqual(await row(other, 'select $1::int, pg_sleep(0.02)::text', [turn]), [turn, '']);
    await ended;
  }
});

scenario('a cancel within a transaction fails the transaction', async (stage) => {
  const [client, watcher] = await stage.many(2);
  await client.query('begin');
  const caught = assert.rejects(client.query(`select pg_sleep(60), '${stage.name}'`),
    { code: '57014' });
  await until(() => running(watcher, stage.name));
  await cancel(client);
  await caught;
  await assert.rejects(client.query('select 1'), { code: '25P02' });
  await client.query('rollback');
});

scenario('a wrong key cancels nothing', async (stage) => {
  const [client, watcher] = await stage.many(2);
  const caught = assert.rejects(client.query(`select pg_sleep(60), '${stage.name}'`),
    { code: '57014' });
  await until(() => running(watcher, stage.name));
  const messenger = new Client();
  messenger.cancel({ ...client, activeQuery: client.activeQuery, secretKey: 12345 },
    client.activeQuery);
  await event(messenger.connection, 'end');
  assert.ok(await running(watcher, stage.name));
  await cancel(client);
  await caught;
});

scenario('a backend that is terminated is told to its client', async (stage) => {
  const [client, watcher] = await stage.many(2);
  const caught = assert.rejects(client.query(`select pg_sleep(60), '${stage.name}'`),
    { code: '57P01' });
  const pid = await until(() => running(watcher, stage.name));
  await watcher.query('select pg_terminate_backend($1)', [pid]);
  await caught;
  await until(() => client._ended);
  assert.deepEqual(await row(watcher, "select 'alive'"), ['alive']);
});

scenario('the query of a client that vanished comes to an end', async (stage) => {
  const [client, watcher] = await stage.many(2);
  client.query(`select pg_sleep(2), '${stage.name}'`).catch(() => {});
  await until(() => running(watcher, stage.name));
  client.connection.stream.destroy();
  await until(async () => !(await running(watcher, stage.name)));
});
