import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.r2dbc.postgresql.PostgresqlConnectionConfiguration;
import io.r2dbc.postgresql.PostgresqlConnectionFactory;
import io.r2dbc.postgresql.api.PostgresTransactionDefinition;
import io.r2dbc.postgresql.api.PostgresqlConnection;
import io.r2dbc.postgresql.api.PostgresqlStatement;
import io.r2dbc.postgresql.client.SSLMode;
import io.r2dbc.postgresql.codec.Json;
import io.r2dbc.spi.Blob;
import io.r2dbc.spi.Clob;
import io.r2dbc.spi.IsolationLevel;
import io.r2dbc.spi.Parameters;
import io.r2dbc.spi.R2dbcException;
import io.r2dbc.spi.R2dbcType;
import io.r2dbc.spi.ValidationDepth;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** r2dbc-postgresql: statements, portals with a fetch size, batches, transactions, COPY, LISTEN. */
final class Scenarios {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static int names = 0;
    private static final List<PostgresqlConnection> opened = new ArrayList<>();

    private interface Scenario {
        void play() throws Exception;
    }

    public static void main(String[] args) {
        Map<String, Scenario> all = new LinkedHashMap<>();
        all.put("statements-without-parameters", Scenarios::plain);
        all.put("statements-from-the-cache", Scenarios::cached);
        all.put("statements-without-a-cache", () -> uncached(0));
        all.put("a-cache-of-two-statements", () -> uncached(2));
        all.put("the-same-names-on-many-connections", Scenarios::sameNames);
        all.put("values-there-and-back", () -> values(false));
        all.put("values-in-binary", () -> values(true));
        all.put("bound-many-times", Scenarios::boundManyTimes);
        all.put("one-of-many-fails", Scenarios::oneOfManyFails);
        all.put("batch", Scenarios::batch);
        all.put("several-statements-in-one-text", Scenarios::severalInOneText);
        all.put("fetch-size", Scenarios::fetchSize);
        all.put("fetch-size-and-cancelled", Scenarios::fetchSizeCancelled);
        all.put("cancelled-without-a-fetch-size", Scenarios::takeFew);
        all.put("queued-on-one-connection", Scenarios::queued);
        all.put("queued-with-errors", Scenarios::queuedWithErrors);
        all.put("commit-and-rollback", Scenarios::commitAndRollback);
        all.put("failed-transaction", Scenarios::failedTransaction);
        all.put("savepoints", Scenarios::savepoints);
        all.put("isolation-of-a-transaction", Scenarios::isolation);
        all.put("isolation-of-the-connection", Scenarios::isolationOfConnection);
        all.put("transaction-definition", Scenarios::definition);
        all.put("auto-commit-off", Scenarios::autoCommitOff);
        all.put("statement-timeout", Scenarios::statementTimeout);
        all.put("lock-timeout", Scenarios::lockTimeout);
        all.put("cancel-request", Scenarios::cancels);
        all.put("disposed-while-it-runs", Scenarios::disposed);
        all.put("copy-in", Scenarios::copyIn);
        all.put("copy-in-refused", Scenarios::copyInRefused);
        all.put("clob-and-blob", Scenarios::lobs);
        all.put("notifications", Scenarios::notifications);
        all.put("errors", Scenarios::errors);
        all.put("generated-values", Scenarios::generated);
        all.put("changed-table", Scenarios::changedTable);
        all.put("settings-of-the-login", Scenarios::settings);
        all.put("settings-stay", Scenarios::settingsStay);
        all.put("temporary-table", Scenarios::temporary);
        all.put("validate", Scenarios::validate);
        all.put("large-result", Scenarios::largeResult);
        all.put("large-parameter", Scenarios::largeParameter);
        all.put("many-at-a-time", Scenarios::manyAtATime);
        all.put("unknown-database", Scenarios::unknownDatabase);
        all.forEach(Scenarios::tell);
        System.exit(0);
    }

