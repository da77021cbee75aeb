'use strict';
// Transactions: begin, commit, rollback, savepoints, isolation, locks, two-phase commit.

const { assert, row, running, scenarios, until } = require('./stage');
const scenario = scenarios(__filename);

const count = async (client, table) =>
  (await row(client, `select count(*)::int from ${table}`))[0];

scenario('commit shows it to others, rollback does not', async (stage) => {
  const [one, other] = await stage.many(2);
  const table = await stage.table();
  for (const [number, end] of ['commit', 'rollback'].entries()) {
    await one.query('begin');
    await one.query(`insert into ${table} values ($1, 'x')`, [number]);
    assert.equal(await count(other, table), number);
    await one.query(end);
  }
  assert.equal(await count(other, table), 1);
});

scenario('a failed transaction refuses everything', async (stage) => {
  const client = await stage.connect();
  await client.query('begin');
  await assert.rejects(client.query('select 1 / 0'), { code: '22012' });
  for (let turn = 0; turn < 3; turn++) {
    await assert.rejects(client.query('select $1::int', [1]), { code: '25P02' });
  }
  assert.equal((await client.query('commit')).command, 'ROLLBACK');
  assert.deepEqual(await row(client, 'select 1'), [1]);
});

scenario('savepoints', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  await client.query('begin');
  await client.query(`insert into ${table} values (1, 'x')`);
  await client.query('savepoint a');
  await assert.rejects(client.query(`insert into ${table} values (1, 'x')`), { code: '23505' });
  await client.query('rollback to savepoint a');
  await client.query(`insert into ${table} values (2, 'x')`);
  await client.query('release savepoint a');
  await client.query('commit');
  assert.equal(await count(client, table), 2);
});

scenario('nested savepoints undone from the outside', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  await client.query('begin');
  for (let depth = 0; depth < 10; depth++) {
    await client.query(`savepoint s${depth}`);
    await client.query(`insert into ${table} values ($1, '')`, [depth]);
  }
  await client.query('rollback to savepoint s4');
  await assert.rejects(client.query('release savepoint s7'), { code: '3B001' });
  await client.query('rollback to savepoint s4');
  await client.query('commit');
  assert.equal(await count(client, table), 4);
});

for (const level of ['read committed', 'repeatable read', 'serializable']) {
  scenario(`isolation ${level} lasts for one transaction`, async (stage) => {
    const client = await stage.connect();
    await client.query(`begin isolation level ${level}`);
    assert.deepEqual(await row(client, 'show transaction_isolation'), [level]);
    await client.query('commit');
    for (let turn = 0; turn < 4; turn++) {
      assert.deepEqual(await row(client, 'show transaction_isolation'), ['read committed']);
    }
  });
}

scenario('repeatable read keeps its picture', async (stage) => {
  const [one, other] = await stage.many(2);
  const table = await stage.table();
  await one.query('begin isolation level repeatable read');
  assert.equal(await count(one, table), 0);
  await other.query(`insert into ${table} values (1, 'x')`);
  assert.equal(await count(one, table), 0);
  await one.query('commit');
  assert.equal(await count(one, table), 1);
});

scenario('a serialization failure', async (stage) => {
  const [one, two] = await stage.many(2);
  const table = await stage.table();
  await one.query(`insert into ${table} values (1, '0')`);
  for (const client of [one, two]) {
    await client.query('begin isolation level repeatable read');
    await client.query(`select * from ${table}`);
  }
  await one.query(`update ${table} set data = 'one'`);
  await one.query('commit');
  await assert.rejects(two.query(`update ${table} set data = 'two'`), { code: '40001' });
  await two.query('rollback');
});

scenario('a deadlock hits one of two', async (stage) => {
  const clients = await stage.many(2);
  const table = await stage.table();
  await clients[0].query(`insert into ${table} values (0, ''), (1, '')`);
  for (const [number, client] of clients.entries()) {
    await client.query('begin');
    await client.query(`update ${table} set data = 'x' where id = $1`, [number]);
  }
  const codes = await Promise.all(clients.map(async (client, number) => {
    try {
      await client.query(`update ${table} set data = 'y' where id = $1`, [1 - number]);
      await client.query('commit');
      return 'committed';
    } catch (error) {
      await client.query('rollback');
      return error.code;
    }
  }));
  assert.deepEqual(codes.sort(), ['40P01', 'committed']);
});

