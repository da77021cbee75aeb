-- The SQL surface of the pooler in the server. Superusers may use all of it, pg_monitor what reads.
\echo Use "CREATE EXTENSION weir" to load this file. \quit

CREATE FUNCTION weir_show(word text) RETURNS SETOF record
    LANGUAGE c STRICT VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'weir_show';
COMMENT ON FUNCTION weir_show(text) IS
    'a SHOW of the pooler''s console, such as POOLS; its columns by their names';

CREATE FUNCTION pg_pooler_state(
    OUT pid integer,
    OUT n_clients integer,
    OUT n_ssl_clients integer,
    OUT n_pools integer,
    OUT n_backends integer,
    OUT n_dedicated_backends integer,
    OUT n_idle_backends integer,
    OUT n_idle_clients integer,
    OUT tx_bytes bigint,
    OUT rx_bytes bigint,
    OUT n_transactions bigint
) RETURNS SETOF record
    LANGUAGE c STRICT VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'weir_state';
COMMENT ON FUNCTION pg_pooler_state() IS
    'the state of the pooler, a row for each of its worker threads';

CREATE FUNCTION weir_order(verb text, database text) RETURNS void
    LANGUAGE c CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'weir_order';
COMMENT ON FUNCTION weir_order(text, text) IS
    'a command of the pooler''s console; weir_pause() and its like call this function';

CREATE FUNCTION weir_pause(database text DEFAULT NULL) RETURNS void
    LANGUAGE sql VOLATILE PARALLEL UNSAFE
    BEGIN ATOMIC SELECT weir_order('PAUSE', database); END;
COMMENT ON FUNCTION weir_pause(text) IS
    'gives no more server connections to clients of a database, or of all, and waits until none is left';

CREATE FUNCTION weir_resume(database text DEFAULT NULL) RETURNS void
    LANGUAGE sql VOLATILE PARALLEL UNSAFE
    BEGIN ATOMIC SELECT weir_order('RESUME', database); END;
COMMENT ON FUNCTION weir_resume(text) IS 'ends weir_pause()';

CREATE FUNCTION weir_reconnect(database text DEFAULT NULL) RETURNS void
    LANGUAGE sql VOLATILE PARALLEL UNSAFE
    BEGIN ATOMIC SELECT weir_order('RECONNECT', database); END;
COMMENT ON FUNCTION weir_reconnect(text) IS
    'replaces the server connections of a database, or all, each as soon as its client releases it';

CREATE FUNCTION weir_reload() RETURNS void
    LANGUAGE sql VOLATILE PARALLEL UNSAFE
    BEGIN ATOMIC SELECT weir_order('RELOAD', NULL); END;
COMMENT ON FUNCTION weir_reload() IS
    'makes the pooler read its configuration again; pg_reload_conf() does so, too';

CREATE VIEW weir_pools AS SELECT * FROM weir_show('POOLS') AS pools(
    "database" text, "user" text, cl_active integer, cl_waiting integer, sv_active integer,
    sv_idle integer, sv_used integer, sv_login integer, sv_pinned integer, maxwait integer,
    maxwait_us integer, pool_mode text, session_state text, data_path text, why text);
COMMENT ON VIEW weir_pools IS 'the pools: SHOW POOLS of the pooler''s console';

CREATE VIEW weir_clients AS SELECT * FROM weir_show('CLIENTS') AS clients(
    id integer, "user" text, "database" text, state text, addr text, port integer,
    connect_time text, request_time text, wait integer, ptr text, link text, tls text,
    application_name text, prepared_statements integer, pin_reason text, pin_age bigint,
    activity text, activity_age bigint);
COMMENT ON VIEW weir_clients IS 'the clients: SHOW CLIENTS of the pooler''s console';

CREATE VIEW weir_servers AS SELECT * FROM weir_show('SERVERS') AS servers(
    id integer, "user" text, "database" text, state text, remote_pid integer,
    connect_time text, request_time text, close_needed integer, ptr text, link text,
    application_name text, prepared_statements integer, activity text, activity_age bigint);
COMMENT ON VIEW weir_servers IS
    'the server connections: SHOW SERVERS of the pooler''s console; remote_pid is that of pg_stat_activity';

CREATE VIEW weir_pins AS SELECT * FROM weir_show('PINS') AS pins(
    "database" text, "user" text, client text, server text, reason text, age bigint,
    fingerprint text);
COMMENT ON VIEW weir_pins IS
    'the clients that keep a server connection between transactions, and why: SHOW PINS';

REVOKE ALL ON FUNCTION weir_show(text), pg_pooler_state(), weir_order(text, text), weir_pause(text),
    weir_resume(text), weir_reconnect(text), weir_reload() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weir_show(text), pg_pooler_state() TO pg_monitor;
GRANT SELECT ON weir_pools, weir_clients, weir_servers, weir_pins TO pg_monitor;
