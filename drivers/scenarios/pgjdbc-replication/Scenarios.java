import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.postgresql.PGConnection;
import org.postgresql.replication.LogSequenceNumber;
import org.postgresql.replication.PGReplicationStream;
import org.postgresql.replication.ReplicationSlotInfo;

/** pgjdbc's replication package: slots, logical and physical streams, and SQL beside them. */
final class Scenarios {
    private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(30);
    private static final String[] TEXT = {"include-xids", "false", "skip-empty-xacts", "true"};
    private static final List<Connection> opened = new ArrayList<>();
    private static final List<String> slots = new ArrayList<>();
    private static int names = 0;

    private interface Scenario {
        void play() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        Map<String, Scenario> all = new LinkedHashMap<>();
        all.put("identify-system", Scenarios::identify);
        all.put("sql-on-a-replication-connection", Scenarios::sql);
        all.put("changes-in-text", Scenarios::changes);
        all.put("changes-by-pgoutput", Scenarios::pgoutput);
        all.put("many-changes", Scenarios::many);
        all.put("large-row", Scenarios::largeRow);
        all.put("confirmed-changes-come-once", Scenarios::confirmed);
        all.put("unconfirmed-changes-come-again", Scenarios::unconfirmed);
        all.put("status-is-seen", Scenarios::status);
        all.put("idle-stream-answers-keepalives", Scenarios::idle);
        all.put("two-streams", Scenarios::twoStreams);
        all.put("sql-after-a-stream", Scenarios::sqlAfterStream);
        all.put("temporary-slot", Scenarios::temporary);
        all.put("physical-stream", Scenarios::physical);
        all.put("physical-stream-without-a-slot", Scenarios::physicalWithoutSlot);
        all.put("unknown-slot", Scenarios::unknownSlot);
        all.put("slot-in-use", Scenarios::slotInUse);
        all.put("slot-is-free-after-an-abort", Scenarios::aborted);
        all.put("terminated-stream", Scenarios::terminated);
        all.put("not-a-replication-connection", Scenarios::ordinary);
        all.put("ordinary-connections-beside-a-stream", Scenarios::beside);
        for (Map.Entry<String, Scenario> each : all.entrySet()) {
            tell(each.getKey(), each.getValue());
        }
        System.exit(0);
    }

    private static void tell(String name, Scenario scenario) throws Exception {
        try {
            scenario.play();
            System.out.println("passed " + name);
        } catch (Throwable error) {
            System.out.println("failed " + name + ": " + String.valueOf(error).replace('\n', ' '));
        } finally {
            for (Connection one : opened) {
                one.abort(Runnable::run);
            }
            opened.clear();
            cleanUp();
        }
    }

    /** Drops the slots of a scenario, as soon as the servers of its streams have ended. */
    private static void cleanUp() throws Exception {
        try (Connection owner = connect("none")) {
            for (String slot : slots) {
                run(owner, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
                        + " WHERE slot_name = '" + slot + "' AND active");
                await(owner, "SELECT NOT EXISTS (SELECT FROM pg_replication_slots"
                        + " WHERE slot_name = '" + slot + "' AND active)");
                run(owner, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
                        + " WHERE slot_name = '" + slot + "'");
            }
        }
        opened.clear();
        slots.clear();
    }

    /** `replication` is "database" for logical streams, "true" for physical ones, or "none". */
    private static Connection connect(String replication) throws SQLException {
        Properties settings = new Properties();
        settings.setProperty("user", System.getenv("PGUSER"));
        settings.setProperty("sslmode", "disable");
        if (!replication.equals("none")) {
            settings.setProperty("replication", replication);
            settings.setProperty("assumeMinServerVersion", "9.4");
            settings.setProperty("preferQueryMode", "simple");
        }
        String address = System.getenv("PGHOST") + ":" + System.getenv("PGPORT");
        Connection one = DriverManager.getConnection(
                "jdbc:postgresql://" + address + "/" + System.getenv("PGDATABASE"), settings);
        opened.add(one);
        return one;
    }

