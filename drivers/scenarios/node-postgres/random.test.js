'use strict';
// The scenarios' own statements with random Buffers, which are sent as binary parameters, directly and
// through what is tested: rows and SQLSTATE have to be the same. SEED=N plays a round again.

const crypto = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');
const { assert, scenarios } = require('./stage');
const scenario = scenarios(__filename);

const ROUNDS = 12;
const SIZES = [0, 1, 1, 2, 4, 4, 4, 8, 8, 16, 100, 3000];
// Statements whose result varies, that wait, or that affect other sessions.
const LEFT_OUT = new RegExp('pg_(sleep|backend|terminate|cancel|notify|stat|prepared|locks|advisory|try)|now\\(\\)' +
  '|random|currval|lastval|nextval|clock_|current_|txid|generate_series|repeat\\(|copy |listen|begin|commit|prepare ' +
  '|set_config|lo_', 'i');

/** Statements with parameters that stand in a file; `{t}` is a table. */
function statements(file) {
  const source = fs.readFileSync(path.join(__dirname, file), 'utf8');
  const found = new Set();
  for (const [, , text] of source.matchAll(/(['`])((?:(?!\1)[^\\])*?\$1(?:(?!\1)[^\\])*)\1/g)) {
    const plain = text.replace(/\$\{[^}]*\}/g, '{t}').replace(/\s+/g, ' ');
    if (/^\s*(select|insert|update|delete|values|with)\b/i.test(plain) && !LEFT_OUT.test(plain)) found.add(plain);
  }
  return [...found].sort();
}

/** Bytes that follow from the seed. */
function* bytes(seed) {
  for (let block = 0; ; block++) yield* crypto.createHash('sha256').update(`${seed} ${block}`).digest();
}

function value(dice) {
  const size = SIZES[dice.next().value % SIZES.length];
  if (dice.next().value < 12) return null;
  return Buffer.from(Array.from({ length: size }, () => dice.next().value));
}

/** Returns values as the server's text: a parsed date beyond JavaScript's range equals no other, itself included. */
const types = { getTypeParser: () => (text) => text };

/** What becomes of it, in a transaction that is rolled back. */
async function play(client, text, values) {
  await client.query('begin');
  try {
    const { rows } = await client.query({ text, values, types, rowMode: 'array' });
    return { rows };
  } catch (error) {
    return { code: error.code ?? String(error) };
  } finally {
    await client.query('rollback');
  }
}

for (const file of fs.readdirSync(__dirname).sort()) {
  if (!file.endsWith('.test.js') || file === path.basename(__filename)) continue;
  scenario(`statements of ${file} with random parameters`, async (stage) => {
    const seed = process.env.SEED ?? Date.now() % 1e9;
    console.log(`SEED=${seed} ${file}`);
    const dice = bytes(`${seed} ${file}`);
    const table = await stage.table();
    const direct = await stage.connect({ port: Number(process.env.DIRECT_PORT) });
    const pooled = await stage.connect();
    for (const statement of statements(file)) {
      const text = statement.replaceAll('{t}', table);
      const count = Math.max(...[...text.matchAll(/\$(\d+)/g)].map(([, number]) => Number(number)));
      for (let round = 0; round < ROUNDS; round++) {
        const values = Array.from({ length: count }, () => value(dice));
        const answers = [await play(direct, text, values), await play(pooled, text, values)];
        assert.deepEqual(answers[1], answers[0], `SEED=${seed}: ${text} ${JSON.stringify(values)}`);
      }
    }
  });
}
