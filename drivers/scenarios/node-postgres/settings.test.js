'use strict';
// SET, SHOW, what the server reports of it, time zones, encodings, and their reset.

const { assert, row, scenarios } = require('./stage');
const scenario = scenarios(__filename);

/** A client that keeps what the server reports. */
async function told(stage, options) {
  const client = stage.client(options);
  client.told = {};
  client.connection.on('parameterStatus', (message) => {
    client.told[message.parameterName] = message.parameterValue;
  });
  await client.connect();
  return client;
}

for (const [name, value] of [['application_name', 'changed'], ['DateStyle', 'SQL, DMY'],
  ['IntervalStyle', 'iso_8601'], ['TimeZone', 'Asia/Kolkata'],
  ['standard_conforming_strings', 'off']]) {
  scenario(`${name} is told, kept, and told again at its reset`, async (stage) => {
    const client = await told(stage);
    const before = client.told[name];
    await client.query('select set_config($1, $2, false)', [name, value]);
    assert.equal(client.told[name], value);
    for (let turn = 0; turn < 6; turn++) {
      assert.deepEqual(await row(client, `show ${name}`), [value]);
    }
    await client.query(`reset ${name}`);
    assert.equal(client.told[name], before);
    for (let turn = 0; turn < 6; turn++) {
      assert.deepEqual(await row(client, `show ${name}`), [before]);
    }
  });
}

scenario('every client keeps its own time zone', async (stage) => {
  const zones = ['Asia/Tokyo', 'Europe/Berlin', 'America/Lima', 'Africa/Cairo', 'Asia/Kabul'];
  const clients = await Promise.all(zones.map(() => told(stage)));
  await Promise.all(clients.map((client, at) => client.query(`set timezone = '${zones[at]}'`)));
  for (let turn = 0; turn < 8; turn++) {
    const shown = await Promise.all(clients.map((client) => row(client, 'show timezone')));
    assert.deepEqual(shown.flat(), zones);
    assert.deepEqual(clients.map((client) => client.told.TimeZone), zones);
  }
});

scenario('a time stamp is the same moment in every zone', async (stage) => {
  const client = await stage.connect();
  const moment = new Date('2024-07-01T12:00:00Z');
  for (const zone of ['UTC', 'Asia/Tokyo', 'America/St_Johns']) {
    await client.query(`set timezone = '${zone}'`);
    const [back, text] = await row(client, 'select $1::timestamptz, $1::timestamptz::text',
      [moment]);
    assert.equal(back.getTime(), moment.getTime());
    assert.equal(new Date(text.replace(/([+-]\d\d)$/, '$1:00')).getTime(), moment.getTime());
  }
});

scenario('SET LOCAL ends with the transaction', async (stage) => {
  const client = await told(stage);
  const before = client.told.TimeZone;
  await client.query('begin');
  await client.query("set local timezone = 'Asia/Tokyo'");
  assert.equal(client.told.TimeZone, 'Asia/Tokyo');
  await client.query('commit');
  assert.equal(client.told.TimeZone, before);
  assert.deepEqual(await row(client, 'show timezone'), [before]);
});

scenario('a SET that is rolled back never was', async (stage) => {
  const client = await told(stage);
  const before = client.told.TimeZone;
  await client.query('begin');
  await client.query("set timezone = 'Asia/Tokyo'");
  await client.query('rollback');
  for (let turn = 0; turn < 6; turn++) {
    assert.deepEqual(await row(client, 'show timezone'), [before]);
  }
  assert.equal(client.told.TimeZone, before);
});

scenario('a wrong value changes nothing', async (stage) => {
  const client = await told(stage);
  const before = client.told.DateStyle;
  await assert.rejects(client.query("set datestyle = 'nonsense'"), { code: '22023' });
  assert.deepEqual(await row(client, 'show datestyle'), [before]);
});

scenario('a setting nobody reports, in a transaction', async (stage) => {
  const client = await stage.connect();
  await client.query('begin');
  await client.query("set local work_mem = '9MB'");
  assert.deepEqual(await row(client, 'show work_mem'), ['9MB']);
  await client.query('commit');
  assert.notDeepEqual(await row(client, 'show work_mem'), ['9MB']);
});

scenario('a setting nobody reports, for the session', async (stage) => {
  const client = await stage.connect();
  await client.query("set work_mem = '9MB'");
  for (let turn = 0; turn < 4; turn++) {
    assert.deepEqual(await row(client, 'show work_mem'), ['9MB']);
  }
});

scenario('search_path for the session', async (stage) => {
  const client = await stage.connect();
  await client.query(`create schema ${stage.name}`);
  try {
    await client.query(`set search_path = ${stage.name}`);
    for (let turn = 0; turn < 4; turn++) {
      assert.deepEqual(await row(client, 'select current_schema()::text'), [stage.name]);
    }
  } finally {
    await client.query(`drop schema ${stage.name}`);
  }
});

scenario('a role for one transaction', async (stage) => {
  const client = await stage.connect();
  await client.query('begin');
  await client.query('set local role alice');
  assert.deepEqual(await row(client, 'select current_user::text'), ['alice']);
  await client.query('commit');
  assert.deepEqual(await row(client, 'select current_user::text'), ['postgres']);
});

scenario('what one client sets another never sees', async (stage) => {
  for (let turn = 0; turn < 5; turn++) {
    const one = await stage.connect();
    await one.query(`set scenario.secret = 'of ${turn}'`);
    await one.end();
    const [seen] = await row(await stage.connect(),
      "select current_setting('scenario.secret', true)");
    assert.ok(!seen, seen);
  }
});

scenario('DISCARD ALL leaves a usable connection', async (stage) => {
  const client = await told(stage);
  await client.query("set timezone = 'Asia/Tokyo'");
  await client.query('discard all');
  assert.notEqual(client.told.TimeZone, 'Asia/Tokyo');
  assert.deepEqual(await row(client, 'show timezone'), [client.told.TimeZone]);
});

scenario('another encoding on the wire', async (stage) => {
  const [client, other] = await stage.many(2);
  await client.query("set client_encoding = 'LATIN1'");
  for (let turn = 0; turn < 6; turn++) {
    // The driver reads UTF-8: a lone byte FC is not.
    assert.deepEqual(await row(client, 'select chr(252), length(chr(252))'), ['\ufffd', 1]);
    assert.deepEqual(await row(other, 'select chr(252)'), ['ü']);
  }
});

scenario('what the encoding cannot say', async (stage) => {
  const client = await stage.connect();
  await client.query("set client_encoding = 'LATIN1'");
  await assert.rejects(client.query('select chr(8364)'), { code: '22P05' });
  assert.deepEqual(await row(client, 'select 1'), [1]);
});
