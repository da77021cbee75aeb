'use strict';
// Values of many types, there and back: in text, in binary, as parameters and as results.

const { assert, row, scenarios } = require('./stage');
const scenario = scenarios(__filename);

const VALUES = [
  ['bool', true], ['int2', -32768], ['int4', 2147483647], ['int8', '-9223372036854775808'],
  ['float4', 0.5], ['float8', 1e300], ['float8', -Infinity], ['numeric', '12345678901234567890.5'],
  ['text', ''], ['text', "quote ' backslash \\ percent % dollar $1"], ['text', 'Grüße, 世界 🌍'],
  ['varchar(5)', 'short'], ['bytea', Buffer.from(Array.from({ length: 256 }, (_, n) => n))],
  ['bytea', Buffer.alloc(0)], ['uuid', '12345678-1234-5678-1234-567812345678'],
  ['timestamptz', new Date('2024-02-29T01:02:03.004Z')], ['json', { a: [1, null, 'ü'] }],
  ['jsonb', { nested: { deep: [true, 2.5] } }], ['int4[]', [1, null, 3]],
  ['text[]', ['a', 'b,c', '"', null, '']], ['float8[]', [0.5, -0.5]], ['inet', '10.1.2.3'],
  ['point', { x: 1.5, y: -2 }],
];

for (const [kind, value] of VALUES) {
  const shown = JSON.stringify(value)?.slice(0, 20);
  scenario(`${kind} ${shown} returns as it went`, async (stage) => {
    const client = await stage.connect();
    const given = kind === 'point' ? '(1.5,-2)' : value;
    assert.deepEqual(await row(client, `select $1::${kind}, $1::${kind} is null`, [given]),
      [value, false]);
  });
}

scenario('null of every kind', async (stage) => {
  const client = await stage.connect();
  const kinds = [...new Set(VALUES.map(([kind]) => kind))];
  assert.deepEqual(
    await row(client, `select ${kinds.map((kind, at) => `$${at + 1}::${kind}`)}`,
      kinds.map(() => null)),
    kinds.map(() => null));
  assert.deepEqual(await row(client, 'select $1::text is null', [undefined]), [true]);
});

scenario('dates, intervals and times of day', async (stage) => {
  const client = await stage.connect();
  const [date, interval, time] = await row(client,
    "select '2020-05-06'::date, '1 day 02:03:04'::interval, '12:34:56'::time");
  assert.deepEqual([date.getFullYear(), date.getMonth(), date.getDate()], [2020, 4, 6]);
  assert.deepEqual({ ...interval }, { days: 1, hours: 2, minutes: 3, seconds: 4 });
  assert.equal(time, '12:34:56');
});

scenario('results in binary', async (stage) => {
  const client = await stage.connect();
  const { rows } = await client.query({
    text: "select 7::int4 as four, 1::int2 as two, true as yes, 2.5::float8 as real, 'x'::text as t",
    binary: true, values: [],
  });
  assert.deepEqual(rows, [{ four: 7, two: 1, yes: true, real: 2.5, t: 'x' }]);
});

scenario('a buffer is a binary parameter', async (stage) => {
  const client = await stage.connect();
  assert.deepEqual(await row(client, 'select $1::int4', [Buffer.from([0, 0, 1, 2])]), [258]);
});

scenario('parsers of its own for a type', async (stage) => {
  const client = await stage.connect();
  client.setTypeParser(20, (text) => BigInt(text));
  assert.deepEqual(await row(client, 'select 9007199254740993::int8'), [9007199254740993n]);
});

scenario('columns tell name, table and type', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  const { fields } = await client.query(`select id, data as word, 1.5::numeric(5,2) from ${table}`);
  const [oid] = await row(client, 'select $1::regclass::oid::int', [table]);
  assert.deepEqual(fields.map((field) => [field.name, field.tableID, field.columnID,
    field.dataTypeID]), [['id', oid, 1, 23], ['word', oid, 2, 25], ['numeric', 0, 0, 1700]]);
});

scenario('two columns of one name, as an array of rows', async (stage) => {
  const client = await stage.connect();
  assert.deepEqual(await row(client, 'select 1 as n, 2 as n'), [1, 2]);
});

scenario('rows without columns', async (stage) => {
  const client = await stage.connect();
  const result = await client.query('select from generate_series(1, 3)');
  assert.deepEqual([result.rowCount, result.rows], [3, [{}, {}, {}]]);
});

scenario('a thousand columns', async (stage) => {
  const client = await stage.connect();
  const numbers = Array.from({ length: 1000 }, (_, n) => n);
  assert.deepEqual(await row(client, `select ${numbers.map((n) => `${n} as c${n}`)}`), numbers);
});

scenario('thousands of parameters', async (stage) => {
  const client = await stage.connect();
  const numbers = Array.from({ length: 20_000 }, (_, n) => n);
  const marks = numbers.map((n) => `($${n + 1}::int)`);
  assert.deepEqual(await row(client,
    `select count(*)::int, sum(n)::int from (values ${marks}) as v(n)`, numbers),
  [20_000, 199_990_000]);
});

scenario('an object with toPostgres', async (stage) => {
  const client = await stage.connect();
  const value = { toPostgres: () => 'as I say' };
  assert.deepEqual(await row(client, 'select $1::text', [value]), ['as I say']);
});

for (const size of [8191, 8192, 65535, 65536, 65537, 1_048_577, 12_000_000]) {
  scenario(`${size} bytes there and back`, async (stage) => {
    const client = await stage.connect();
    const value = Buffer.alloc(size, 'pattern of no power of two');
    const [back, length] = await row(client, 'select $1::bytea, length($1::bytea)', [value]);
    assert.equal(length, size);
    assert.ok(value.equals(back));
  });
}

scenario('a simple query of megabytes', async (stage) => {
  const client = await stage.connect();
  const text = 'x'.repeat(3_000_000);
  assert.deepEqual(await row(client, `select length('${text}')`), [3_000_000]);
});

scenario('many rows in order', async (stage) => {
  const client = await stage.connect();
  const { rows } = await client.query({
    text: 'select n, md5(n::text) from generate_series(1, 100000) n', rowMode: 'array',
  });
  assert.equal(rows.length, 100_000);
  assert.ok(rows.every(([number], at) => number === at + 1));
});

scenario('rows of very different sizes', async (stage) => {
  const client = await stage.connect();
  const sizes = [0, 1, 100_000, 3, 65_536, 5, 2_000_000, 0];
  const { rows } = await client.query(
    "select repeat(chr(96 + o::int), n) as t from unnest($1::int[]) with ordinality u(n, o)",
    [sizes]);
  assert.deepEqual(rows.map(({ t }) => t.length), sizes);
  assert.ok(rows.every(({ t }, at) => [...new Set(t)].join('')
    === (sizes[at] ? String.fromCharCode(97 + at) : '')));
});
