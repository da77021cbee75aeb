<?php
// One session of the load: connects, runs three kinds of queries some times, and leaves. Prints the
// microseconds until it was connected, those of the whole session, and a digest of all answers.

$began = hrtime(true);
$connect = $_GET['arm'] === 'persistent' ? 'pg_pconnect' : 'pg_connect';
$database = $connect(
    "host=127.0.0.1 port={$_GET['port']} dbname=bsu user={$_GET['user']} password={$_GET['user']}" .
    " application_name={$_GET['arm']}"
);
if (!$database) {
    http_response_code(500);
    exit('no connection');
}
$connected = hrtime(true);

function ask(string $sql, array $values): string
{
    global $database;
    $result = pg_query_params($database, $sql, $values);
    if (!$result) {
        http_response_code(500);
        exit('no result: ' . pg_last_error($database));
    }
    return json_encode(pg_fetch_all($result));
}

$answers = hash_init('sha256');
for ($loop = 0; $loop < $_GET['loops']; $loop++) {
    // Simple: rows by their keys.
    for ($at = 0; $at < 5; $at++) {
        $key = 'i' . ($loop * 5 + $at) . '-' . $at;
        hash_update($answers, ask('SELECT i_title, i_cost FROM item WHERE i_mykey = $1', [$key]));
    }
    // Medium: the orders of one customer.
    $sql = 'SELECT c_uname, i_title, a_lname, o_total FROM customer
            JOIN orders ON o_c_mykey = c_mykey JOIN item ON i_mykey = o_i_mykey
            JOIN author ON a_mykey = i_a_mykey WHERE c_mykey = $1 ORDER BY o_total';
    hash_update($answers, ask($sql, ["c$loop-1"]));
    // Complex: the turnover of each street and author.
    $sql = 'SELECT addr_street1, a_lname, count(*), sum(o_total), max(i_cost) FROM orders
            JOIN address ON addr_mykey = o_addr_mykey JOIN item ON i_mykey = o_i_mykey
            JOIN author ON a_mykey = i_a_mykey WHERE o_total > $1
            GROUP BY addr_street1, a_lname ORDER BY sum(o_total) DESC, a_lname, addr_street1';
    hash_update($answers, ask($sql, [$loop]));
}
pg_close($database);
printf(
    '%d %d %s',
    ($connected - $began) / 1000,
    (hrtime(true) - $began) / 1000,
    hash_final($answers)
);
