'use strict';
// Prisma's client over node-postgres: its compiler of queries is WebAssembly, and its adapter sends
// them. libpq's variables have the address; PRISMA_CLIENT names the folder of the generated client.

const assert = require('node:assert/strict');
const { after, before, test } = require('node:test');
const { Client } = require('pg');
const { PrismaPg } = require('@prisma/adapter-pg');
const { Prisma, PrismaClient } = require(process.env.PRISMA_CLIENT);

const TABLES = `
  CREATE TABLE "Person" (id serial PRIMARY KEY, email text NOT NULL UNIQUE, name text NOT NULL DEFAULT '',
    size int NOT NULL DEFAULT 0);
  CREATE TABLE "Note" (id serial PRIMARY KEY, title text NOT NULL,
    "authorId" int NOT NULL REFERENCES "Person");
  CREATE TABLE "Value" (id serial PRIMARY KEY, big bigint NOT NULL, exact numeric NOT NULL,
    bytes bytea NOT NULL, moment timestamp(3) NOT NULL, facts jsonb NOT NULL, words text[], truth bool);
`;

/** Does something on a connection of its own. */
async function once(work) {
  const client = new Client();
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

/** Empty tables, and clients that are disconnected at the end. */
function scenario(title, play) {
  test(title, { timeout: 60_000 }, async () => {
    await once((owner) => owner.query('TRUNCATE "Person", "Note", "Value" RESTART IDENTITY CASCADE'));
    const opened = [];
    const connect = (options = {}, further = {}) => {
      const adapter = new PrismaPg({ max: 5, ...options }, further);
      opened.push(new PrismaClient({ adapter, transactionOptions: { maxWait: 20_000, timeout: 20_000 } }));
      return opened.at(-1);
    };
    try {
      await play(connect(), connect);
    } finally {
      await Promise.all(opened.map((one) => one.$disconnect()));
    }
  });
}

const range = (count) => Array.from({ length: count }, (_, at) => at);
const person = (at) => ({ email: `p${at}@example.org`, name: `p${at}`, size: at });

before(() => once((owner) => owner.query(TABLES)));
after(() => once((owner) => owner.query('DROP TABLE "Note", "Person", "Value"')));

scenario('records are created, found, changed and deleted', async (prisma) => {
  for (const at of range(10)) await prisma.person.create({ data: person(at) });
  for (const at of range(10)) {
    const found = await prisma.person.findUnique({ where: { email: `p${at}@example.org` } });
    assert.equal(found.size, at);
    await prisma.person.update({ where: { id: found.id }, data: { size: { increment: 10 } } });
  }
  await prisma.person.delete({ where: { email: 'p3@example.org' } });
  assert.equal(await prisma.person.count(), 9);
  assert.equal((await prisma.person.findFirst({ orderBy: { size: 'desc' } })).size, 19);
});

scenario('records with those that belong to them, in one transaction', async (prisma) => {
  for (const at of range(5)) {
    const made = await prisma.person.create({
      data: { ...person(at), notes: { create: [{ title: 'a' }, { title: `b${at}` }] } },
      include: { notes: { orderBy: { id: 'asc' } } },
    });
    assert.deepEqual(made.notes.map((note) => note.title), ['a', `b${at}`]);
  }
  await assert.rejects(prisma.person.create({
    data: { ...person(9), notes: { create: [{ title: 'a' }, { id: 1, title: 'twice' }] } },
  }), { code: 'P2002' });
  assert.equal(await prisma.person.count(), 5);
  const all = await prisma.person.findMany({
    where: { notes: { some: { title: { startsWith: 'b' } } } }, include: { notes: true }, orderBy: { id: 'asc' },
  });
  assert.deepEqual(all.map((one) => one.notes.length), [2, 2, 2, 2, 2]);
});

scenario('many records at once', async (prisma) => {
  const { count } = await prisma.person.createMany({ data: range(2000).map(person) });
  assert.equal(count, 2000);
  const again = await prisma.person.createMany({ data: range(2001).map(person), skipDuplicates: true });
  assert.equal(again.count, 1);
  const changed = await prisma.person.updateMany({ where: { size: { lt: 100 } }, data: { name: 'small' } });
  assert.equal(changed.count, 100);
  const ids = range(1500).map((at) => at + 1);
  assert.equal((await prisma.person.findMany({ where: { id: { in: ids } } })).length, 1500);
  assert.equal((await prisma.person.deleteMany()).count, 2001);
});

scenario('aggregates, groups and pages', async (prisma) => {
  await prisma.person.createMany({ data: range(100).map((at) => ({ ...person(at), name: `g${at % 4}` })) });
  const sum = await prisma.person.aggregate({ _sum: { size: true }, _avg: { size: true } });
  assert.equal(sum._sum.size, 4950);
  const groups = await prisma.person.groupBy({ by: ['name'], _count: true, orderBy: { name: 'asc' } });
  assert.deepEqual(groups.map((group) => group._count), [25, 25, 25, 25]);
  let cursor;
  const seen = [];
  for (;;) {
    const page = await prisma.person.findMany({
      take: 30, orderBy: { id: 'asc' }, ...(cursor ? { skip: 1, cursor: { id: cursor } } : {}),
    });
    if (!page.length) break;
    seen.push(...page.map((one) => one.size));
    cursor = page.at(-1).id;
  }
  assert.deepEqual(seen, range(100));
});

scenario('values there and back', async (prisma) => {
  const data = {
    big: 2n ** 62n, exact: new Prisma.Decimal('12345678901234567890.123456789'),
    bytes: Uint8Array.from(range(256)), moment: new Date('2024-02-29T01:02:03.004Z'),
    facts: { a: [1, null, 'x'] }, words: ['a', 'b"c', ''], truth: null,
  };
  for (const _ of range(5)) {
    const { id } = await prisma.value.create({ data });
    const found = await prisma.value.findUnique({ where: { id } });
    assert.deepEqual({ ...found, exact: String(found.exact), bytes: [...found.bytes] },
      { id, ...data, exact: String(data.exact), bytes: range(256) });
  }
});

scenario('raw queries', async (prisma) => {
  for (const at of range(20)) {
    const rows = await prisma.$queryRaw`SELECT ${at}::int + 1 AS n, ${`w${at}`} AS word`;
    assert.deepEqual(rows, [{ n: at + 1, word: `w${at}` }]);
    assert.equal(await prisma.$executeRaw`INSERT INTO "Person" (email) VALUES (${`r${at}`})`, 1);
  }
  assert.equal(await prisma.$executeRawUnsafe('UPDATE "Person" SET size = $1', 7), 20);
  await assert.rejects(prisma.$queryRaw`SELECT nothing`, { code: 'P2010' });
  assert.deepEqual(await prisma.$queryRaw`SELECT 1 AS n`, [{ n: 1 }]);
});

scenario('errors have their code', async (prisma) => {
  await prisma.person.create({ data: person(1) });
  for (const _ of range(3)) {
    await assert.rejects(prisma.person.create({ data: person(1) }), { code: 'P2002' });
    await assert.rejects(prisma.note.create({ data: { title: 'x', authorId: 999 } }), { code: 'P2003' });
    await assert.rejects(prisma.person.delete({ where: { id: 999 } }), { code: 'P2025' });
    assert.equal(await prisma.person.count(), 1);
  }
});

scenario('a list of queries as one transaction', async (prisma) => {
  const [one, count] = await prisma.$transaction([
    prisma.person.create({ data: person(1) }), prisma.person.count(),
  ]);
  assert.deepEqual([one.size, count], [1, 1]);
  await assert.rejects(prisma.$transaction([
    prisma.person.create({ data: person(2) }), prisma.person.create({ data: person(1) }),
  ]), { code: 'P2002' });
  assert.equal(await prisma.person.count(), 1);
});

scenario('interactive transactions commit and roll back', async (prisma, connect) => {
  const other = connect();
  for (const at of range(5)) {
    await prisma.$transaction(async (tx) => {
      await tx.person.create({ data: person(at) });
      assert.equal(await other.person.count(), at);
      assert.equal(await tx.person.count(), at + 1);
    });
    await assert.rejects(prisma.$transaction(async (tx) => {
      await tx.person.create({ data: person(100) });
      throw new Error('no');
    }), /no/);
    assert.equal(await other.person.count(), at + 1);
  }
});

scenario('an interactive transaction that takes too long', async (prisma) => {
  for (const _ of range(3)) {
    await assert.rejects(prisma.$transaction(async (tx) => {
      await tx.person.create({ data: person(1) });
      await new Promise((done) => { setTimeout(done, 400); });
      await tx.person.count();
    }, { timeout: 100 }), { code: 'P2028' });
    assert.equal(await prisma.person.count(), 0);
  }
});

for (const level of ['ReadCommitted', 'RepeatableRead', 'Serializable']) {
  scenario(`isolation ${level} lasts for one transaction`, async (prisma) => {
    const show = (on) => on.$queryRaw`SELECT current_setting('transaction_isolation') AS level`;
    for (const _ of range(5)) {
      const [inside] = await prisma.$transaction((tx) => show(tx), { isolationLevel: level });
      assert.equal(inside.level, level.replace(/(?!^)([A-Z])/, ' $1').toLowerCase());
      assert.equal((await show(prisma))[0].level, 'read committed');
    }
  });
}

scenario('transactions that cannot be serialized', async (prisma) => {
  await prisma.person.create({ data: person(1) });
  const add = async (gate) => prisma.$transaction(async (tx) => {
    const { id, size } = await tx.person.findFirst();
    await gate();
    await tx.person.update({ where: { id }, data: { size: size + 1 } });
  }, { isolationLevel: 'Serializable' });
  let waiting = 0;
  let open;
  const both = new Promise((done) => { open = done; });
  const gate = () => { waiting += 1; if (waiting === 2) open(); return both; };
  const results = await Promise.allSettled([add(gate), add(gate)]);
  const codes = results.map(({ reason }) => reason?.code).sort();
  assert.deepEqual(codes, ['P2034', undefined]);
  assert.equal((await prisma.person.findFirst()).size, 2);
});

scenario('claims of a tenant for one transaction', async (prisma) => {
  const as = (tenant) => prisma.$transaction([
    prisma.$executeRaw`SELECT set_config('app.tenant', ${tenant}, true)`,
    prisma.$queryRaw`SELECT current_setting('app.tenant') AS tenant`,
  ]);
  const answers = await Promise.all(range(40).map((at) => as(`t${at}`)));
  answers.forEach(([, [row]], at) => assert.equal(row.tenant, `t${at}`));
  const [left] = await prisma.$queryRaw`SELECT nullif(current_setting('app.tenant', true), '') AS tenant`;
  assert.equal(left.tenant, null);
});

scenario('a hundred queries at a time on five connections', async (prisma) => {
  const made = await Promise.all(range(100).map((at) => prisma.person.create({ data: person(at) })));
  assert.equal(new Set(made.map((one) => one.id)).size, 100);
  const found = await Promise.all(made.map(({ id }) => prisma.person.findUnique({ where: { id } })));
  assert.deepEqual(found.map((one) => one.size), range(100));
});

scenario('statements with names of the application', async (prisma, connect) => {
  await prisma.person.createMany({ data: range(10).map(person) });
  // Names of two clients mean different texts.
  const clients = range(4).map((place) => {
    const known = new Map();
    const statementNameGenerator = ({ sql }) => {
      if (!known.has(sql)) known.set(sql, `s${known.size}`);
      return known.get(sql);
    };
    return [place, connect({}, { statementNameGenerator })];
  });
  for (const at of range(20)) {
    await Promise.all(clients.map(async ([place, one]) => {
      const rows = await one.$queryRawUnsafe(`SELECT $1::int + ${place} AS n`, at);
      assert.deepEqual(rows, [{ n: at + place }]);
      assert.equal((await one.person.findUnique({ where: { id: at % 10 + 1 } })).size, at % 10);
    }));
  }
});

scenario('a table that changes under a statement with a name', async (prisma, connect) => {
  const one = connect({ max: 1 }, { statementNameGenerator: () => 'only' });
  const read = () => one.$queryRawUnsafe('SELECT * FROM "Note"');
  assert.deepEqual(await read(), []);
  await once((owner) => owner.query('ALTER TABLE "Note" ADD COLUMN more int'));
  await assert.rejects(read(), /cached plan must not change result type/);
  await once((owner) => owner.query('ALTER TABLE "Note" DROP COLUMN more'));
  assert.deepEqual(await read(), []);
});

scenario('a lock of a transaction', async (prisma, connect) => {
  const other = connect();
  const order = [];
  let waits;
  await prisma.$transaction(async (tx) => {
    await tx.$executeRaw`SELECT pg_advisory_xact_lock(7)`;
    waits = other.$transaction(async (theirs) => {
      await theirs.$executeRaw`SELECT pg_advisory_xact_lock(7)`;
      order.push('other');
    });
    for (;;) {
      const [{ n }] = await tx.$queryRaw`SELECT count(*)::int AS n FROM pg_locks WHERE NOT granted`;
      if (n) break;
    }
    order.push('first');
  });
  await waits;
  assert.deepEqual(order, ['first', 'other']);
});

scenario('settings in the options of the connection', async (_, connect) => {
  const one = connect({ application_name: 'shop', statement_timeout: 300 });
  const [{ name }] = await one.$queryRaw`SELECT current_setting('application_name') AS name`;
  assert.equal(name, 'shop');
  await assert.rejects(one.$queryRaw`SELECT pg_sleep(60)::text`, /statement timeout/);
});

scenario('a large result', async (prisma) => {
  const rows = await prisma.$queryRaw`
    SELECT n, repeat(md5(n::text), 10) AS word FROM generate_series(1, 20000) n`;
  assert.deepEqual([rows.length, rows[19_999].word.length], [20_000, 320]);
});

scenario('disconnected and connected again', async (prisma) => {
  for (const at of range(5)) {
    await prisma.person.create({ data: person(at) });
    await prisma.$disconnect();
    assert.equal(await prisma.person.count(), at + 1);
  }
});

scenario('a query that is left when its process disconnects', async (prisma, connect) => {
  const one = connect();
  await one.person.create({ data: person(1) });
  const left = one.$transaction(async (tx) => {
    await tx.person.update({ where: { email: 'p1@example.org' }, data: { size: 5 } });
    throw new Error('gone');
  }).catch((error) => error.message);
  assert.equal(await left, 'gone');
  await one.$disconnect();
  assert.equal((await prisma.person.update({
    where: { email: 'p1@example.org' }, data: { size: { increment: 1 } },
  })).size, 2);
});
