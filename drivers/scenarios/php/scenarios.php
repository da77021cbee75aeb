<?php
// PHP's pdo_pgsql and pgsql over libpq: emulated and real prepared statements, lastInsertId, COPY,
// notifications, asynchronous queries. Where to connect to is in libpq's variables.

declare(strict_types=1);
error_reporting(E_ALL & ~E_WARNING & ~E_NOTICE);

$number = 0;
$count = 0;

function name(): string
{
    global $number;
    return 'php' . getmypid() . '_' . $number++;
}

function pdo(array $more = []): PDO
{
    return new PDO('pgsql:', null, null, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION] + $more);
}

function pg(string $options = '')
{
    return pg_connect($options, PGSQL_CONNECT_FORCE_NEW) ?: throw new Exception('no connection');
}

/** One scenario. It passes if it does not throw. */
function scenario(string $title, callable $play): void
{
    global $count;
    $count++;
    try {
        $play();
        echo "ok $count - $title\n";
    } catch (Throwable $error) {
        echo "not ok $count - $title\n# ", str_replace("\n", "\n# ", (string) $error), "\n";
    }
}

function same($got, $wanted): void
{
    if ($got !== $wanted) {
        throw new Exception('got ' . var_export($got, true) . ', wanted ' . var_export($wanted, true));
    }
}

function state_of(callable $work): string
{
    try {
        $work();
        return 'none';
    } catch (PDOException $error) {
        return (string) $error->getCode();
    }
}

function value(PDO $pdo, string $sql, array $values = [])
{
    $statement = $pdo->prepare($sql);
    $statement->execute($values);
    return $statement->fetchColumn();
}

function table(PDO $pdo): string
{
    $table = name();
    $pdo->exec("CREATE TABLE $table (id serial PRIMARY KEY, word text)");
    return $table;
}

$prepares = ['prepared' => [], 'emulated' => [PDO::ATTR_EMULATE_PREPARES => true],
    'unnamed' => [PDO::PGSQL_ATTR_DISABLE_PREPARES => true]];

foreach ($prepares as $kind => $options) {
    scenario("PDO, $kind: values there and back", function () use ($options) {
        $pdo = pdo($options);
        foreach ([['int8', '-9223372036854775808'], ['numeric', '12345678901234567890.123456789'],
            ['text', "Grüße, 世界 '\\\" ?"], ['text', ''], ['date', '1999-12-31'],
            ['timestamp', '2024-02-29 01:02:03.000004'], ['jsonb', '{"a": [1, null]}'],
            ['int[]', '{1,2,NULL}'], ['text', null]] as [$type, $value]) {
            for ($round = 0; $round < 3; $round++) {
                same(value($pdo, "SELECT CAST(CAST(? AS $type) AS text)", [$value]), $value);
            }
        }
    });

    scenario("PDO, $kind: bytes", function () use ($options) {
        $bytes = implode('', array_map('chr', range(0, 255)));
        $statement = pdo($options)->prepare('SELECT CAST(:b AS bytea) AS b');
        $statement->bindParam(':b', $bytes, PDO::PARAM_LOB);
        $statement->execute();
        same(stream_get_contents($statement->fetchColumn()), $bytes);
    });

    scenario("PDO, $kind: a statement many times", function () use ($options) {
        $pdo = pdo($options);
        $table = table($pdo);
        $insert = $pdo->prepare("INSERT INTO $table (word) VALUES (:word)");
        for ($n = 1; $n <= 50; $n++) {
            $insert->execute(['word' => "word $n"]);
        }
        $find = $pdo->prepare("SELECT word FROM $table WHERE id = ?");
        for ($n = 1; $n <= 50; $n++) {
            $find->execute([$n]);
            same($find->fetchAll(PDO::FETCH_COLUMN), ["word $n"]);
        }
        $pdo->exec("DROP TABLE $table");
    });

    scenario("PDO, $kind: lastInsertId", function () use ($options) {
        $pdo = pdo($options);
        $table = table($pdo);
        for ($n = 1; $n <= 10; $n++) {
            $pdo->prepare("INSERT INTO $table (word) VALUES (?)")->execute(['w']);
            same($pdo->lastInsertId(), (string) $n);
            same($pdo->lastInsertId("{$table}_id_seq"), (string) $n);
        }
        $pdo->exec("DROP TABLE $table");
    });

    scenario("PDO, $kind: lastInsertId of two clients in turn", function () use ($options) {
        [$one, $other] = [pdo($options), pdo($options)];
        $table = table($one);
        for ($n = 1; $n <= 10; $n++) {
            $one->prepare("INSERT INTO $table (word) VALUES (?)")->execute(['a']);
            $mine = $one->lastInsertId();
            $other->prepare("INSERT INTO $table (word) VALUES (?)")->execute(['b']);
            same([$mine, $other->lastInsertId()], [(string) (2 * $n - 1), (string) (2 * $n)]);
        }
        $one->exec("DROP TABLE $table");
    });

    scenario("PDO, $kind: errors", function () use ($options) {
        $pdo = pdo($options);
        $table = table($pdo);
        $pdo->exec("INSERT INTO $table VALUES (1, 'a')");
        same(state_of(fn () => $pdo->exec("INSERT INTO $table VALUES (1, 'b')")), '23505');
        same(state_of(fn () => value($pdo, 'SELECT nothing')), '42703');
        same(state_of(fn () => value($pdo, 'SELECT CAST(? AS int)', ['x'])), '22P02');
        same(state_of(fn () => value($pdo, 'SELEC')), '42601');
        same(value($pdo, 'SELECT CAST(1 AS text)'), '1');
        $pdo->exec("DROP TABLE $table");
    });
}