    private static void tell(String name, Scenario scenario) {
        try {
            scenario.play();
            System.out.println("passed " + name);
        } catch (Throwable error) {
            System.out.println("failed " + name + ": " + String.valueOf(error).replace('\n', ' '));
        } finally {
            opened.forEach(one -> one.close().onErrorComplete().block(PATIENCE));
            opened.clear();
        }
    }

    private static PostgresqlConnectionConfiguration.Builder address() {
        return PostgresqlConnectionConfiguration.builder()
                .host(System.getenv("PGHOST"))
                .port(Integer.parseInt(System.getenv("PGPORT")))
                .username(System.getenv("PGUSER"))
                .database(System.getenv("PGDATABASE"))
                .sslMode(SSLMode.DISABLE);
    }

    private static PostgresqlConnection connect(PostgresqlConnectionConfiguration.Builder address) {
        PostgresqlConnection one =
                new PostgresqlConnectionFactory(address.build()).create().block(PATIENCE);
        opened.add(one);
        return one;
    }

    private static PostgresqlConnection connect() {
        return connect(address());
    }

    private static PostgresqlStatement statement(PostgresqlConnection on, String sql, Object... values) {
        PostgresqlStatement statement = on.createStatement(sql);
        for (int at = 0; at < values.length; at++) {
            statement.bind(at, values[at]);
        }
        return statement;
    }

    /** The first column of all rows. */
    private static Flux<Object> rows(PostgresqlStatement statement) {
        return statement.execute().flatMap(result -> result.map((row, meta) -> row.get(0)));
    }

    private static List<Object> ask(PostgresqlConnection on, String sql, Object... values) {
        return rows(statement(on, sql, values)).collectList().block(PATIENCE);
    }

    private static Object one(PostgresqlConnection on, String sql, Object... values) {
        return ask(on, sql, values).get(0);
    }

    private static long run(PostgresqlConnection on, String sql, Object... values) {
        return statement(on, sql, values).execute()
                .flatMap(result -> result.getRowsUpdated()).reduce(0L, Long::sum).block(PATIENCE);
    }

    /** The SQLSTATE of an error, or "none". */
    private static String stateOf(Scenario play) throws Exception {
        try {
            play.play();
            return "none";
        } catch (R2dbcException error) {
            return error.getSqlState();
        }
    }

    private static void same(Object got, Object wanted) {
        if (!Objects.deepEquals(got, wanted)) {
            throw new AssertionError("got " + got + ", wanted " + wanted);
        }
    }

    private static String name() {
        return "r" + ProcessHandle.current().pid() + "_" + names++;
    }

    private static String table(PostgresqlConnection on) {
        String table = name();
        run(on, "CREATE TABLE " + table + " (id serial PRIMARY KEY, word text UNIQUE)");
        return table;
    }

    private static void plain() {
        PostgresqlConnection one = connect();
        for (int number = 0; number < 20; number++) {
            same(one(one, "SELECT " + number), number);
        }
    }

    private static void cached() {
        PostgresqlConnection one = connect();
        for (int number = 0; number < 30; number++) {
            same(one(one, "SELECT $1 + 1", number), number + 1);
            same(one(one, "SELECT $1 || 'x'", "n" + number), "n" + number + "x");
        }
    }

    private static void uncached(int size) {
        PostgresqlConnection one = connect(address().preparedStatementCacheQueries(size));
        for (int number = 0; number < 30; number++) {
            for (int text = 0; text < 5; text++) {
                same(one(one, "SELECT $1 + " + text, number), number + text);
            }
        }
    }

    private static void sameNames() {
        List<PostgresqlConnection> all =
                IntStream.range(0, 6).mapToObj(at -> connect()).collect(Collectors.toList());
        for (int number = 0; number < 20; number++) {
            for (int at = 0; at < all.size(); at++) {
                same(one(all.get(at), "SELECT $1 * " + at, number), number * at);
            }
        }
    }

