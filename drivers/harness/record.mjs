// A reporter of Node's test runner: one JSON line for every test, at once, so that a run that dies
// half-way still tells what became of the tests before.

export default async function* record(events) {
  for await (const { type, data } of events) {
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    const error = data.details?.error;
    const said = type === 'test:pass' ? '' : String(error?.cause?.stack ?? error?.stack ?? error);
    const result = data.skip ? 'skipped' : type === 'test:pass' ? 'passed' : 'failed';
    yield JSON.stringify([data.name, result, said.slice(-4000)]) + '\n';
  }
}
