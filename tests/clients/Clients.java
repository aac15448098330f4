import java.math.BigDecimal;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;

/** The JDBC client of `run`: lookups, fetch size, metadata, and pooled prepared statements across a batch run. */
public class Clients {
    static final String URL = "jdbc:postgresql://127.0.0.1:" + System.getenv("PORT") + "/basestream?user=me";

    public static void main(String[] arguments) throws Exception {
        // As a pool does: prepared on the server from the first execution on, values in binary.
        try (Connection connection = DriverManager.getConnection(URL + "&prepareThreshold=1&binaryTransfer=true")) {
            lookups(connection);
            acrossARun(connection);
            inParts(connection);
            metadata(connection);
            searchPath(connection);
            errors(connection);
        }
    }

    static void lookups(Connection connection) throws SQLException {
        try (PreparedStatement one = connection.prepareStatement("SELECT orders, amount FROM orders_by_customer WHERE customer_id = ?")) {
            for (int round = 0; round < 3; round++) {
                one.setString(1, "c1");
                try (ResultSet row = one.executeQuery()) {
                    equal("a row", row.next(), true);
                    equal("orders", row.getLong("orders"), 10L);
                    equal("amount", row.getBigDecimal("amount"), new BigDecimal("45.10"));
                    equal("one row", row.next(), false);
                }
            }
        }
        try (PreparedStatement many = connection.prepareStatement("SELECT customer_id FROM orders_by_customer WHERE customer_id = ANY(?) ORDER BY 1")) {
            many.setArray(1, connection.createArrayOf("text", new String[] {"c1", "c2", "none"}));
            equal("= ANY", texts(many.executeQuery()), List.of("c1", "c2"));
        }
        try (PreparedStatement typed = connection.prepareStatement("SELECT unit, day, tags, raw, ok, score FROM orders WHERE unit = ? AND order_id = ?")) {
            typed.setObject(1, new UUID(0, 1));
            typed.setString(2, "o1");
            ResultSet row = typed.executeQuery();
            equal("a row", row.next(), true);
            equal("uuid", row.getObject(1), new UUID(0, 1));
            equal("date", row.getDate(2).toString(), "2026-02-02");
            equal("array", List.of((String[]) row.getArray(3).getArray()), List.of("x", "y z"));
            equal("bytes", row.getBytes(4).length, 2);
            equal("boolean", row.getBoolean(5), false);
            equal("double", row.getDouble(6), 0.125);
        }
        try (PreparedStatement dated = connection.prepareStatement("SELECT count(*) FROM orders WHERE order_id = 'o1' AND day = ? AND ts > ?")) {
            // It is sent as a text with the zone of this machine.
            dated.setDate(1, java.sql.Date.valueOf("2026-02-02"));
            dated.setDate(2, java.sql.Date.valueOf("2026-02-02"));
            equal("a date", first(dated), new BigDecimal("1"));
        }
        // Of another type than the column: the product is of the wider one.
        try (PreparedStatement scaled = connection.prepareStatement("SELECT orders * ? FROM orders_by_customer WHERE customer_id = 'c1'")) {
            for (int round = 0; round < 2; round++) {
                scaled.setDouble(1, 1.25);
                equal("a BIGINT by a double", first(scaled), new BigDecimal("12.5"));
                scaled.setBigDecimal(1, new BigDecimal("1.75"));
                equal("a BIGINT by a decimal", first(scaled), new BigDecimal("17.5"));
                scaled.setLong(1, 3);
                equal("a BIGINT by a long", first(scaled), new BigDecimal("30"));
            }
        }
    }

    /** The number of the one row, without zeros at its end. */
    static BigDecimal first(PreparedStatement statement) throws SQLException {
        try (ResultSet row = statement.executeQuery()) {
            equal("a row", row.next(), true);
            return new BigDecimal(row.getBigDecimal(1).stripTrailingZeros().toPlainString());
        }
    }

    static void acrossARun(Connection connection) throws Exception {
        try (PreparedStatement statement = connection.prepareStatement("SELECT orders FROM orders_by_customer WHERE customer_id = ?")) {
            equal("not there yet", count(statement, "java"), 0L);
            for (long expected = 1; expected <= 2; expected++) {
                basestream("{\"order_id\":\"java" + expected + "\",\"ts\":\"2026-03-01T20:00:00Z\",\"customer_id\":\"java\",\"amount\":\"1.00\"}\n", "ingest", "orders", "-");
                basestream("", "batch", "run", "orders_by_customer");
                for (int tries = 0; tries < 300 && count(statement, "java") != expected; tries++) {
                    Thread.sleep(100);
                }
                equal("a pooled statement after a run", count(statement, "java"), expected);
            }
        }
    }

    static long count(PreparedStatement statement, String customer) throws SQLException {
        statement.setString(1, customer);
        try (ResultSet row = statement.executeQuery()) {
            return row.next() ? row.getLong(1) : 0;
        }
    }

