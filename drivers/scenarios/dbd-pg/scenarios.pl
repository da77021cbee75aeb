# DBD::Pg over libpq: statements prepared by the server after two uses, COPY, pg_notifies, async
# queries, large objects. Where to connect to is in libpq's variables.

use strict;
use warnings;
use utf8;
use DBI qw(:sql_types);
use DBD::Pg qw(:pg_types :async);
use Test::More;

binmode $_, ':encoding(UTF-8)' for Test::More->builder->output, Test::More->builder->failure_output;
my $number = 0;

sub name { return 'perl' . $$ . '_' . $number++ }

sub connection {
    my (%more) = @_;
    return DBI->connect('dbi:Pg:', '', '', { RaiseError => 1, PrintError => 0, AutoCommit => 1, %more });
}

# One scenario, with a connection of its own. It passes if it does not die.
sub scenario {
    my ($title, $play) = @_;
    my $dbh = connection();
    my $passed = eval { $play->($dbh); 1 };
    my $why = $@;
    ok($passed, $title) or diag($why);
    eval { $dbh->rollback unless $dbh->{AutoCommit}; $dbh->disconnect };
    return;
}

sub same {
    my ($got, $wanted) = map { defined $_ ? $_ : 'undef' } @_;
    die "got $got, wanted $wanted" if $got ne $wanted;
    return;
}

sub state_of {
    my ($dbh, $work) = @_;
    my $done = eval { $work->(); 1 };
    return $done ? 'none' : $dbh->state;
}

sub table {
    my ($dbh) = @_;
    my $table = name();
    $dbh->do("CREATE TABLE $table (id serial PRIMARY KEY, word text)");
    return $table;
}

scenario 'values there and back' => sub {
    my ($dbh) = @_;
    for (['int8', '-9223372036854775808'], ['numeric', '12345678901234567890.123456789'],
        ['text', "Gr\x{fc}\x{df}e, \x{4e16}\x{754c} '\\ \""], ['text', ''], ['date', '1999-12-31'],
        ['timestamp', '2024-02-29 01:02:03.000004'], ['uuid', '12345678-9abc-def0-1234-56789abcdef0'],
        ['jsonb', '{"a": [1, null]}'], ['inet', '10.0.0.1/8'], ['interval', '1 day 02:03:04']) {
        my ($type, $value) = @$_;
        for my $round (1 .. 3) {
            same(scalar $dbh->selectrow_array("SELECT ?::$type", undef, $value), $value);
        }
    }
    same(scalar $dbh->selectrow_array('SELECT ?::text', undef, undef), undef);
};