    private static boolean run(Connection on, String sql) throws SQLException {
        try (Statement statement = on.createStatement()) {
            return statement.execute(sql);
        }
    }

    private static String ask(Connection on, String sql) throws SQLException {
        try (Statement statement = on.createStatement(); ResultSet rows = statement.executeQuery(sql)) {
            rows.next();
            return rows.getString(1);
        }
    }

    private static void await(Connection on, String sql) throws Exception {
        long deadline = System.nanoTime() + PATIENCE_NANOS;
        while (!"t".equals(ask(on, sql))) {
            same(System.nanoTime() < deadline, true);
            Thread.sleep(20);
        }
    }

    private static void same(Object got, Object wanted) {
        if (!Objects.equals(got, wanted)) {
            throw new AssertionError("got " + got + ", wanted " + wanted);
        }
    }

    private static String stateOf(Scenario play) throws Exception {
        try {
            play.play();
            return "none";
        } catch (SQLException error) {
            return error.getSQLState();
        }
    }

    private static String name() {
        return "r" + ProcessHandle.current().pid() + "_" + names++;
    }

    private static String table(Connection on) throws SQLException {
        String table = name();
        run(on, "CREATE TABLE " + table + " (id int PRIMARY KEY, word text)");
        return table;
    }

    private static String slot(Connection on, String plugin) throws SQLException {
        String slot = name();
        slots.add(slot);
        ReplicationSlotInfo made = on.unwrap(PGConnection.class).getReplicationAPI()
                .createReplicationSlot().logical().withSlotName(slot).withOutputPlugin(plugin).make();
        same(made.getSlotName(), slot);
        return slot;
    }

    private static PGReplicationStream stream(Connection on, String slot, String... options)
            throws SQLException {
        var made = on.unwrap(PGConnection.class).getReplicationAPI().replicationStream().logical()
                .withSlotName(slot).withStatusInterval(1, TimeUnit.SECONDS);
        for (int at = 0; at < options.length; at += 2) {
            made.withSlotOption(options[at], options[at + 1]);
        }
        return made.start();
    }

    private static ByteBuffer next(PGReplicationStream stream) throws Exception {
        long deadline = System.nanoTime() + PATIENCE_NANOS;
        ByteBuffer found;
        while ((found = stream.readPending()) == null) {
            same(System.nanoTime() < deadline, true);
            Thread.sleep(5);
        }
        return found;
    }

    private static String text(PGReplicationStream stream) throws Exception {
        ByteBuffer found = next(stream);
        return new String(found.array(), found.arrayOffset(), found.remaining(), StandardCharsets.UTF_8);
    }

    private static String row(String table, int id, String word) {
        return "table public." + table + ": INSERT: id[integer]:" + id + " word[text]:'" + word + "'";
    }

    private static void awaitRow(PGReplicationStream stream, String table, int id, String word)
            throws Exception {
        same(text(stream), "BEGIN");
        same(text(stream), row(table, id, word));
        same(text(stream), "COMMIT");
    }

    private static void identify() throws Exception {
        for (String kind : List.of("database", "true")) {
            Connection one = connect(kind);
            try (Statement statement = one.createStatement();
                    ResultSet rows = statement.executeQuery("IDENTIFY_SYSTEM")) {
                rows.next();
                same(rows.getString("timeline"), "1");
                same(rows.getString("dbname"), kind.equals("true") ? null : System.getenv("PGDATABASE"));
            }
            same(ask(one, "SHOW wal_level"), "logical");
        }
    }

    private static void sql() throws Exception {
        Connection one = connect("database");
        String table = table(one);
        for (int turn = 0; turn < 5; turn++) {
            run(one, "INSERT INTO " + table + " VALUES (" + turn + ", 'x')");
            same(ask(one, "SELECT count(*) FROM " + table), String.valueOf(turn + 1));
        }
        same(stateOf(() -> run(one, "SELECT nothing")), "42703");
        run(one, "DROP TABLE " + table);
    }

