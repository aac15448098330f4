import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Properties;

/** The JDBC client of `run` where a token is required: the user is its name, the password the token. */
public class Tokens {
    static final String URL = "jdbc:postgresql://127.0.0.1:" + System.getenv("TOKEN_PORT") + "/basestream";

    public static void main(String[] arguments) throws Exception {
        String token = System.getenv("TOKEN");
        try (Connection connection = connect("clients", token);
             ResultSet row = connection.createStatement().executeQuery("SELECT orders FROM orders_by_customer WHERE customer_id = 'c1'")) {
            equal("a row", row.next(), true);
            equal("with a token", row.getLong(1), 10L);
        }
        for (String[] wrong : new String[][] {{"clients", "bst_wrong"}, {"nobody", token}}) {
            try {
                connect(wrong[0], wrong[1]).close();
            } catch (SQLException refused) {
                equal("SQLSTATE for " + wrong[0], refused.getSQLState(), "28P01");
                continue;
            }
            throw new IllegalStateException(wrong[0] + " was not refused");
        }
    }

    static Connection connect(String user, String password) throws SQLException {
        Properties login = new Properties();
        login.put("user", user);
        login.put("password", password);
        return DriverManager.getConnection(URL, login);
    }

    static void equal(String what, Object found, Object expected) {
        if (!found.equals(expected)) {
            throw new IllegalStateException(what + ": expected " + expected + ", found " + found);
        }
    }
}