    private static void values(boolean binary) {
        PostgresqlConnection one = connect(address().forceBinary(binary));
        Map<String, Object> all = new LinkedHashMap<>();
        all.put("int2", (short) -7);
        all.put("int8", Long.MIN_VALUE);
        all.put("float8", 1.5);
        all.put("numeric", new BigDecimal("12345678901234567890.123456789"));
        all.put("text", "Grüße, 世界 '\\\"");
        all.put("bool", true);
        all.put("uuid", new UUID(1, 2));
        all.put("date", LocalDate.of(1999, 12, 31));
        all.put("timestamp", LocalDateTime.of(2024, 2, 29, 1, 2, 3, 4000));
        for (int turn = 0; turn < 3; turn++) {
            all.forEach((type, value) -> same(one(one, "SELECT $1::" + type, value), value));
            same(one(one, "SELECT $1::int4[]", (Object) new Integer[] {1, 2}), new Integer[] {1, 2});
            same(((Json) rowAs(one, "SELECT $1::jsonb", Json.of("{\"a\": [1, null]}"))).asString(),
                    "{\"a\": [1, null]}");
            same(one(one, "SELECT $1::text IS NULL",
                    Parameters.in(R2dbcType.VARCHAR)), true);
        }
    }

    private static Object rowAs(PostgresqlConnection on, String sql, Object value) {
        return statement(on, sql, value).execute()
                .flatMap(result -> result.map((row, meta) -> row.get(0, Json.class))).blockFirst(PATIENCE);
    }

    private static void boundManyTimes() {
        PostgresqlConnection one = connect();
        String table = table(one);
        PostgresqlStatement insert =
                one.createStatement("INSERT INTO " + table + " (word) VALUES ($1)");
        for (int number = 0; number < 200; number++) {
            insert.bind(0, "w" + number);
            if (number < 199) {
                insert.add();
            }
        }
        same(insert.execute().flatMap(result -> result.getRowsUpdated()).reduce(0L, Long::sum)
                .block(PATIENCE), 200L);
        same(one(one, "SELECT count(*) FROM " + table), 200L);
        run(one, "DROP TABLE " + table);
    }

    private static void oneOfManyFails() throws Exception {
        PostgresqlConnection one = connect();
        String table = table(one);
        PostgresqlStatement insert =
                one.createStatement("INSERT INTO " + table + " (word) VALUES ($1)");
        insert.bind(0, "a").add().bind(0, "b").add().bind(0, "a").add().bind(0, "c");
        same(stateOf(() -> insert.execute().flatMap(result -> result.getRowsUpdated())
                .collectList().block(PATIENCE)), "23505");
        same(one(one, "SELECT 1"), 1);
        run(one, "DROP TABLE " + table);
    }

    private static void batch() {
        PostgresqlConnection one = connect();
        for (int turn = 0; turn < 5; turn++) {
            List<Object> seen = one.createBatch().add("SELECT 1").add("SELECT 2").add("SELECT 3")
                    .execute().concatMap(result -> result.map((row, meta) -> row.get(0)))
                    .collectList().block(PATIENCE);
            same(seen, List.of(1, 2, 3));
        }
    }

    private static void severalInOneText() throws Exception {
        PostgresqlConnection one = connect();
        List<Object> seen = one.createStatement("SELECT 1; SELECT 2").execute()
                .concatMap(result -> result.map((row, meta) -> row.get(0))).collectList().block(PATIENCE);
        same(seen, List.of(1, 2));
        same(stateOf(() -> ask(one, "SELECT 1; SELECT nothing; SELECT 3")), "42703");
        same(one(one, "SELECT 4"), 4);
    }

    private static void fetchSize() {
        PostgresqlConnection one = connect();
        for (int size : new int[] {1, 7, 100, 1000}) {
            PostgresqlStatement many =
                    statement(one, "SELECT generate_series(1, $1)", 500).fetchSize(size);
            same(rows(many).count().block(PATIENCE), 500L);
            PostgresqlStatement plain = statement(one, "SELECT generate_series(1, 50)").fetchSize(size);
            same(rows(plain).count().block(PATIENCE), 50L);
        }
    }

