'use strict';
// Runs the scenarios of all files in this folder, one after another, in one process. Arguments are
// names of scenarios to leave out. Where to connect to is in libpq's variables.

const fs = require('node:fs');
const path = require('node:path');

for (const file of fs.readdirSync(__dirname).sort()) {
  if (file.endsWith('.test.js')) require(path.join(__dirname, file));
}
