import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;

/** The JDBC driver of Flight SQL of `run`: queries, parameters, metadata, and a token as the password of its name. */
public class Flight {
    static final String URL = "jdbc:arrow-flight-sql://127.0.0.1:" + System.getenv("FLIGHT") + "/?useEncryption=false";

    public static void main(String[] arguments) throws Exception {
        try (Connection connection = DriverManager.getConnection(URL)) {
            queries(connection);
            parameters(connection);
            metadata(connection);
        }
        Properties login = new Properties();
        login.put("user", "analyst");
        login.put("password", System.getenv("TOKEN"));
        try (Connection connection = DriverManager.getConnection(URL, login)) {
            equal("with a token", texts(connection.createStatement(), "SELECT orders FROM orders_by_customer WHERE customer_id = 'c1'"), List.of("10"));
            refused("beyond a token", "may not read", () -> texts(connection.createStatement(), "SELECT * FROM orders"));
        }
        login.put("password", "bst_wrong");
        refused("a wrong token", "do not match", () -> DriverManager.getConnection(URL, login).createStatement());
    }

    static void queries(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement();
             ResultSet row = statement.executeQuery("SELECT customer_id, orders, amount, last_order FROM orders_by_customer WHERE customer_id = 'c1'")) {
            equal("a row", row.next(), true);
            equal("text", row.getString(1), "c1");
            equal("bigint", row.getLong("orders"), 10L);
            equal("decimal", row.getBigDecimal("amount"), new BigDecimal("45.10"));
            equal("time", row.getTimestamp("last_order").toInstant().toString(), "2026-03-01T15:01:00Z");
            equal("one row", row.next(), false);
        }
        refused("a column", "there is no column \"nothing\"", () -> texts(connection.createStatement(), "SELECT nothing FROM orders"));
        refused("INSERT", "INSERT is not supported here", () -> connection.createStatement().executeUpdate("INSERT INTO units VALUES (1)"));
    }

    static void parameters(Connection connection) throws SQLException {
        try (PreparedStatement one = connection.prepareStatement("SELECT orders FROM orders_by_customer WHERE customer_id = ? AND orders > ?")) {
            for (String customer : List.of("c1", "c2")) {
                one.setString(1, customer);
                one.setLong(2, 1);
                try (ResultSet row = one.executeQuery()) {
                    equal("a row", row.next(), true);
                    equal("orders", row.getLong(1), 10L);
                    equal("one row", row.next(), false);
                }
            }
        }
    }

    static void metadata(Connection connection) throws SQLException {
        DatabaseMetaData metadata = connection.getMetaData();
        equal("product", metadata.getDatabaseProductName(), "basestream");
        equal("read only", metadata.isReadOnly(), true);
        List<String> tables = new ArrayList<>();
        try (ResultSet rows = metadata.getTables(null, "public", "units", null)) {
            while (rows.next()) {
                tables.add(rows.getString("TABLE_NAME") + " " + rows.getString("TABLE_TYPE"));
            }
        }
        equal("tables", tables, List.of("units VIEW"));
        List<String> columns = new ArrayList<>();
        try (ResultSet rows = metadata.getColumns(null, "public", "units", "%")) {
            while (rows.next()) {
                columns.add(rows.getString("COLUMN_NAME") + " " + rows.getString("TYPE_NAME"));
            }
        }
        equal("columns", columns, List.of("unit VARCHAR", "n BIGINT"));
        try (ResultSet rows = metadata.getPrimaryKeys(null, "public", "units")) {
            equal("a key", rows.next(), true);
            equal("key", rows.getString("COLUMN_NAME"), "unit");
        }
    }

    static List<String> texts(Statement statement, String sql) throws SQLException {
        List<String> texts = new ArrayList<>();
        try (statement; ResultSet rows = statement.executeQuery(sql)) {
            while (rows.next()) {
                texts.add(rows.getString(1));
            }
        }
        return texts;
    }

    interface Asking {
        void ask() throws Exception;
    }

    static void refused(String what, String text, Asking asking) throws Exception {
        try {
            asking.ask();
        } catch (Exception problem) {
            StringBuilder said = new StringBuilder();
            for (Throwable cause = problem; cause != null; cause = cause.getCause()) {
                said.append(cause.getMessage()).append(' ');
            }
            if (!said.toString().contains(text)) {
                throw new AssertionError(what + ": expected " + text + ", found " + said, problem);
            }
            return;
        }
        throw new AssertionError(what + ": was not refused");
    }

    static void equal(String what, Object found, Object expected) {
        if (!expected.equals(found)) {
            throw new AssertionError("JDBC over Flight SQL, " + what + ": expected " + expected + ", found " + found);
        }
    }
}
