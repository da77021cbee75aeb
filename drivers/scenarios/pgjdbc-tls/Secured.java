import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;

/** pgjdbc before a server, or a pooler, that lets nobody in without TLS and a password. */
final class Secured {
    private static final int PATIENCE_SECONDS = 30;

    private interface Scenario {
        void play() throws Exception;
    }

    public static void main(String[] args) {
        Map<String, Scenario> all = new LinkedHashMap<>();
        all.put("verify-full", () -> serves());
        all.put("require", () -> serves("sslmode", "require"));
        all.put("binding-required", () -> serves("channelBinding", "require"));
        all.put("binding-disabled", () -> serves("channelBinding", "disable"));
        all.put("simple-protocol", () -> serves("preferQueryMode", "simple"));
        all.put("verify-ca-by-address", () -> serves("sslmode", "verify-ca", "host", "127.0.0.1"));
        all.put("wrong-name", () -> refuses("could not be verified", "host", "127.0.0.1"));
        all.put("wrong-authority", () -> refuses("SSL error", "sslrootcert", System.getenv("STRANGER")));
        all.put("wrong-password", () -> refuses("authentication failed", "password", "wrong"));
        all.put("unknown-user", () -> refuses("FATAL", "user", "nobody"));
        all.put("without-tls", () -> refuses("FATAL", "sslmode", "disable"));
        all.put("large-result", Secured::receivesMuch);
        all.put("cancel", Secured::cancels);
        all.forEach(Secured::tell);
        System.exit(0);
    }

    private static void tell(String name, Scenario scenario) {
        try {
            scenario.play();
            System.out.println("passed " + name);
        } catch (Exception | AssertionError error) {
            String why = String.valueOf(error).replace('\n', ' ');
            System.out.println("failed " + name + ": " + why);
        }
    }

    /** Logs in as app, with what is different from a login that works. */
    private static Connection connect(String... different) throws SQLException {
        Properties settings = new Properties();
        settings.setProperty("user", "app");
        settings.setProperty("password", "hush");
        settings.setProperty("sslmode", "verify-full");
        settings.setProperty("sslrootcert", System.getenv("AUTHORITY"));
        settings.setProperty("host", "localhost");
        settings.setProperty("loginTimeout", String.valueOf(PATIENCE_SECONDS));
        for (int at = 0; at < different.length; at += 2) {
            settings.setProperty(different[at], different[at + 1]);
        }
        String host = (String) settings.remove("host");
        String url = "jdbc:postgresql://" + host + ":" + System.getenv("PORT") + "/postgres";
        return DriverManager.getConnection(url, settings);
    }

    private static void serves(String... different) throws SQLException {
        String sql = "select ? + 1";
        try (Connection connection = connect(different);
                PreparedStatement statement = connection.prepareStatement(sql)) {
            // From the fifth time on the statement has a name.
            for (int number = 0; number < 10; number++) {
                statement.setInt(1, number);
                try (ResultSet rows = statement.executeQuery()) {
                    rows.next();
                    require(rows.getInt(1) == number + 1, "another answer");
                }
            }
        }
    }

    private static void refuses(String reason, String... different) {
        try (Connection connection = connect(different)) {
            throw new AssertionError("it was let in");
        } catch (SQLException error) {
            String why = error.getMessage();
            require(why.contains(reason), "refused for another reason than " + reason + ": " + why);
        }
    }

    private static void receivesMuch() throws SQLException {
        String sql = "select string_agg(n::text, ',') from generate_series(1, 1000000) n";
        try (Connection connection = connect();
                Statement statement = connection.createStatement();
                ResultSet rows = statement.executeQuery(sql)) {
            rows.next();
            require(rows.getString(1).length() == 6888895, "another length");
        }
    }

    private static void cancels() throws SQLException {
        try (Connection connection = connect(); Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            statement.executeQuery("select pg_sleep(600)");
            throw new AssertionError("it was not cancelled");
        } catch (SQLException error) {
            require("57014".equals(error.getSQLState()), error.getMessage());
        }
    }

    private static void require(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }
}
