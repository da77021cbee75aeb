'use strict';
// Many connections at once, each of which knows what its own results have to be.

const { Readable } = require('node:stream');
const { pipeline } = require('node:stream/promises');
const Cursor = require('pg-cursor');
const copyStreams = require('pg-copy-streams');
const { assert, row, scenarios } = require('./stage');
const scenario = scenarios(__filename);

const CLIENTS = 40;

/** Every client plays the script so many times, all of them at the same time. */
async function play(stage, turns, script, options) {
  const clients = await stage.many(CLIENTS, options);
  await Promise.all(clients.map(async (client, number) => {
    for (let turn = 0; turn < turns; turn++) await script(client, number, turn);
  }));
}

scenario('simple queries', (stage) => play(stage, 25, async (client, number, turn) => {
  assert.deepEqual(await row(client, `select ${number}, ${turn}`), [number, turn]);
}));

scenario('parameters without a name', (stage) => play(stage, 25, async (client, number, turn) => {
  assert.deepEqual(await row(client, 'select $1::int, $2::int', [number, turn]), [number, turn]);
}));

scenario('one name with different texts', (stage) => play(stage, 25, async (client, number, turn) => {
  const { rows } = await client.query({
    name: 'same', text: `select ${number} as mine, $1::int as turn`, values: [turn],
  });
  assert.deepEqual(rows, [{ mine: number, turn }]);
}));

scenario('results of very different sizes', (stage) => play(stage, 6, async (client, number, turn) => {
  const size = [0, 10, 5000, 70_000, 300_000][(number + turn) % 5];
  const letter = String.fromCharCode(65 + (number % 26));
  const [text] = await row(client, 'select repeat($1, $2)', [letter, size]);
  assert.ok(text === letter.repeat(size));
}));

scenario('transactions of several statements', async (stage) => {
  const table = await stage.table();
  await play(stage, 6, async (client, number, turn) => {
    const key = number * 1000 + turn;
    await client.query('begin');
    await client.query(`insert into ${table} values ($1, $2)`, [key, `of ${number}`]);
    assert.deepEqual(await row(client, `select data from ${table} where id = $1`, [key]),
      [`of ${number}`]);
    await client.query(turn % 2 ? 'commit' : 'rollback');
  });
  assert.deepEqual(await row(await stage.connect(), `select count(*)::int from ${table}`),
    [CLIENTS * 3]);
});

scenario('errors are told to who made them', (stage) => play(stage, 15, async (client, number, turn) => {
  if ((number + turn) % 3) {
    assert.deepEqual(await row(client, 'select $1::int', [number]), [number]);
  } else {
    await assert.rejects(client.query('select $1::text::int', [`client ${number} turn ${turn}`]),
      (error) => error.message.includes(`"client ${number} turn ${turn}"`));
  }
}));

scenario('pipelines', (stage) => play(stage, 4, async (client, number) => {
  const asked = Array.from({ length: 12 }, (_, part) =>
    row(client, 'select $1::int, $2::int', [number, part]));
  assert.deepEqual(await Promise.all(asked), asked.map((_, part) => [number, part]));
}, { pipeline: true }));

scenario('portals', (stage) => play(stage, 3, async (client, number) => {
  const cursor = client.query(new Cursor('select $1::int as c, n from generate_series(1, 20) n',
    [number]));
  for (const part of [0, 1]) {
    const rows = await cursor.read(10);
    assert.ok(rows.length === 10 && rows.every(({ c, n }, at) =>
      c === number && n === part * 10 + at + 1));
  }
  await cursor.close();
}));

scenario('COPY both ways', async (stage) => {
  const table = await stage.table();
  await play(stage, 3, async (client, number, turn) => {
    await pipeline(
      Readable.from(Array.from({ length: 20 }, (_, part) =>
        `${number * 10_000 + turn * 100 + part}\tof ${number}\n`)),
      client.query(copyStreams.from(`copy ${table} from stdin`)));
    let text = '';
    for await (const piece of client.query(copyStreams.to(
      `copy (select ${number} from generate_series(1, 100)) to stdout`))) text += piece;
    assert.equal(text, `${number}\n`.repeat(100));
  });
  assert.deepEqual(await row(await stage.connect(), `select count(*)::int,
    count(*) filter (where data = 'of ' || id / 10000)::int from ${table}`),
  [CLIENTS * 60, CLIENTS * 60]);
});

scenario('names of applications', (stage) => play(stage, 15, async (client, number) => {
  assert.deepEqual(await row(client, 'show application_name'), [`client ${number}`]);
}, (number) => ({ application_name: `client ${number}` })));

scenario('two users', (stage) => play(stage, 10, async (client, number, turn) => {
  const user = number % 2 ? 'alice' : 'postgres';
  assert.deepEqual(await row(client, 'select current_user::text, session_user::text, $1::int',
    [turn]), [user, user, turn]);
}, (number) => ({ user: number % 2 ? 'alice' : 'postgres' })));

scenario('connections that come, go and vanish', async (stage) => {
  await Promise.all(Array.from({ length: CLIENTS }, async (_, number) => {
    for (let turn = 0; turn < 5; turn++) {
      const client = await stage.connect();
      if (number % 4 === 0) {
        client.query(`select ${number}, repeat('v', 20000) from generate_series(1, 50)`)
          .catch(() => {});
        await new Promise((done) => setImmediate(done));
        client.connection.stream.destroy();
      } else {
        assert.deepEqual(await row(client, 'select $1::int, $2::int', [number, turn]),
          [number, turn]);
        await client.end();
      }
    }
  }));
});
