//! Divisions of decimals, in queries and in a view, are those of PostgreSQL's numeric: to 16 significant digits, and to
//! 38 places at most.

use basestream_tests::services::needed;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use crate::project::Project;

const DIVISIONS: usize = 700;
/// Of one query.
const COLUMNS: usize = 25;
const SHOPS: usize = 40;
const TRADES: usize = 400;

const STREAM: &str = "CREATE STREAM trades (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, shop TEXT NOT NULL, \
    price DECIMAL(18,2) NOT NULL, rate DECIMAL(38,20) NOT NULL, pieces BIGINT NOT NULL) \
    WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '10m', key = 'shop')";
const TABLE: &str = "CREATE TEMPORARY TABLE trades (shop TEXT, price DECIMAL(18,2), rate DECIMAL(38,20), pieces BIGINT)";
/// Each with the number of its divisions.
const COLUMNS_OF_VIEW: [(&str, u32); 6] = [
    ("count(*) / (count(*) / 30.0)", 2),
    ("sum(price) / sum(pieces)", 1),
    ("sum(rate) / sum(price)", 1),
    ("sum(pieces) / (sum(price) / count(*))", 2),
    ("sum(price / pieces)", 1),
    ("max(rate / price)", 1),
];

/// A quotient as basestream answers it, and as PostgreSQL computes it from SQL.
struct Compared {
    ours: String,
    theirs: String,
    divisions: u32,
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-services"]
async fn decimals_are_divided_as_numerics_on_postgres() {
    let mut random = StdRng::seed_from_u64(5);
    let [url] = needed(["BASESTREAM_TEST_POSTGRES"]);
    let mut postgres = PgConnection::connect(&url).await.unwrap();
    let mut project = Project::new().await;
    let mut compared = compare_queries(&mut project, &mut random).await;
    compared.extend(compare_a_view(&mut project, &mut postgres, &mut random).await);
    project.close().await;
    assert_eq!(compared.len(), DIVISIONS + SHOPS * COLUMNS_OF_VIEW.len());
    let different = different(&mut postgres, &compared).await;
    assert!(different.is_empty(), "{} of {} quotients differ:\n{}", different.len(), compared.len(), different.join("\n"));
}

async fn compare_queries(project: &mut Project, random: &mut StdRng) -> Vec<Compared> {
    let expressions: Vec<(String, u32)> = (0..DIVISIONS).map(|number| divisions(number, random)).collect();
    let mut compared = Vec::new();
    for some in expressions.chunks(COLUMNS) {
        let columns = some.iter().enumerate().map(|(index, (sql, _))| format!("{sql} AS q{index}"));
        let sql = format!("SELECT {}", columns.collect::<Vec<_>>().join(", "));
        let rows = project.run(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(rows.len(), 1, "{sql}");
        let with_theirs = rows[0].split(' ').zip(some);
        compared.extend(with_theirs.map(|(ours, (sql, divisions))| Compared {
            ours: ours.to_owned(),
            theirs: sql.clone(),
            divisions: *divisions,
        }));
    }
    compared
}

/// An expression that both systems read, and the number of its divisions.
fn divisions(number: usize, random: &mut StdRng) -> (String, u32) {
    match number % 7 {
        0 => (format!("{} / {}", decimal(18, 12, random), decimal(12, 18, random)), 1),
        1 => (format!("{} / {}", decimal(28, 8, random), decimal(2, 8, random)), 1),
        2 => (format!("{} / {}", integer(random), decimal(9, 9, random)), 1),
        3 => (format!("{} / {}", decimal(9, 9, random), integer(random)), 1),
        4 => {
            let count = integer(random);
            (format!("{count} / ({count} / 30.0)"), 2)
        }
        5 => (format!("{} / ({} / {})", decimal(6, 6, random), decimal(6, 4, random), integer(random)), 2),
        _ => (format!("{} / {} / {}", decimal(6, 6, random), decimal(6, 4, random), integer(random)), 2),
    }
}

/// A number other than 0, as a literal or as a text cast to a decimal. The arguments bound its digits before and after
/// the point.
fn decimal(before: usize, after: usize, random: &mut StdRng) -> String {
    let sign = ["", "-"][random.random_range(0..2)];
    let whole = random.random_range(0..=before);
    let places = random.random_range(1..=after);
    let whole = if whole == 0 { "0".to_owned() } else { format!("{}{}", random.random_range(1..10), digits(whole - 1, random)) };
    let zeros = random.random_range(0..places);
    let part = format!("{}{}{}", "0".repeat(zeros), digits(places - zeros - 1, random), random.random_range(1..10));
    match random.random_range(0..2) {
        0 => format!("({sign}{whole}.{part})"),
        _ => format!("CAST('{sign}{whole}.{part}' AS DECIMAL(38,{places}))"),
    }
}

fn digits(count: usize, random: &mut StdRng) -> String {
    (0..count).map(|_| char::from(b'0' + random.random_range(0..10))).collect()
}

fn integer(random: &mut StdRng) -> String {
    let sign = ["", "-"][random.random_range(0..2)];
    let digits = random.random_range(1..18);
    format!("CAST({sign}{} AS BIGINT)", random.random_range(1..10_i64.pow(digits)))
}

/// The same events as a stream with a view over it, and as a table.
async fn compare_a_view(project: &mut Project, postgres: &mut PgConnection, random: &mut StdRng) -> Vec<Compared> {
    let columns: Vec<String> = COLUMNS_OF_VIEW.iter().enumerate().map(|(index, (sql, _))| format!("{sql} AS q{index}")).collect();
    let names: Vec<String> = (0..columns.len()).map(|index| format!("q{index}")).collect();
    let select = format!("SELECT shop, {} FROM trades GROUP BY shop", columns.join(", "));
    let (mut events, mut rows) = (String::from("APPEND TO trades"), Vec::new());
    for number in 0..TRADES {
        // Each shop has a trade.
        let shop = if number < SHOPS { number } else { random.random_range(0..SHOPS) };
        let price = format!("{}.{:02}", random.random_range(0..1_000_000_000), random.random_range(1..100));
        let rate = format!("{}0.{}", ["", "-"][random.random_range(0..2)], digits(20, random));
        let most_pieces = 10_i64.pow(random.random_range(1..10));
        let pieces = random.random_range(1..most_pieces);
        events += &format!(
            "\n{{\"id\":\"{number}\",\"ts\":\"2026-03-02T11:00:00Z\",\"shop\":\"s{shop}\",\"price\":\"{price}\",\"rate\":\"{rate}\",\
             \"pieces\":{pieces}}}"
        );
        rows.push(format!("('s{shop}', {price}, {rate}, {pieces})"));
    }
    let query = format!("SELECT shop, {} FROM shops ORDER BY shop", names.join(", "));
    let mut answers = Vec::new();
    for statement in [STREAM.to_owned(), format!("CREATE VIEW shops AS {select}"), events, query] {
        answers = project.run(&statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    for sql in [TABLE.to_owned(), format!("INSERT INTO trades VALUES {}", rows.join(", "))] {
        sqlx::query(AssertSqlSafe(sql)).execute(&mut *postgres).await.unwrap();
    }
    let sql = format!("SELECT shop, {}::text FROM ({select}) AS shops ORDER BY shop COLLATE \"C\"", names.join("::text, "));
    let of_postgres = sqlx::query(AssertSqlSafe(sql)).fetch_all(&mut *postgres).await.unwrap();
    assert_eq!(answers.len(), of_postgres.len());
    let mut compared = Vec::new();
    for (ours, theirs) in answers.iter().zip(&of_postgres) {
        let mut values = ours.split(' ');
        assert_eq!(values.next(), Some(theirs.get::<&str, _>(0)), "both are ordered by the shop");
        compared.extend(values.zip(COLUMNS_OF_VIEW).enumerate().map(|(index, (ours, (_, divisions)))| Compared {
            ours: ours.to_owned(),
            theirs: theirs.get(index + 1),
            divisions,
        }));
    }
    compared
}

/// What differs by more than one in the 16th significant digit for each division, and by more than the 38th place.
async fn different(postgres: &mut PgConnection, compared: &[Compared]) -> Vec<String> {
    let row = |(number, one): (usize, &Compared)| {
        let Compared { ours, theirs, divisions } = one;
        format!("({number}, CAST('{ours}' AS NUMERIC), {theirs}, {divisions})")
    };
    let rows: Vec<String> = compared.iter().enumerate().map(row).collect();
    let sql = format!(
        "SELECT number, ours::text, theirs::text FROM (VALUES {}) AS v (number, ours, theirs, divisions) \
         WHERE (abs(ours - theirs) <= abs(theirs) * divisions * 1e-16 + 1e-38) IS NOT TRUE ORDER BY number",
        rows.join(", ")
    );
    let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(postgres).await.unwrap();
    let shown = |row: &sqlx::postgres::PgRow| {
        let (number, ours, theirs): (i32, &str, &str) = (row.get(0), row.get(1), row.get(2));
        format!("{}: {ours}, PostgreSQL has {theirs}", compared[usize::try_from(number).unwrap()].theirs)
    };
    rows.iter().map(shown).collect()
}