    static void inParts(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            statement.setFetchSize(50);
            try (ResultSet rows = statement.executeQuery("SELECT order_id FROM orders WHERE order_id LIKE 'o%'")) {
                equal("rows in parts", texts(rows).size(), 1000);
            }
            statement.execute("DECLARE parts CURSOR FOR SELECT order_id FROM orders WHERE order_id LIKE 'o%'");
            for (int expected : new int[] {120, 880}) {
                try (ResultSet rows = statement.executeQuery(expected == 120 ? "FETCH 120 FROM parts" : "FETCH ALL FROM parts")) {
                    equal("rows of a cursor in parts", texts(rows).size(), expected);
                }
            }
        }
        connection.commit();
        connection.setAutoCommit(true);
    }

    static void metadata(Connection connection) throws SQLException {
        DatabaseMetaData metadata = connection.getMetaData();
        equal("the product", metadata.getDatabaseProductName(), "PostgreSQL");
        List<String> views = new ArrayList<>();
        try (ResultSet tables = metadata.getTables(null, "public", "%", new String[] {"VIEW"})) {
            while (tables.next()) {
                views.add(tables.getString("TABLE_NAME"));
            }
        }
        equal("views", views.containsAll(List.of("orders_by_customer", "units")), true);
        List<String> columns = new ArrayList<>();
        try (ResultSet found = metadata.getColumns(null, "public", "orders_by_customer", "%")) {
            while (found.next()) {
                columns.add(found.getString("COLUMN_NAME") + " " + found.getString("TYPE_NAME"));
            }
        }
        equal("columns", columns, List.of("customer_id text", "orders int8", "amount numeric", "last_order timestamptz"));
        try (ResultSet schemas = metadata.getSchemas()) {
            equal("schemas", texts(schemas).contains("public"), true);
        }
        List<String> types = new ArrayList<>();
        try (ResultSet found = metadata.getTypeInfo()) {
            while (found.next()) {
                types.add(found.getString("TYPE_NAME") + " " + found.getInt("DATA_TYPE"));
            }
        }
        equal("types", types.containsAll(List.of("int8 -5", "text 12", "timestamptz 93", "numeric 2", "bool -7")), true);
        equal("keywords", List.of(metadata.getSQLKeywords().split(",")).contains("analyze"), true);
        try (ResultSet found = metadata.getFunctions(null, null, "abs")) {
            equal("a function", found.next(), true);
            equal("a function", found.getString("FUNCTION_NAME"), "abs");
        }
        metadata.getPrimaryKeys(null, "public", "orders").close();
        metadata.getIndexInfo(null, "public", "orders", false, true).close();
        metadata.getImportedKeys(null, "public", "orders").close();
        metadata.getCatalogs().close();
        metadata.getTablePrivileges(null, "public", "%").close();
        metadata.getColumnPrivileges(null, "public", "orders", "%").close();
        metadata.getUDTs(null, null, "%", null).close();
        metadata.getProcedures(null, null, "%").close();
    }

    static void searchPath(Connection connection) throws SQLException {
        equal("the schema", connection.getSchema(), "public");
        // The same text, prepared: it finds the view, then the table of the system.
        try (PreparedStatement views = connection.prepareStatement("SELECT count(*) FROM views WHERE view = ?")) {
            views.setString(1, "units");
            for (String schema : List.of("system", "public", "system")) {
                connection.setSchema(schema);
                equal("the schema", connection.getSchema(), schema);
                try {
                    equal("a table of the schema", first(views), new BigDecimal("1"));
                    equal("it is found in", schema, "system");
                } catch (SQLException unknown) {
                    equal("SQLSTATE", unknown.getSQLState(), "42P01");
                    equal("it is not found in", schema, "public");
                }
            }
        }
        connection.setSchema("public");
    }

    static void errors(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("INSERT INTO orders_by_customer VALUES ('x')");
            throw new IllegalStateException("an INSERT was not refused");
        } catch (SQLException refused) {
            equal("SQLSTATE", refused.getSQLState(), "25006");
        }
        try (Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            statement.executeQuery("SELECT count(*) FROM range(1, 2000000000) a CROSS JOIN range(1, 2000000000) b WHERE a.value * b.value = 17");
            throw new IllegalStateException("a query was not cancelled");
        } catch (SQLException cancelled) {
            equal("SQLSTATE", cancelled.getSQLState(), "57014");
        }
    }

    static List<String> texts(ResultSet rows) throws SQLException {
        List<String> found = new ArrayList<>();
        while (rows.next()) {
            found.add(rows.getString(1));
        }
        return found;
    }

    static void basestream(String input, String... arguments) throws Exception {
        List<String> command = new ArrayList<>(List.of(System.getenv("BASESTREAM")));
        command.addAll(List.of(arguments));
        Process process = new ProcessBuilder(command).directory(Path.of(System.getenv("PROJECT")).toFile()).redirectErrorStream(true).start();
        process.getOutputStream().write(input.getBytes());
        process.getOutputStream().close();
        String said = new String(process.getInputStream().readAllBytes());
        equal(said, process.waitFor(), 0);
    }

    static void equal(String what, Object found, Object expected) {
        if (!found.equals(expected)) {
            throw new IllegalStateException(what + ": expected " + expected + ", found " + found);
        }
    }
}