scenario('PDO: commit and rollback', function () {
    $pdo = pdo();
    $table = table($pdo);
    $pdo->beginTransaction();
    $pdo->exec("INSERT INTO $table (word) VALUES ('kept')");
    same($pdo->inTransaction(), true);
    $pdo->commit();
    $pdo->beginTransaction();
    $pdo->exec("INSERT INTO $table (word) VALUES ('lost')");
    $pdo->rollBack();
    same($pdo->inTransaction(), false);
    same(value($pdo, "SELECT string_agg(word, ',') FROM $table"), 'kept');
    $pdo->exec("DROP TABLE $table");
});

scenario('PDO: savepoints', function () {
    $pdo = pdo();
    $table = table($pdo);
    $pdo->beginTransaction();
    $pdo->exec("INSERT INTO $table (word) VALUES ('one')");
    $pdo->exec('SAVEPOINT here');
    same(state_of(fn () => $pdo->exec('SELECT 1 / 0')), '22012');
    same(state_of(fn () => $pdo->exec('SELECT 1')), '25P02');
    $pdo->exec('ROLLBACK TO here');
    $pdo->exec("INSERT INTO $table (word) VALUES ('two')");
    $pdo->commit();
    same(value($pdo, "SELECT string_agg(word, ',' ORDER BY id) FROM $table"), 'one,two');
    $pdo->exec("DROP TABLE $table");
});

scenario('PDO: COPY in and out', function () {
    $pdo = pdo();
    $table = table($pdo);
    $rows = array_map(fn ($n) => "$n\tword $n\n", range(1, 1000));
    same($pdo->pgsqlCopyFromArray($table, $rows), true);
    same($pdo->pgsqlCopyToArray($table), $rows);
    same(state_of(fn () => $pdo->pgsqlCopyFromArray($table, ["two\tbad\n"])), '22P02');
    same(value($pdo, "SELECT count(*) FROM $table"), 1000);
    $pdo->exec("DROP TABLE $table");
});

scenario('PDO: notifications', function () {
    [$pdo, $other, $channel] = [pdo(), pdo(), name()];
    $pdo->exec("LISTEN $channel");
    $other->exec("NOTIFY $channel, 'hello'");
    $heard = $pdo->pgsqlGetNotify(PDO::FETCH_ASSOC, 20_000);
    same([$heard['message'], $heard['payload']], [$channel, 'hello']);
});

scenario('PDO: a cursor that scrolls', function () {
    $pdo = pdo();
    $pdo->beginTransaction();
    $statement = $pdo->prepare('SELECT generate_series(1, 100)', [PDO::ATTR_CURSOR => PDO::CURSOR_SCROLL]);
    $statement->execute();
    same($statement->fetchColumn(), 1);
    same($statement->fetch(PDO::FETCH_NUM, PDO::FETCH_ORI_ABS, 50), [50]);
    same($statement->fetch(PDO::FETCH_NUM, PDO::FETCH_ORI_PRIOR), [49]);
    same($statement->fetch(PDO::FETCH_NUM, PDO::FETCH_ORI_LAST), [100]);
    unset($statement);
    $pdo->commit();
});

scenario('PDO: a big result', function () {
    $statement = pdo()->query('SELECT n, repeat(md5(CAST(n AS text)), 10) FROM generate_series(1, 50000) n');
    [$rows, $sum] = [0, 0];
    foreach ($statement as [$n, $text]) {
        $rows++;
        $sum += $n;
        same(strlen($text), 320);
    }
    same([$rows, $sum], [50_000, 1_250_025_000]);
});

scenario('PDO: a large object', function () {
    $pdo = pdo();
    $pdo->beginTransaction();
    $oid = $pdo->pgsqlLOBCreate();
    $stream = $pdo->pgsqlLOBOpen($oid, 'w');
    fwrite($stream, str_repeat("\x00\xff", 50_000));
    fclose($stream);
    same(strlen(stream_get_contents($pdo->pgsqlLOBOpen($oid, 'r'))), 100_000);
    $pdo->pgsqlLOBUnlink($oid);
    $pdo->commit();
});

scenario('PDO: settings and temporary tables stay', function () {
    $pdo = pdo();
    $pdo->exec("SET work_mem = '5MB'");
    $pdo->exec('CREATE TEMP TABLE own (n int)');
    $others = array_map(fn () => pdo(), range(1, 4));
    for ($n = 1; $n <= 10; $n++) {
        foreach ($others as $other) {
            $other->exec("SET work_mem = '7MB'");
        }
        $pdo->prepare('INSERT INTO own VALUES (?)')->execute([$n]);
        same(value($pdo, 'SHOW work_mem'), '5MB');
    }
    same(value($pdo, 'SELECT count(*) FROM own'), 10);
});