scenario 'arrays' => sub {
    my ($dbh) = @_;
    my ($got) = $dbh->selectrow_array('SELECT ?::int[]', undef, [1, 2, undef]);
    same(join(',', map { $_ // 'null' } @$got), '1,2,null');
};

scenario 'bytes' => sub {
    my ($dbh) = @_;
    my $bytes = join '', map { chr } 0 .. 255;
    my $sth = $dbh->prepare('SELECT ?::bytea, length(?::bytea)');
    $sth->bind_param($_, $bytes, { pg_type => PG_BYTEA }) for 1, 2;
    $sth->execute;
    my ($got, $length) = $sth->fetchrow_array;
    same($length, 256);
    same($got eq $bytes, 1);
};

scenario 'placeholders of three kinds' => sub {
    my ($dbh) = @_;
    same(scalar $dbh->selectrow_array('SELECT ?::int + ?::int', undef, 1, 2), 3);
    same(scalar $dbh->selectrow_array('SELECT $2::int - $1::int', undef, 1, 5), 4);
    my $sth = $dbh->prepare('SELECT :a::int * :b::int');
    $sth->bind_param(':a', 6);
    $sth->bind_param(':b', 7);
    $sth->execute;
    same(scalar $sth->fetchrow_array, 42);
};

for my $prepare (0, 1, 2) {
    scenario "a statement many times, pg_server_prepare = $prepare" => sub {
        my ($dbh) = @_;
        my $table = table($dbh);
        $dbh->{pg_server_prepare} = $prepare if $prepare < 2;
        $dbh->{pg_switch_prepared} = 1;
        my $sth = $dbh->prepare("INSERT INTO $table (word) VALUES (?)");
        $sth->execute("word $_") for 1 .. 50;
        same($dbh->selectrow_array("SELECT count(*) FROM $table"), 50);
        my $find = $dbh->prepare("SELECT word FROM $table WHERE id = ?");
        for my $id (1 .. 50) {
            $find->execute($id);
            same(scalar $find->fetchrow_array, "word $id");
        }
        $dbh->do("DROP TABLE $table");
    };
}

scenario 'statements of several connections' => sub {
    my @all = map { my $dbh = connection(); [$dbh, $dbh->prepare('SELECT ?::int + ' . $_)] } 1 .. 6;
    for my $round (1 .. 20) {
        for my $number (1 .. 6) {
            my $sth = $all[$number - 1][1];
            $sth->execute($round);
            same(scalar $sth->fetchrow_array, $round + $number);
        }
    }
    $_->[0]->disconnect for @all;
};

scenario 'execute_array' => sub {
    my ($dbh) = @_;
    my $table = table($dbh);
    my $sth = $dbh->prepare("INSERT INTO $table (id, word) VALUES (?, ?)");
    same($sth->execute_array({}, [1 .. 20], [map { "w$_" } 1 .. 20]), 20);
    same($dbh->selectrow_array("SELECT string_agg(word, '' ORDER BY id) FROM $table WHERE id < 4"), 'w1w2w3');
    $dbh->do("DROP TABLE $table");
};

scenario 'commit and rollback' => sub {
    my ($dbh) = @_;
    my $table = table($dbh);
    $dbh->begin_work;
    $dbh->do("INSERT INTO $table (word) VALUES ('kept')");
    $dbh->commit;
    $dbh->begin_work;
    $dbh->do("INSERT INTO $table (word) VALUES ('lost')");
    same($dbh->ping, 3);
    $dbh->rollback;
    same($dbh->ping, 1);
    same($dbh->selectrow_array("SELECT string_agg(word, ',') FROM $table"), 'kept');
    $dbh->do("DROP TABLE $table");
};

scenario 'without autocommit' => sub {
    my $dbh = connection(AutoCommit => 0);
    my $table = table($dbh);
    $dbh->commit;
    $dbh->do("INSERT INTO $table (word) VALUES (?)", undef, $_) for 'a', 'b';
    $dbh->rollback;
    same($dbh->selectrow_array("SELECT count(*) FROM $table"), 0);
    $dbh->do("DROP TABLE $table");
    $dbh->commit;
    $dbh->disconnect;
};

scenario 'savepoints' => sub {
    my ($dbh) = @_;
    my $table = table($dbh);
    $dbh->begin_work;
    $dbh->do("INSERT INTO $table (word) VALUES ('one')");
    $dbh->pg_savepoint('here');
    same(state_of($dbh, sub { $dbh->do('SELECT 1 / 0') }), '22012');
    same(state_of($dbh, sub { $dbh->do('SELECT 1') }), '25P02');
    same($dbh->ping, 4);
    $dbh->pg_rollback_to('here');
    $dbh->do("INSERT INTO $table (word) VALUES ('two')");
    $dbh->pg_release('here');
    $dbh->commit;
    same($dbh->selectrow_array("SELECT string_agg(word, ',' ORDER BY id) FROM $table"), 'one,two');
    $dbh->do("DROP TABLE $table");
};

scenario 'last_insert_id' => sub {
    my ($dbh) = @_;
    my $table = table($dbh);
    for my $id (1 .. 10) {
        $dbh->do("INSERT INTO $table (word) VALUES (?)", undef, 'w');
        same($dbh->last_insert_id(undef, undef, $table, undef), $id);
        same($dbh->last_insert_id(undef, undef, undef, undef, { sequence => "${table}_id_seq" }), $id);
    }
    $dbh->do("DROP TABLE $table");
};

scenario 'last_insert_id of two clients in turn' => sub {
    my ($dbh) = @_;
    my ($other, $table) = (connection(), table($dbh));
    for my $round (1 .. 10) {
        $dbh->do("INSERT INTO $table (word) VALUES ('a')");
        my $mine = $dbh->last_insert_id(undef, undef, $table, undef);
        $other->do("INSERT INTO $table (word) VALUES ('b')");
        my $theirs = $other->last_insert_id(undef, undef, $table, undef);
        same($mine, 2 * $round - 1);
        same($theirs, 2 * $round);
    }
    $other->disconnect;
    $dbh->do("DROP TABLE $table");
};

scenario 'COPY in and out' => sub {
    my ($dbh) = @_;
    my $table = table($dbh);
    $dbh->do("COPY $table FROM STDIN");
    $dbh->pg_putcopydata("$_\tword $_\n") for 1 .. 1000;
    $dbh->pg_putcopyend;
    same($dbh->selectrow_array("SELECT count(*) FROM $table"), 1000);
    $dbh->do("COPY (SELECT * FROM $table ORDER BY id) TO STDOUT");
    my ($row, @rows) = ('');
    push @rows, $row while $dbh->pg_getcopydata($row) >= 0;
    same(scalar @rows, 1000);
    same($rows[9], "10\tword 10\n");
    same($dbh->selectrow_array('SELECT 1'), 1);
    $dbh->do("DROP TABLE $table");
};

scenario 'COPY that is refused' => sub {
    my ($dbh) = @_;
    my $table = table($dbh);
    $dbh->do("COPY $table FROM STDIN");
    $dbh->pg_putcopydata("1\tgood\n");
    $dbh->pg_putcopydata("two\tbad\n");
    same(state_of($dbh, sub { $dbh->pg_putcopyend }), '22P02');
    same($dbh->selectrow_array("SELECT count(*) FROM $table"), 0);
    $dbh->do("DROP TABLE $table");
};

scenario 'notifications' => sub {
    my ($dbh) = @_;
    my ($other, $channel) = (connection(), name());
    $dbh->do("LISTEN $channel");
    $other->do("NOTIFY $channel, 'hello'");
    my ($heard, $deadline) = (undef, time + 20);
    while (!($heard = $dbh->pg_notifies) && time < $deadline) { select undef, undef, undef, 0.02 }
    same($heard->[0], $channel);
    same($heard->[2], 'hello');
    $dbh->do("UNLISTEN $channel");
    $other->disconnect;
};

scenario 'errors' => sub {
    my ($dbh) = @_;
    my $table = table($dbh);
    $dbh->do("INSERT INTO $table VALUES (1, 'a')");
    same(state_of($dbh, sub { $dbh->do("INSERT INTO $table VALUES (1, 'b')") }), '23505');
    same($dbh->pg_error_field('table'), $table);
    same($dbh->pg_error_field('constraint'), "${table}_pkey");
    same(state_of($dbh, sub { $dbh->do('SELECT nothing') }), '42703');
    same(state_of($dbh, sub { $dbh->selectrow_array('SELECT ?::int', undef, 'x') }), '22P02');
    same(state_of($dbh, sub { $dbh->do('SELEC') }), '42601');
    same($dbh->selectrow_array('SELECT 1'), 1);
    $dbh->do("DROP TABLE $table");
};

scenario 'notices' => sub {
    my ($dbh) = @_;
    my @said;
    local $SIG{__WARN__} = sub { push @said, @_ };
    $dbh->do(q{DO $$ BEGIN RAISE NOTICE 'psst'; END $$});
    die "said: @said" unless grep { /psst/ } @said;
};

scenario 'a big result' => sub {
    my ($dbh) = @_;
    my $sth = $dbh->prepare(q{SELECT n, repeat(md5(n::text), 10) FROM generate_series(1, 50000) n});
    $sth->execute;
    my ($rows, $sum) = (0, 0);
    while (my ($n, $text) = $sth->fetchrow_array) { $rows++; $sum += $n; same(length $text, 320) }
    same("$rows $sum", '50000 1250025000');
};

scenario 'a cursor' => sub {
    my ($dbh) = @_;
    $dbh->begin_work;
    $dbh->do('DECLARE c CURSOR FOR SELECT generate_series(1, 1000)');
    my $rows = 0;
    while (my $some = $dbh->selectcol_arrayref('FETCH 64 FROM c')) { last unless @$some; $rows += @$some }
    $dbh->commit;
    same($rows, 1000);
};

scenario 'settings and temporary tables stay' => sub {
    my ($dbh) = @_;
    $dbh->do(q{SET work_mem = '5MB'});
    $dbh->do('CREATE TEMP TABLE own (n int)');
    my @others = map { connection() } 1 .. 4;
    for my $round (1 .. 10) {
        $_->do("SET work_mem = '7MB'") for @others;
        $dbh->do('INSERT INTO own VALUES (?)', undef, $round);
        same($dbh->selectrow_array('SHOW work_mem'), '5MB');
    }
    same($dbh->selectrow_array('SELECT count(*) FROM own'), 10);
    $_->disconnect for @others;
};

scenario 'an asynchronous query' => sub {
    my ($dbh) = @_;
    $dbh->do('SELECT pg_sleep(0.1)', { pg_async => PG_ASYNC });
    same($dbh->pg_result, 1);
    same($dbh->selectrow_array('SELECT 2'), 2);
};

scenario 'a query is cancelled' => sub {
    my ($dbh) = @_;
    my $begin = time;
    $dbh->do('SELECT pg_sleep(60)', { pg_async => PG_ASYNC });
    select undef, undef, undef, 0.3;
    $dbh->pg_cancel;
    die 'too late' if time - $begin > 20;
    same($dbh->selectrow_array('SELECT 1'), 1);
};

scenario 'statement_timeout' => sub {
    my ($dbh) = @_;
    $dbh->do('SET statement_timeout = 100');
    same(state_of($dbh, sub { $dbh->do('SELECT pg_sleep(60)') }), '57014');
};

scenario 'a large object' => sub {
    my ($dbh) = @_;
    $dbh->begin_work;
    my $oid = $dbh->pg_lo_creat($dbh->{pg_INV_WRITE} | $dbh->{pg_INV_READ});
    my $fd = $dbh->pg_lo_open($oid, $dbh->{pg_INV_WRITE});
    my $bytes = join '', map { chr($_ % 256) } 1 .. 100_000;
    same($dbh->pg_lo_write($fd, $bytes, length $bytes), 100_000);
    $dbh->pg_lo_close($fd);
    $fd = $dbh->pg_lo_open($oid, $dbh->{pg_INV_READ});
    my $got = '';
    $dbh->pg_lo_read($fd, $got, 100_000);
    same($got eq $bytes, 1);
    $dbh->pg_lo_close($fd);
    $dbh->pg_lo_unlink($oid);
    $dbh->commit;
};

scenario 'columns and tables are described' => sub {
    my ($dbh) = @_;
    my $table = table($dbh);
    my $sth = $dbh->prepare("SELECT id, word, 1.5::numeric(5,2) AS price FROM $table");
    $sth->execute;
    same(join(',', @{ $sth->{NAME} }), 'id,word,price');
    same(join(',', @{ $sth->{pg_type} }), 'int4,text,numeric');
    same(join(',', $dbh->primary_key(undef, undef, $table)), 'id');
    my $columns = $dbh->column_info(undef, undef, $table, '%')->fetchall_arrayref({});
    same(join(',', map { $_->{COLUMN_NAME} } @$columns), 'id,word');
    $dbh->do("DROP TABLE $table");
};

scenario 'a login that is refused' => sub {
    my $dbh = eval { DBI->connect('dbi:Pg:dbname=no_such_database', '', '', { RaiseError => 1, PrintError => 0 }) };
    die 'it is let in' if $dbh;
    die "said: $@" unless $@ =~ /no_such_database/;
};

done_testing();