    private static void changes() throws Exception {
        Connection one = connect("database");
        Connection writer = connect("none");
        String table = table(writer);
        PGReplicationStream stream = stream(one, slot(one, "test_decoding"), TEXT);
        for (int id = 0; id < 20; id++) {
            run(writer, "INSERT INTO " + table + " VALUES (" + id + ", 'word " + id + "')");
            awaitRow(stream, table, id, "word " + id);
        }
        stream.close();
        run(writer, "DROP TABLE " + table);
    }

    private static void pgoutput() throws Exception {
        Connection one = connect("database");
        Connection writer = connect("none");
        String table = table(writer);
        run(writer, "CREATE PUBLICATION " + table + " FOR TABLE " + table);
        PGReplicationStream stream = stream(one, slot(one, "pgoutput"), "proto_version", "1",
                "publication_names", table);
        run(writer, "INSERT INTO " + table + " VALUES (1, 'a'), (2, 'b')");
        StringBuilder kinds = new StringBuilder();
        while (kinds.length() < 5) {
            kinds.append((char) next(stream).get());
        }
        same(kinds.toString(), "BRIIC");
        stream.close();
        run(writer, "DROP PUBLICATION " + table);
        run(writer, "DROP TABLE " + table);
    }

    private static void many() throws Exception {
        Connection one = connect("database");
        Connection writer = connect("none");
        String table = table(writer);
        PGReplicationStream stream = stream(one, slot(one, "test_decoding"), TEXT);
        run(writer, "INSERT INTO " + table + " SELECT n, 'w' || n FROM generate_series(1, 20000) n");
        same(text(stream), "BEGIN");
        for (int id = 1; id <= 20000; id++) {
            same(text(stream), row(table, id, "w" + id));
        }
        same(text(stream), "COMMIT");
        run(writer, "DROP TABLE " + table);
    }

    private static void largeRow() throws Exception {
        Connection one = connect("database");
        Connection writer = connect("none");
        String table = table(writer);
        PGReplicationStream stream = stream(one, slot(one, "test_decoding"), TEXT);
        for (int turn = 0; turn < 3; turn++) {
            run(writer, "INSERT INTO " + table + " VALUES (" + turn + ", repeat('x', 3000000))");
            awaitRow(stream, table, turn, "x".repeat(3_000_000));
        }
        run(writer, "DROP TABLE " + table);
    }

    private static void confirm(PGReplicationStream stream) throws SQLException {
        LogSequenceNumber seen = stream.getLastReceiveLSN();
        stream.setFlushedLSN(seen);
        stream.setAppliedLSN(seen);
        stream.forceUpdateStatus();
    }

    private static void confirmed() throws Exception {
        Connection writer = connect("none");
        String table = table(writer);
        Connection first = connect("database");
        String slot = slot(first, "test_decoding");
        PGReplicationStream stream = stream(first, slot, TEXT);
        run(writer, "INSERT INTO " + table + " VALUES (1, 'a')");
        awaitRow(stream, table, 1, "a");
        confirm(stream);
        stream.close();
        first.close();
        run(writer, "INSERT INTO " + table + " VALUES (2, 'b')");
        await(writer, "SELECT NOT active FROM pg_replication_slots WHERE slot_name = '" + slot + "'");
        awaitRow(stream(connect("database"), slot, TEXT), table, 2, "b");
        run(writer, "DROP TABLE " + table);
    }

    private static void unconfirmed() throws Exception {
        Connection writer = connect("none");
        String table = table(writer);
        String slot = slot(connect("database"), "test_decoding");
        run(writer, "INSERT INTO " + table + " VALUES (1, 'a')");
        for (int turn = 0; turn < 3; turn++) {
            Connection one = connect("database");
            PGReplicationStream stream = stream(one, slot, TEXT);
            awaitRow(stream, table, 1, "a");
            stream.close();
            one.close();
            await(writer, "SELECT NOT active FROM pg_replication_slots WHERE slot_name = '" + slot + "'");
        }
        run(writer, "DROP TABLE " + table);
    }

