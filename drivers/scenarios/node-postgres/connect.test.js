'use strict';
// Connecting: where, as whom, with which settings, and what a refusal says.

const net = require('node:net');
const { assert, event, row, running, scenarios, until } = require('./stage');
const scenario = scenarios(__filename);

const { PGHOST, PGPORT } = process.env;

scenario('a URL says where to', async (stage) => {
  const client = await stage.connect(`postgresql://postgres@${PGHOST}:${PGPORT}/postgres`);
  assert.deepEqual(await row(client, 'select current_user::text'), ['postgres']);
});

scenario('settings in a URL', async (stage) => {
  const client = await stage.connect({
    connectionString: `postgresql://postgres@${PGHOST}:${PGPORT}/postgres?application_name=by%20url`,
  });
  assert.deepEqual(await row(client, 'show application_name'), ['by url']);
});

scenario('another user and another database', async (stage) => {
  const client = await stage.connect({ user: 'alice', password: 'secret', database: 'template1' });
  assert.deepEqual(await row(client, 'select current_user::text, current_database()::text'),
    ['alice', 'template1']);
});

scenario('a server without TLS is told from one with it', async (stage) => {
  await assert.rejects(stage.connect({ ssl: true }), /does not support SSL/);
  assert.deepEqual(await row(await stage.connect({ ssl: false }), 'select 1'), [1]);
});

// This is libpq's sslmode=prefer. The driver has no such mode, so the test does it by hand.
scenario('after a declined TLS the same socket goes on without', async () => {
  const socket = net.connect(Number(PGPORT), PGHOST);
  try {
    socket.write(Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]));
    assert.equal((await event(socket, 'data')).toString(), 'N');
    const parameters = Buffer.from('user\0postgres\0database\0postgres\0\0');
    const head = Buffer.alloc(8);
    head.writeInt32BE(parameters.length + 8, 0);
    head.writeInt32BE(196608, 4);
    socket.write(Buffer.concat([head, parameters]));
    assert.equal(String.fromCharCode((await event(socket, 'data'))[0]), 'R');
  } finally {
    socket.destroy();
  }
});

scenario('application_name is known to the server', async (stage) => {
  const client = await stage.connect({ application_name: 'node scenario' });
  assert.deepEqual(await row(client, `select current_setting('application_name'),
    (select application_name from pg_stat_activity where pid = pg_backend_pid())`),
  ['node scenario', 'node scenario']);
});

scenario('a fallback name counts only without another', async (stage) => {
  const one = await stage.connect({ fallback_application_name: 'fallback' });
  const two = await stage.connect({ fallback_application_name: 'x', application_name: 'own' });
  assert.deepEqual(await row(one, 'show application_name'), ['fallback']);
  assert.deepEqual(await row(two, 'show application_name'), ['own']);
});

scenario('settings within options', async (stage) => {
  const client = await stage.connect({ options: '-c TimeZone=Asia/Tokyo -c DateStyle=German' });
  assert.deepEqual(await row(client,
    "select current_setting('timezone'), current_setting('datestyle')"),
  ['Asia/Tokyo', 'German, DMY']);
});

scenario('any setting within options', async (stage) => {
  const client = await stage.connect({ options: '-c work_mem=7MB' });
  assert.deepEqual(await row(client, 'show work_mem'), ['7MB']);
});

scenario('statement_timeout as a startup parameter', async (stage) => {
  const client = await stage.connect({ statement_timeout: 200 });
  await assert.rejects(client.query('select pg_sleep(30)'), { code: '57014' });
});

scenario('client_encoding as asked for', async (stage) => {
  const client = await stage.connect({ client_encoding: 'UTF8' });
  assert.deepEqual(await row(client, 'show client_encoding'), ['UTF8']);
});

scenario('an unknown database', async (stage) => {
  await assert.rejects(stage.connect({ database: 'nosuchdb' }), /nosuchdb/);
});