scenario('PDO: persistent connections', function () {
    $options = [PDO::ATTR_PERSISTENT => true];
    for ($n = 0; $n < 10; $n++) {
        same(value(pdo($options), 'SELECT CAST(? AS int)', [$n]), $n);
    }
});

scenario('PDO: a login that is refused', function () {
    same(state_of(fn () => new PDO('pgsql:dbname=no_such_database')), '7');
});

scenario('pgsql: parameters', function () {
    $pg = pg();
    same(pg_fetch_row(pg_query_params($pg, 'SELECT $1::int + 1, $2::text', [1, "ü'"])), ['2', "ü'"]);
    same(pg_fetch_row(pg_query_params($pg, 'SELECT $1::text', [null])), [null]);
});

scenario('pgsql: named statements', function () {
    $all = array_map(fn () => pg(), range(1, 4));
    foreach ($all as $number => $pg) {
        pg_prepare($pg, 'same name', "SELECT $number + \$1::int") ?: throw new Exception(pg_last_error($pg));
    }
    for ($n = 0; $n < 20; $n++) {
        foreach ($all as $number => $pg) {
            same(pg_fetch_row(pg_execute($pg, 'same name', [$n])), [(string) ($number + $n)]);
        }
    }
});

scenario('pgsql: several statements in one query', function () {
    $pg = pg();
    pg_send_query($pg, "SELECT 1; SELECT 'two', 2; SELECT 1 / 0");
    $seen = [];
    while ($result = pg_get_result($pg)) {
        $seen[] = pg_result_error_field($result, PGSQL_DIAG_SQLSTATE) ?? pg_fetch_row($result);
    }
    same($seen, [['1'], ['two', '2'], '22012']);
});

scenario('pgsql: COPY in and out', function () {
    $pg = pg();
    $table = name();
    pg_query($pg, "CREATE TABLE $table (id int, word text)");
    $rows = array_map(fn ($n) => "$n\tword $n\n", range(1, 1000));
    same(pg_copy_from($pg, $table, $rows), true);
    same(pg_copy_to($pg, $table), $rows);
    pg_query($pg, "COPY $table FROM STDIN");
    pg_put_line($pg, "1\tmore\n");
    pg_put_line($pg, "\\.\n");
    same(pg_end_copy($pg), true);
    same(pg_fetch_row(pg_query($pg, "SELECT count(*) FROM $table")), ['1001']);
    pg_query($pg, "DROP TABLE $table");
});

scenario('pgsql: notifications', function () {
    [$pg, $other, $channel] = [pg(), pg(), name()];
    pg_query($pg, "LISTEN $channel");
    pg_query($other, "NOTIFY $channel, 'hello'");
    $deadline = microtime(true) + 20;
    while (!($heard = pg_get_notify($pg)) && microtime(true) < $deadline) {
        usleep(20_000);
    }
    same([$heard['message'], $heard['payload']], [$channel, 'hello']);
});

scenario('pgsql: a query is cancelled', function () {
    $pg = pg();
    pg_send_query($pg, 'SELECT pg_sleep(60)');
    usleep(300_000);
    same(pg_cancel_query($pg), true);
    while (pg_get_result($pg)) {
    }
    same(pg_fetch_row(pg_query($pg, 'SELECT 1')), ['1']);
});

scenario('pgsql: insert, select, update and delete by arrays', function () {
    $pg = pg();
    $table = name();
    pg_query($pg, "CREATE TABLE $table (id int, word text)");
    pg_insert($pg, $table, ['id' => 1, 'word' => "it's"]);
    same(pg_select($pg, $table, ['id' => 1]), [['id' => '1', 'word' => "it's"]]);
    same(pg_update($pg, $table, ['word' => 'x'], ['id' => 1]), true);
    same(pg_delete($pg, $table, ['word' => 'x']), true);
    same(pg_select($pg, $table, ['id' => 1]), []);
    pg_query($pg, "DROP TABLE $table");
});

scenario('pgsql: status, encoding and notices', function () {
    $pg = pg();
    same(pg_transaction_status($pg), PGSQL_TRANSACTION_IDLE);
    pg_query($pg, 'BEGIN');
    same(pg_transaction_status($pg), PGSQL_TRANSACTION_INTRANS);
    pg_query($pg, 'COMMIT');
    pg_set_client_encoding($pg, 'LATIN1');
    same([pg_client_encoding($pg), pg_parameter_status($pg, 'client_encoding')], ['LATIN1', 'LATIN1']);
    same(pg_fetch_row(pg_query($pg, "SELECT chr(252)")), ["\xfc"]);
    pg_query($pg, "DO $$ BEGIN RAISE NOTICE 'psst'; END $$");
    same(pg_last_notice($pg), 'NOTICE:  psst');
    same(pg_ping($pg), true);
});

echo "1..$count\n";