    private static void status() throws Exception {
        Connection one = connect("database");
        Connection writer = connect("none");
        String table = table(writer);
        String slot = slot(one, "test_decoding");
        PGReplicationStream stream = stream(one, slot, TEXT);
        run(writer, "INSERT INTO " + table + " VALUES (1, 'a')");
        awaitRow(stream, table, 1, "a");
        confirm(stream);
        String seen = stream.getLastReceiveLSN().asString();
        await(writer, "SELECT confirmed_flush_lsn >= '" + seen + "' FROM pg_replication_slots"
                + " WHERE slot_name = '" + slot + "'");
        await(writer, "SELECT flush_lsn >= '" + seen + "' FROM pg_stat_replication"
                + " JOIN pg_replication_slots ON pid = active_pid WHERE slot_name = '" + slot + "'");
        run(writer, "DROP TABLE " + table);
    }

    /** The server's wal_sender_timeout passes twice. */
    private static void idle() throws Exception {
        Connection one = connect("database");
        Connection writer = connect("none");
        String table = table(writer);
        PGReplicationStream stream = stream(one, slot(one, "test_decoding"), TEXT);
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(6);
        while (System.nanoTime() < end) {
            ByteBuffer found = stream.readPending();
            same(found == null, true);
            Thread.sleep(20);
        }
        run(writer, "INSERT INTO " + table + " VALUES (1, 'a')");
        awaitRow(stream, table, 1, "a");
        run(writer, "DROP TABLE " + table);
    }

    private static void twoStreams() throws Exception {
        Connection one = connect("database");
        Connection other = connect("database");
        Connection writer = connect("none");
        String table = table(writer);
        PGReplicationStream left = stream(one, slot(one, "test_decoding"), TEXT);
        PGReplicationStream right = stream(other, slot(other, "test_decoding"), TEXT);
        for (int id = 0; id < 10; id++) {
            run(writer, "INSERT INTO " + table + " VALUES (" + id + ", 'a')");
            awaitRow(left, table, id, "a");
            awaitRow(right, table, id, "a");
        }
        run(writer, "DROP TABLE " + table);
    }