    private static void fetchSizeCancelled() {
        PostgresqlConnection one = connect();
        for (int turn = 0; turn < 10; turn++) {
            PostgresqlStatement many =
                    statement(one, "SELECT generate_series(1, $1)", 100000).fetchSize(10);
            same(rows(many).take(25).count().block(PATIENCE), 25L);
            same(one(one, "SELECT $1 + 1", turn), turn + 1);
        }
    }

    private static void takeFew() {
        PostgresqlConnection one = connect();
        for (int turn = 0; turn < 10; turn++) {
            same(rows(statement(one, "SELECT generate_series(1, $1)", 5000)).take(3).count()
                    .block(PATIENCE), 3L);
            same(rows(statement(one, "SELECT generate_series(1, 5000)")).take(3).count()
                    .block(PATIENCE), 3L);
            same(one(one, "SELECT $1 + 1", turn), turn + 1);
        }
    }

    private static void queued() {
        PostgresqlConnection one = connect();
        for (int turn = 0; turn < 5; turn++) {
            List<Object> seen = Flux.range(0, 50)
                    .flatMapSequential(number -> rows(number % 2 == 0
                            ? statement(one, "SELECT $1 + 1", number)
                            : statement(one, "SELECT " + (number + 1))), 50)
                    .collectList().block(PATIENCE);
            same(seen, IntStream.rangeClosed(1, 50).boxed().collect(Collectors.toList()));
        }
    }

    private static void queuedWithErrors() {
        PostgresqlConnection one = connect();
        for (int turn = 0; turn < 5; turn++) {
            List<Object> seen = Flux.range(0, 40)
                    .flatMapSequential(number -> rows(statement(one, "SELECT 60 / $1", number % 4))
                            .onErrorReturn(-1), 40)
                    .collectList().block(PATIENCE);
            for (int number = 0; number < 40; number++) {
                same(seen.get(number), number % 4 == 0 ? -1 : 60 / (number % 4));
            }
        }
    }

    private static void commitAndRollback() {
        PostgresqlConnection one = connect();
        PostgresqlConnection other = connect();
        String table = table(one);
        one.beginTransaction().block(PATIENCE);
        run(one, "INSERT INTO " + table + " (word) VALUES ($1)", "kept");
        same(one(other, "SELECT count(*) FROM " + table), 0L);
        one.commitTransaction().block(PATIENCE);
        one.beginTransaction().block(PATIENCE);
        run(one, "INSERT INTO " + table + " (word) VALUES ($1)", "lost");
        one.rollbackTransaction().block(PATIENCE);
        same(ask(other, "SELECT word FROM " + table), List.of("kept"));
        run(one, "DROP TABLE " + table);
    }

    private static void failedTransaction() throws Exception {
        PostgresqlConnection one = connect();
        for (int turn = 0; turn < 5; turn++) {
            one.beginTransaction().block(PATIENCE);
            same(stateOf(() -> one(one, "SELECT 1 / $1", 0)), "22012");
            same(stateOf(() -> one(one, "SELECT $1 + 1", 1)), "25P02");
            one.rollbackTransaction().block(PATIENCE);
            same(one(one, "SELECT $1 + 1", 1), 2);
        }
    }

    private static void savepoints() throws Exception {
        PostgresqlConnection one = connect();
        String table = table(one);
        one.beginTransaction().block(PATIENCE);
        run(one, "INSERT INTO " + table + " (word) VALUES ($1)", "one");
        one.createSavepoint("here").block(PATIENCE);
        same(stateOf(() -> run(one, "INSERT INTO " + table + " (word) VALUES ($1)", "one")), "23505");
        one.rollbackTransactionToSavepoint("here").block(PATIENCE);
        run(one, "INSERT INTO " + table + " (word) VALUES ($1)", "two");
        one.releaseSavepoint("here").block(PATIENCE);
        one.commitTransaction().block(PATIENCE);
        same(ask(one, "SELECT word FROM " + table + " ORDER BY id"), List.of("one", "two"));
        run(one, "DROP TABLE " + table);
    }

