'use strict';
// COPY by pg-copy-streams: both ways, large, broken off, failing, cancelled.

const { Readable, Writable } = require('node:stream');
const { pipeline } = require('node:stream/promises');
const copyStreams = require('pg-copy-streams');
const { assert, event, row, running, scenarios, until } = require('./stage');
const scenario = scenarios(__filename);

const copyIn = (client, text, source) =>
  pipeline(source, client.query(copyStreams.from(text)));

async function copyOut(client, text) {
  const pieces = [];
  for await (const piece of client.query(copyStreams.to(text))) pieces.push(piece);
  return Buffer.concat(pieces).toString();
}

scenario('lines in and out', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  await copyIn(client, `copy ${table} from stdin`, Readable.from(['1\tone\n2\t', '\\N\n3\t\n']));
  assert.equal(await copyOut(client, `copy (select * from ${table} order by id) to stdout`),
    '1\tone\n2\t\\N\n3\t\n');
});

scenario('the number of rows is told', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  const stream = client.query(copyStreams.from(`copy ${table} from stdin`));
  await pipeline(Readable.from(['1\ta\n2\tb\n']), stream);
  assert.equal(stream.rowCount, 2);
});

scenario('CSV', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  await copyIn(client, `copy ${table} from stdin (format csv, header)`,
    Readable.from(['id,data\n1,"a,b"\n', '2,"say ""hi"""\n']));
  assert.equal(await copyOut(client, `copy (select * from ${table} order by id) to stdout
    (format csv)`), '1,"a,b"\n2,"say ""hi"""\n');
});

scenario('binary from one table into another', async (stage) => {
  const [source, sink] = await stage.many(2);
  const from = await stage.table();
  const into = await stage.table();
  await source.query(`insert into ${from} select n, md5(n::text) from generate_series(1, 5000) n`);
  await pipeline(source.query(copyStreams.to(`copy ${from} to stdout (format binary)`)),
    sink.query(copyStreams.from(`copy ${into} from stdin (format binary)`)));
  assert.deepEqual(await row(sink, `select count(*)::int from ${from} natural join ${into}`),
    [5000]);
});

scenario('pieces cut anywhere', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  const data = Array.from({ length: 300 }, (_, n) => `${n}\tword ${n}\n`).join('');
  await copyIn(client, `copy ${table} from stdin`, Readable.from(data.match(/[^]{1,7}/g)));
  assert.deepEqual(await row(client, `select count(*)::int, sum(id)::int from ${table}`),
    [300, 44850]);
});

scenario('megabytes in', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  await copyIn(client, `copy ${table} from stdin`, Readable.from((function* lines() {
    for (let number = 0; number < 20; number++) yield `${number}\t${'m'.repeat(500_000)}\n`;
  })()));
  assert.deepEqual(await row(client, `select sum(length(data))::int from ${table}`), [10_000_000]);
});

scenario('megabytes out to a slow reader', async (stage) => {
  const client = await stage.connect();
  let total = 0;
  await pipeline(
    client.query(copyStreams.to(
      "copy (select repeat('o', 999) from generate_series(1, 10000)) to stdout")),
    new Writable({
      write(piece, _, done) {
        total += piece.length;
        setImmediate(done);
      },
    }));
  assert.equal(total, 10_000_000);
  assert.deepEqual(await row(client, 'select 1'), [1]);
});

scenario('nothing in and nothing out', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  await copyIn(client, `copy ${table} from stdin`, Readable.from([]));
  assert.equal(await copyOut(client, `copy ${table} to stdout`), '');
});

scenario('a bad row is told with its line', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  await assert.rejects(
    copyIn(client, `copy ${table} from stdin`, Readable.from(['1\tgood\nnot a number\tbad\n'])),
    (error) => error.code === '22P02' && /line 2/.test(error.where));
  assert.deepEqual(await row(client, `select count(*)::int from ${table}`), [0]);
});

scenario('a source that fails in the middle', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  await assert.rejects(copyIn(client, `copy ${table} from stdin`, Readable.from((function* fail() {
    yield '1\ta\n';
    throw new Error('no more');
  })())), /no more/);
  assert.deepEqual(await row(client, `select count(*)::int from ${table}`), [0]);
});

scenario('reading that fails half-way', async (stage) => {
  const client = await stage.connect();
  await assert.rejects(copyOut(client,
    'copy (select 1 / (500 - n) from generate_series(1, 1000) n) to stdout'), { code: '22012' });
  assert.deepEqual(await row(client, 'select 1'), [1]);
});

scenario('reading that is cancelled', async (stage) => {
  const [client, watcher] = await stage.many(2);
  const asked = copyOut(client, `copy (select pg_sleep(0.01), '${stage.name}'
    from generate_series(1, 6000)) to stdout`);
  const caught = assert.rejects(asked, { code: '57014' });
  const pid = await until(() => running(watcher, stage.name));
  await watcher.query('select pg_cancel_backend($1)', [pid]);
  await caught;
  assert.deepEqual(await row(client, 'select 1'), [1]);
});

scenario('a client that vanishes in COPY leaves nothing', async (stage) => {
  const [client, watcher] = await stage.many(2);
  const table = await stage.table();
  const stream = client.query(copyStreams.from(`copy ${table} from stdin`));
  stream.on('error', () => {});
  stream.write('1\ta\n');
  await until(() => running(watcher, `copy ${table}`));
  const gone = event(client, 'end');
  client.connection.stream.destroy();
  await gone;
  await until(async () => !(await running(watcher, `copy ${table}`)));
  assert.deepEqual(await row(watcher, `select count(*)::int from ${table}`), [0]);
});

scenario('within a transaction that is rolled back', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  await client.query('begin');
  await copyIn(client, `copy ${table} from stdin`, Readable.from(['1\ta\n']));
  assert.deepEqual(await row(client, `select count(*)::int from ${table}`), [1]);
  await client.query('rollback');
  assert.deepEqual(await row(client, `select count(*)::int from ${table}`), [0]);
});