scenario('read only', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  await client.query('begin read only');
  await assert.rejects(client.query(`insert into ${table} values (1, '')`), { code: '25006' });
  await client.query('rollback');
  await client.query(`insert into ${table} values (1, '')`);
});

scenario('a row lock is waited for', async (stage) => {
  const [one, two, watcher] = await stage.many(3);
  const table = await stage.table();
  await one.query(`insert into ${table} values (1, 'first')`);
  await one.query('begin');
  await one.query(`update ${table} set data = 'second'`);
  const waiting = two.query(`update ${table} set data = data || ' third' returning data`);
  await until(() => running(watcher, `update ${table} set data = data`));
  await one.query('commit');
  assert.deepEqual((await waiting).rows, [{ data: 'second third' }]);
});

scenario('a deferred constraint fails at commit', async (stage) => {
  const client = await stage.connect();
  const table = await stage.table();
  await client.query('begin');
  await client.query(`create temp table child (parent int references ${table}
    deferrable initially deferred) on commit drop`).catch(() => {});
  await client.query('rollback');
  await client.query(`alter table ${table} add constraint ${table}_u unique (data)
    deferrable initially deferred`);
  await client.query('begin');
  await client.query(`insert into ${table} values (1, 'same'), (2, 'same')`);
  await assert.rejects(client.query('commit'), { code: '23505' });
  assert.equal(await count(client, table), 0);
});

scenario('transaction locks end with it', async (stage) => {
  const [one, two] = await stage.many(2);
  await one.query('begin');
  await one.query('select pg_advisory_xact_lock(4242)');
  assert.deepEqual(await row(two, 'select pg_try_advisory_xact_lock(4242)'), [false]);
  await one.query('commit');
  assert.deepEqual(await row(two, 'select pg_try_advisory_xact_lock(4242)'), [true]);
});

scenario('session locks are held over transactions', async (stage) => {
  const [one, two] = await stage.many(2);
  await one.query('select pg_advisory_lock(2424)');
  for (let turn = 0; turn < 4; turn++) {
    assert.deepEqual(await row(two, 'select pg_try_advisory_lock(2424)'), [false]);
  }
  assert.deepEqual(await row(one, 'select pg_advisory_unlock(2424)'), [true]);
});

scenario('a temporary table for one transaction', async (stage) => {
  const client = await stage.connect();
  await client.query('begin');
  await client.query('create temp table brief on commit drop as select 7 as n');
  assert.deepEqual(await row(client, 'select n from brief'), [7]);
  await client.query('commit');
  await assert.rejects(client.query('select n from brief'), { code: '42P01' });
});

scenario('a temporary table for the session', async (stage) => {
  const client = await stage.connect();
  await client.query(`create temp table ${stage.name} (n int)`);
  for (let number = 0; number < 5; number++) {
    await client.query(`insert into ${stage.name} values ($1)`, [number]);
  }
  assert.equal(await count(client, stage.name), 5);
});

scenario('a client that vanishes in a transaction leaves nothing', async (stage) => {
  const [one, other] = await stage.many(2);
  const table = await stage.table();
  await one.query('begin');
  await one.query(`insert into ${table} values (1, 'undone')`);
  one.connection.stream.destroy();
  await other.query(`insert into ${table} values (1, 'kept')`);
  assert.deepEqual(await row(other, `select data from ${table}`), ['kept']);
});

scenario('prepare here, commit there', async (stage) => {
  const [one, two] = await stage.many(2);
  const table = await stage.table();
  await one.query('begin');
  await one.query(`insert into ${table} values (1, 'x')`);
  await one.query(`prepare transaction '${stage.name}'`);
  assert.equal(await count(one, table), 0);
  assert.deepEqual(await row(two, 'select gid from pg_prepared_xacts where gid = $1',
    [stage.name]), [stage.name]);
  await two.query(`commit prepared '${stage.name}'`);
  assert.equal(await count(one, table), 1);
});

scenario('prepare, lose the client, roll back', async (stage) => {
  const [one, two] = await stage.many(2);
  const table = await stage.table();
  await one.query('begin');
  await one.query(`insert into ${table} values (1, 'x')`);
  await one.query(`prepare transaction '${stage.name}'`);
  one.connection.stream.destroy();
  await two.query(`rollback prepared '${stage.name}'`);
  assert.equal(await count(two, table), 0);
  await assert.rejects(two.query(`rollback prepared '${stage.name}'`), { code: '42704' });
});