    private static void isolation() {
        PostgresqlConnection one = connect();
        for (IsolationLevel level :
                List.of(IsolationLevel.SERIALIZABLE, IsolationLevel.REPEATABLE_READ)) {
            one.beginTransaction(level).block(PATIENCE);
            same(one(one, "SHOW transaction_isolation"), level.asSql().toLowerCase());
            one.commitTransaction().block(PATIENCE);
            same(one(one, "SHOW transaction_isolation"), "read committed");
        }
    }

    private static void isolationOfConnection() {
        PostgresqlConnection one = connect();
        one.setTransactionIsolationLevel(IsolationLevel.SERIALIZABLE).block(PATIENCE);
        for (int turn = 0; turn < 10; turn++) {
            same(one(one, "SHOW transaction_isolation"), "serializable");
            same(one(connect(), "SHOW transaction_isolation"), "read committed");
        }
    }

    private static void definition() throws Exception {
        PostgresqlConnection one = connect();
        one.beginTransaction(PostgresTransactionDefinition.from(IsolationLevel.SERIALIZABLE)
                .readOnly().deferrable()).block(PATIENCE);
        same(one(one, "SHOW transaction_read_only"), "on");
        same(one(one, "SHOW transaction_deferrable"), "on");
        same(stateOf(() -> run(one, "CREATE TABLE " + name() + " (n int)")), "25006");
        one.rollbackTransaction().block(PATIENCE);
        same(one(one, "SHOW transaction_read_only"), "off");
    }

    private static void autoCommitOff() {
        PostgresqlConnection one = connect();
        String table = table(one);
        one.setAutoCommit(false).block(PATIENCE);
        run(one, "INSERT INTO " + table + " (word) VALUES ($1)", "a");
        one.rollbackTransaction().block(PATIENCE);
        one.setAutoCommit(true).block(PATIENCE);
        same(one(one, "SELECT count(*) FROM " + table), 0L);
        run(one, "DROP TABLE " + table);
    }

    private static void statementTimeout() throws Exception {
        PostgresqlConnection one = connect();
        one.setStatementTimeout(Duration.ofMillis(200)).block(PATIENCE);
        for (int turn = 0; turn < 3; turn++) {
            same(stateOf(() -> ask(one, "SELECT pg_sleep($1)", 600)), "57014");
        }
        same(one(connect(), "SHOW statement_timeout"), "0");
    }

    private static void lockTimeout() throws Exception {
        PostgresqlConnection one = connect();
        PostgresqlConnection other = connect();
        String table = table(one);
        one.beginTransaction().block(PATIENCE);
        run(one, "LOCK TABLE " + table);
        other.setLockWaitTimeout(Duration.ofMillis(200)).block(PATIENCE);
        same(stateOf(() -> ask(other, "SELECT count(*) FROM " + table)), "55P03");
        one.rollbackTransaction().block(PATIENCE);
        same(one(other, "SELECT count(*) FROM " + table), 0L);
        run(one, "DROP TABLE " + table);
    }

