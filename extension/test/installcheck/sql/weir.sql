-- Loading, the parameters, and the reserved prefix. Reports need a startup packet: see test/run.
LOAD 'weir';
SHOW weir.report;
SHOW weir.unsupported;
SHOW weir.client_address;
SET weir.route = 'primary';
SHOW weir.route;
RESET weir.route;
SHOW weir.route;
SET weir.token = 'abc';
SHOW weir.token;
-- Only a startup packet can set these.
SET weir.report = 1;
SET weir.unsupported = 'error';
SET weir.key = 'key';
-- Without reports and a key, no address is taken.
SET weir.client = 'key 10.0.0.1 5432';
SHOW weir.client;
-- Nothing else may be named like the library.
SET weir.state = 'v1';
SELECT name, context FROM pg_settings WHERE name LIKE 'weir.%' ORDER BY name;
-- A session that has not asked is not held back.
SELECT setseed(0.5);