scenario('an unknown role', async (stage) => {
  await assert.rejects(stage.connect({ user: 'nobody_of_this_name' }), /nobody_of_this_name|failed/);
});

scenario('nobody listens', async (stage) => {
  await assert.rejects(stage.connect({ host: '127.0.0.1', port: 1 }), { code: 'ECONNREFUSED' });
});

scenario('a server that says nothing', async (stage) => {
  const mute = net.createServer(() => {});
  await new Promise((done) => mute.listen(0, '127.0.0.1', done));
  try {
    await assert.rejects(stage.connect({
      host: '127.0.0.1', port: mute.address().port, connectionTimeoutMillis: 300,
    }), /timeout/);
  } finally {
    mute.close();
  }
});

scenario('keep-alive and a stream of its own', async (stage) => {
  const client = await stage.connect({ keepAlive: true, stream: () => new net.Socket() });
  assert.deepEqual(await row(client, 'select 1'), [1]);
});

scenario('what the server says of itself at login', async (stage) => {
  const client = stage.client();
  const told = {};
  client.connection.on('parameterStatus', (message) => {
    told[message.parameterName] = message.parameterValue;
  });
  await client.connect();
  const [version] = await row(client, 'show server_version');
  assert.equal(told.server_version, version);
  assert.equal(told.server_encoding, 'UTF8');
  assert.equal(told.client_encoding, 'UTF8');
  assert.equal(told.integer_datetimes, 'on');
  assert.equal(told.standard_conforming_strings, 'on');
  assert.equal(told.is_superuser, 'on');
  assert.equal(told.session_authorization, 'postgres');
  assert.ok(told.DateStyle && told.TimeZone && told.IntervalStyle);
});

scenario("the backend's number is the one SQL shows", async (stage) => {
  const client = await stage.connect();
  assert.deepEqual(await row(client, 'select pg_backend_pid()'), [client.processID]);
});

scenario("a query is cancelled by its connection's number, as knex does", async (stage) => {
  const [client, watcher] = await stage.many(2);
  const caught = assert.rejects(client.query(`select pg_sleep(60), '${stage.name}'`),
    { code: '57014' });
  await until(() => running(watcher, stage.name));
  // `.timeout(ms, { cancel: true })` does this on a connection of its own.
  const killer = await stage.connect();
  assert.deepEqual(await row(killer, 'SELECT pg_cancel_backend($1);', [client.processID]), [true]);
  await caught;
  assert.deepEqual(await row(client, 'select 1'), [1]);
});

scenario('every connection has a cancel key of its own', async (stage) => {
  const keys = (await stage.many(20)).map((one) => `${one.processID} ${one.secretKey}`);
  assert.equal(new Set(keys).size, 20);
});

scenario('a hundred connections one after another', async (stage) => {
  for (let number = 0; number < 100; number++) {
    const client = await stage.connect();
    assert.deepEqual(await row(client, 'select $1::int', [number]), [number]);
    await client.end();
  }
});

scenario('connecting twice is refused by the driver', async (stage) => {
  const client = await stage.connect();
  await assert.rejects(client.connect(), /already been connected/);
  assert.deepEqual(await row(client, 'select 1'), [1]);
});

scenario('queries asked before the login is through', async (stage) => {
  const client = stage.client();
  const asked = [1, 2, 3].map((number) => row(client, 'select $1::int', [number]));
  await client.connect();
  assert.deepEqual(await Promise.all(asked), [[1], [2], [3]]);
});

scenario('end in the middle of a query leaves the others alone', async (stage) => {
  const [client, other] = await stage.many(2);
  const asked = assert.rejects(row(client, 'select pg_sleep(0.5)'), /terminated/);
  await client.end();
  await asked;
  await assert.rejects(client.query('select 1'), /closed|not queryable/);
  for (let turn = 0; turn < 6; turn++) assert.deepEqual(await row(other, 'select $1::int', [turn]), [turn]);
});