    private static void awaitRunning(String marker, boolean wanted) throws InterruptedException {
        PostgresqlConnection watcher = connect();
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!one(watcher, "SELECT count(*) > 0 FROM pg_stat_activity WHERE state = 'active'"
                + " AND pid <> pg_backend_pid() AND position($1 in query) > 0", marker).equals(wanted)) {
            same(System.nanoTime() < deadline, true);
            Thread.sleep(20);
        }
    }

    private static void cancels() throws Exception {
        PostgresqlConnection one = connect();
        for (int turn = 0; turn < 3; turn++) {
            String marker = name();
            BlockingQueue<String> end = new LinkedBlockingQueue<>();
            rows(statement(one, "SELECT pg_sleep(600) /* " + marker + " */")).subscribe(
                    row -> { }, error -> end.add(((R2dbcException) error).getSqlState()),
                    () -> end.add("none"));
            awaitRunning(marker, true);
            one.cancelRequest().block(PATIENCE);
            same(end.poll(PATIENCE.toSeconds(), TimeUnit.SECONDS), "57014");
            same(one(one, "SELECT $1 + 1", turn), turn + 1);
        }
    }

    /** The subscriber has gone before the first row. The connection is used again. */
    private static void disposed() {
        PostgresqlConnection one = connect();
        for (int turn = 0; turn < 5; turn++) {
            rows(statement(one, "SELECT pg_sleep(0.1)")).timeout(Duration.ofMillis(20))
                    .onErrorComplete().blockLast(PATIENCE);
            same(one(one, "SELECT $1 + 1", turn), turn + 1);
        }
    }

    private static ByteBuf bytes(String text) {
        return Unpooled.copiedBuffer(text, StandardCharsets.UTF_8);
    }

    private static void copyIn() {
        PostgresqlConnection one = connect();
        String table = table(one);
        for (int turn = 0; turn < 3; turn++) {
            int from = turn * 1000;
            same(one.copyIn("COPY " + table + " FROM STDIN", Flux.range(from, 1000)
                    .map(number -> bytes(number + "\tword " + number + "\n"))).block(PATIENCE), 1000L);
        }
        same(one(one, "SELECT count(*) FROM " + table), 3000L);
        run(one, "DROP TABLE " + table);
    }

    private static void copyInRefused() throws Exception {
        PostgresqlConnection one = connect();
        String table = table(one);
        for (int turn = 0; turn < 3; turn++) {
            same(stateOf(() -> one.copyIn("COPY " + table + " FROM STDIN",
                    Flux.just(bytes("1\ta\n"), bytes("1\tb\n"), bytes("2\tc\n"))).block(PATIENCE)), "23505");
            same(one(one, "SELECT count(*) FROM " + table), 0L);
        }
        run(one, "DROP TABLE " + table);
    }

    private static void lobs() {
        PostgresqlConnection one = connect();
        String text = "word ".repeat(50_000);
        Clob clob = Clob.from(Flux.just(text.substring(0, 1000), text.substring(1000)));
        same(one(one, "SELECT length($1::text)", clob), text.length());
        Blob blob = Blob.from(Flux.just(ByteBuffer.wrap(new byte[70_000]), ByteBuffer.wrap(new byte[] {1})));
        same(one(one, "SELECT length($1::bytea)", blob), 70_001);
        String back = Flux.from(statement(one, "SELECT repeat('word ', 50000)").execute())
                .flatMap(result -> result.map((row, meta) -> row.get(0, Clob.class)))
                .flatMap(Clob::stream).reduce("", (left, right) -> left + right).block(PATIENCE);
        same(back, text);
    }

    private static void notifications() throws Exception {
        PostgresqlConnection one = connect();
        PostgresqlConnection other = connect();
        String channel = name();
        BlockingQueue<String> heard = new LinkedBlockingQueue<>();
        one.getNotifications().subscribe(found -> heard.add(found.getName() + " " + found.getParameter()));
        run(one, "LISTEN " + channel);
        for (int turn = 0; turn < 5; turn++) {
            run(other, "NOTIFY " + channel + ", 'hello " + turn + "'");
            same(heard.poll(20, TimeUnit.SECONDS), channel + " hello " + turn);
        }
        run(one, "UNLISTEN " + channel);
    }

    private static void errors() throws Exception {
        PostgresqlConnection one = connect();
        same(stateOf(() -> one(one, "SELECT nothing")), "42703");
        same(stateOf(() -> one(one, "SELECT $1::int", "x")), "22P02");
        same(stateOf(() -> one(one, "SELEKT")), "42601");
        same(one(one, "SELECT $1 + 1", 1), 2);
    }

    private static void generated() {
        PostgresqlConnection one = connect();
        String table = table(one);
        for (int turn = 1; turn <= 5; turn++) {
            Object id = rows(statement(one, "INSERT INTO " + table + " (word) VALUES ($1)", "w" + turn)
                    .returnGeneratedValues("id")).blockFirst(PATIENCE);
            same(id, turn);
            same(one(one, "SELECT lastval()"), (long) turn);
        }
        run(one, "DROP TABLE " + table);
    }

    /** The driver parses a statement again whose columns have changed, outside transactions. */
    private static void changedTable() {
        PostgresqlConnection one = connect();
        PostgresqlConnection other = connect();
        String table = table(one);
        String read = "SELECT * FROM " + table + " WHERE id = $1";
        run(one, "INSERT INTO " + table + " (word) VALUES ('a')");
        same(one(one, read, 1), 1);
        same(one(one, read, 1), 1);
        run(other, "ALTER TABLE " + table + " ADD COLUMN more int");
        same(one(one, read, 1), 1);
        run(one, "DROP TABLE " + table);
    }

    private static void settings() {
        PostgresqlConnection one = connect(address().applicationName("shop").schema("pg_catalog"));
        same(one(one, "SHOW application_name"), "shop");
        same(one(one, "SHOW search_path"), "pg_catalog");
    }

    private static void settingsStay() {
        PostgresqlConnection one = connect();
        List<PostgresqlConnection> others =
                IntStream.range(0, 4).mapToObj(at -> connect()).collect(Collectors.toList());
        run(one, "SET work_mem = '5MB'");
        for (int turn = 0; turn < 10; turn++) {
            others.forEach(other -> run(other, "SET work_mem = '7MB'"));
            same(one(one, "SHOW work_mem"), "5MB");
        }
    }

    private static void temporary() {
        PostgresqlConnection one = connect();
        String table = name();
        run(one, "CREATE TEMP TABLE " + table + " (n int)");
        for (int turn = 0; turn < 10; turn++) {
            run(one, "INSERT INTO " + table + " VALUES ($1)", turn);
            one(connect(), "SELECT 1");
        }
        same(one(one, "SELECT count(*) FROM " + table), 10L);
    }

    private static void validate() {
        PostgresqlConnection one = connect();
        for (int turn = 0; turn < 10; turn++) {
            same(one.validate(ValidationDepth.REMOTE).block(PATIENCE), true);
        }
        one.beginTransaction().block(PATIENCE);
        same(one.validate(ValidationDepth.REMOTE).block(PATIENCE), true);
        one.rollbackTransaction().block(PATIENCE);
    }

    private static void largeResult() {
        PostgresqlConnection one = connect();
        String sql = "SELECT n, repeat(md5(n::text), 10) FROM generate_series(1, $1) n";
        same(rows(statement(one, sql, 50_000)).count().block(PATIENCE), 50_000L);
        same(rows(statement(one, sql, 50_000).fetchSize(5_000)).count().block(PATIENCE), 50_000L);
    }

    private static void largeParameter() {
        same(one(connect(), "SELECT length($1::text)", "x".repeat(5_000_000)), 5_000_000);
    }

    private static void manyAtATime() {
        List<PostgresqlConnection> all =
                IntStream.range(0, 10).mapToObj(at -> connect()).collect(Collectors.toList());
        List<Integer> sums = Flux.range(0, 10).flatMapSequential(at -> Flux.range(1, 50)
                .concatMap(turn -> rows(statement(all.get(at), "SELECT $1 * $2", at, turn)))
                .map(Integer.class::cast).reduce(0, Integer::sum), 10).collectList().block(PATIENCE);
        same(sums, IntStream.range(0, 10).mapToObj(at -> at * 1275).collect(Collectors.toList()));
    }

    private static void unknownDatabase() throws Exception {
        same(stateOf(() -> connect(address().database("no_such_database"))), "3D000");
    }
}