    private static void sqlAfterStream() throws Exception {
        Connection one = connect("database");
        Connection writer = connect("none");
        String table = table(writer);
        String slot = slot(one, "test_decoding");
        PGReplicationStream stream = stream(one, slot, TEXT);
        run(writer, "INSERT INTO " + table + " VALUES (1, 'a')");
        awaitRow(stream, table, 1, "a");
        stream.close();
        for (int turn = 0; turn < 5; turn++) {
            same(ask(one, "SELECT count(*) FROM " + table), "1");
        }
        one.unwrap(PGConnection.class).getReplicationAPI().dropReplicationSlot(slot);
        same(ask(writer, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = '" + slot + "'"), "0");
        run(writer, "DROP TABLE " + table);
    }

    private static void temporary() throws Exception {
        Connection one = connect("database");
        Connection writer = connect("none");
        String slot = name();
        one.unwrap(PGConnection.class).getReplicationAPI().createReplicationSlot().logical()
                .withSlotName(slot).withOutputPlugin("test_decoding").withTemporaryOption().make();
        String seen = "SELECT count(*) = 1 FROM pg_replication_slots WHERE temporary AND slot_name = '";
        same(ask(writer, seen + slot + "'"), "t");
        one.close();
        await(writer, "SELECT NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = '"
                + slot + "')");
    }

    private static void readsWal(PGReplicationStream stream, Connection writer) throws Exception {
        String table = table(writer);
        run(writer, "INSERT INTO " + table + " VALUES (1, repeat('y', 1000))");
        String all = "";
        long deadline = System.nanoTime() + PATIENCE_NANOS;
        while (!all.contains("yyyyyyyyyy")) {
            same(System.nanoTime() < deadline, true);
            ByteBuffer found = next(stream);
            all = new String(found.array(), found.arrayOffset(), found.remaining(),
                    StandardCharsets.ISO_8859_1);
        }
        run(writer, "DROP TABLE " + table);
    }

    private static LogSequenceNumber position(Connection on) throws SQLException {
        return LogSequenceNumber.valueOf(ask(on, "SELECT pg_current_wal_lsn()"));
    }

    private static void physical() throws Exception {
        Connection one = connect("true");
        Connection writer = connect("none");
        String slot = name();
        slots.add(slot);
        one.unwrap(PGConnection.class).getReplicationAPI().createReplicationSlot().physical()
                .withSlotName(slot).make();
        readsWal(one.unwrap(PGConnection.class).getReplicationAPI().replicationStream().physical()
                .withSlotName(slot).withStartPosition(position(writer)).start(), writer);
    }

    private static void physicalWithoutSlot() throws Exception {
        Connection one = connect("true");
        Connection writer = connect("none");
        readsWal(one.unwrap(PGConnection.class).getReplicationAPI().replicationStream().physical()
                .withStartPosition(position(writer)).start(), writer);
    }

    private static void unknownSlot() throws Exception {
        Connection one = connect("database");
        for (int turn = 0; turn < 3; turn++) {
            same(stateOf(() -> stream(one, "no_such_slot", TEXT)), "42704");
            same(ask(one, "SELECT 1"), "1");
        }
    }

    private static void slotInUse() throws Exception {
        Connection one = connect("database");
        Connection other = connect("database");
        String slot = slot(one, "test_decoding");
        PGReplicationStream stream = stream(one, slot, TEXT);
        same(stateOf(() -> stream(other, slot, TEXT)), "55006");
        stream.close();
        one.close();
        await(connect("none"),
                "SELECT NOT active FROM pg_replication_slots WHERE slot_name = '" + slot + "'");
        stream(other, slot, TEXT).close();
    }

    private static void aborted() throws Exception {
        Connection one = connect("database");
        String slot = slot(one, "test_decoding");
        for (int turn = 0; turn < 3; turn++) {
            Connection next = connect("database");
            stream(next, slot, TEXT);
            next.abort(Runnable::run);
            await(connect("none"),
                    "SELECT NOT active FROM pg_replication_slots WHERE slot_name = '" + slot + "'");
        }
    }

    private static void terminated() throws Exception {
        Connection one = connect("database");
        Connection writer = connect("none");
        String slot = slot(one, "test_decoding");
        PGReplicationStream stream = stream(one, slot, TEXT);
        run(writer, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
                + " WHERE slot_name = '" + slot + "'");
        String state = stateOf(() -> next(stream));
        same(List.of("57P01", "08006").contains(state), true);
        await(writer, "SELECT NOT active FROM pg_replication_slots WHERE slot_name = '" + slot + "'");
    }

    private static void ordinary() throws Exception {
        Connection one = connect("none");
        same(stateOf(() -> run(one, "IDENTIFY_SYSTEM")), "42601");
        same(ask(one, "SELECT 1"), "1");
    }

    private static void beside() throws Exception {
        Connection one = connect("database");
        Connection writer = connect("none");
        String table = table(writer);
        PGReplicationStream stream = stream(one, slot(one, "test_decoding"), TEXT);
        for (int turn = 0; turn < 10; turn++) {
            try (Connection other = connect("none")) {
                run(other, "INSERT INTO " + table + " VALUES (" + turn + ", 'b')");
                same(ask(other, "SELECT count(*) FROM " + table), String.valueOf(turn + 1));
            }
            awaitRow(stream, table, turn, "b");
        }
        run(writer, "DROP TABLE " + table);
    }
}
