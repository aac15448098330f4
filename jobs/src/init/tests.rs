use definitions::settings::{Settings, Variables};
use engine::functions::Functions;

use super::*;
use crate::check::check_project;

async fn sound(folder: &Path) -> String {
    Settings::load(&folder.join("basestream.toml"), &Variables::default()).unwrap();
    let checked = check_project(folder, &Functions::standard(), 0).await.unwrap();
    assert!(checked.diagnostics.is_empty(), "{}", checked.diagnostics);
    checked.views[0].keys.join(",")
}

async fn fitted_to(name: &str, text: &str) -> (Initialised, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, text).unwrap();
    let project = folder.path().join("project");
    let made = init(&project, Some(&file), Shape::default()).unwrap();
    let keys = sound(&project).await;
    let settings = std::fs::read_to_string(project.join("basestream.toml")).unwrap();
    (made, keys, settings)
}

#[tokio::test]
async fn the_template_has_no_mistakes() {
    let folder = tempfile::tempdir().unwrap();
    let made = init(folder.path(), None, Shape::default()).unwrap();
    assert_eq!(made.written.len(), 4);
    assert_eq!(sound(folder.path()).await, "device_id");
}

#[test]
fn the_settings_written_are_the_defaults() {
    let folder = tempfile::tempdir().unwrap();
    init(folder.path(), None, Shape::default()).unwrap();
    let written = Settings::load(&folder.path().join("basestream.toml"), &Variables::default()).unwrap();
    assert_eq!(written, Settings::defaults(folder.path()));
}

#[test]
fn nothing_that_is_there_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("basestream.toml"), "# mine\n").unwrap();
    let made = init(folder.path(), None, Shape::default()).unwrap();
    assert_eq!(made.kept, [PathBuf::from("basestream.toml")]);
    assert_eq!(std::fs::read_to_string(folder.path().join("basestream.toml")).unwrap(), "# mine\n");
    assert!(init(folder.path(), None, Shape::default()).unwrap().written.is_empty());
}

#[test]
fn a_clock_that_settings_kept_as_they_are_do_not_have_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.csv");
    std::fs::write(&file, "user,ts\nu,2024-05-01\n").unwrap();
    std::fs::write(folder.path().join("basestream.toml"), "# mine\n").unwrap();
    let text = init(folder.path(), Some(&file), Shape::default()).unwrap().text();
    assert!(text.contains("\n  clock       \"event\" would fit, and basestream.toml is kept as it is: the newest event is of"), "{text}");
}

#[tokio::test]
async fn a_file_gives_its_stream_a_view_by_its_likeliest_key_and_its_own_clock() {
    let csv =
        "order_id,customer_id,ordered_on,units,revenue\no1,c1,1997-01-01,1,11.77\no2,c4,1997-01-01,2,29.33\no3,c4,1998-01-01,2,29.33\n";
    let (made, keys, settings) = fitted_to("orders.csv", csv).await;
    assert_eq!((made.stream.as_str(), made.view.as_str(), keys.as_str()), ("orders", "orders_by_customer", "customer_id"));
    assert!(settings.contains("\nclock = \"event\"                          # \"event\": now is"), "{settings}");
    let clock = "\n  clock       \"event\" in basestream.toml: the newest event is of 1998-01-01T00:00:00Z, more than two";
    assert!(made.text().contains(clock), "events of the past are asked by their own time: {}", made.text());
    assert!(made.next.iter().any(|command| command == "basestream lookup orders_by_customer customer_id=c4"));
}

#[tokio::test]
async fn a_key_whose_values_come_again_goes_before_one_that_is_nearly_unique() {
    let row = |i: u32| format!("{},s{},{},1997-01-{:02}\n", i, i.max(1), if i.is_multiple_of(2) { "de" } else { "fr" }, 1 + i % 28);
    let csv = "id,session_id,country,ts\n".to_owned() + &(0..40).map(row).collect::<String>();
    let (made, keys, _) = fitted_to("visits.csv", &csv).await;
    assert_eq!(keys, "country", "39 of 40 sessions are different");
    let text = made.text();
    for expected in [
        "  event_time  ts, the first column with a time in each record\n",
        "  id          id, different in each of the 40 records that were read",
        "  NOT NULL    columns without a null in all 40 records of the file",
        "  GROUP BY    country, with 2 different values in 40 records\n",
        "  basestream lookup visits_by_country country=fr\n",
        "final once records are committed: a stream's topic, event_time, id and key, and the types and paths of these columns\n",
    ] {
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_time_that_is_none_is_reported_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let found = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        let error = init(&folder.path().join("p"), Some(&file), Shape::default()).unwrap_err();
        assert!(error.fact("file").is_some_and(|file| file.ends_with(name)), "{error}");
        (error.message().to_owned(), error.fact("line").unwrap_or_default().to_owned())
    };
    let looks = "the column \"ts\" looks like the event time, and one record has none: column ts ($.ts): ";
    assert_eq!(
        found("a.csv", "n,ts\n1,2024-01-01T00:00:00Z\n2,2024-01-01T00:00:00Z\n3,yesterday\n"),
        (format!("{looks}found \"yesterday\", expected TIMESTAMPTZ: RFC 3339 text with a zone, years 0001 to 9999"), "4".into())
    );
    assert_eq!(
        found("a.jsonl", "{\"ts\":\"2024-01-01T00:00:00Z\"}\n{\"ts\":\"2024-01-01T00:00:00Z\"}\n{\"ts\":null}\n"),
        (format!("{looks}found null, expected TIMESTAMPTZ NOT NULL"), "3".into())
    );
}

#[tokio::test]
async fn a_file_of_now_is_asked_by_the_wall_clock_and_words_of_sql_are_quoted() {
    let at = engine::events::format_timestamp(crate::now());
    let line = |user: &str, n: u32| format!("{{\"time\":\"{at}\",\"user\":\"{user}\",\"order\":{n},\"select\":{n}}}\n");
    let (made, keys, settings) = fitted_to("my clicks.jsonl", &(line("a", 1) + &line("b", 2) + &line("a", 3))).await;
    assert_eq!(keys, "user");
    assert!(settings.contains("clock = \"wall\""));
    let clock = format!("\n  clock       \"wall\" in basestream.toml: the newest event is of {at}, and windows are to end at the time of");
    assert!(made.text().contains(&clock), "{}", made.text());
}

#[tokio::test]
async fn words_that_end_a_list_of_columns_are_quoted() {
    let csv = "ts,view,offset\n2024-05-01,home,1\n2024-05-02,home,2\n2024-05-03,cart,3\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.csv");
    std::fs::write(&file, csv).unwrap();
    let project = folder.path().join("p");
    init(&project, Some(&file), Shape::default()).unwrap();
    let view = std::fs::read_to_string(project.join("views/a_by_view.sql")).unwrap();
    for part in ["SELECT \"view\",\n", "sum(\"offset\") AS \"offset\"", "GROUP BY \"view\";"] {
        assert!(view.contains(part), "{view}");
    }
    sound(&project).await;
}

#[test]
fn what_is_a_level_is_not_summed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("games.csv");
    std::fs::write(&file, "ts,player,white_elo,moves\n2024-05-01,a,1500,30\n2024-05-02,a,1600,40\n2024-05-03,b,1550,50\n").unwrap();
    let project = folder.path().join("p");
    init(&project, Some(&file), Shape::default()).unwrap();
    let view = std::fs::read_to_string(project.join("views/games_by_player.sql")).unwrap();
    assert!(view.contains("sum(moves)") && !view.contains("sum(white_elo)"), "{view}");
}

#[tokio::test]
async fn a_file_without_a_key_gives_one_row() {
    let (made, keys, _) =
        fitted_to("t.jsonl", "{\"ts\":\"2024-01-01T00:00:00Z\",\"v\":1.5}\n{\"ts\":\"2024-01-01T00:00:01Z\",\"v\":2.5}\n").await;
    assert_eq!((keys.as_str(), made.example_key.as_str()), ("", ""));
}

#[test]
fn a_file_without_a_time_is_refused_with_what_was_found() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.csv");
    std::fs::write(&file, "name,n\na,1\n").unwrap();
    let error = init(&folder.path().join("p"), Some(&file), Shape::default()).unwrap_err();
    assert!(error.message().contains("no column holds a time"), "{error}");
    assert!(!folder.path().join("p").exists(), "nothing was written");
}

#[tokio::test]
async fn a_file_of_one_record_is_not_called_several() {
    let (made, ..) = fitted_to("orders.csv", "order_id,ts\no1,2024-05-01\n").await;
    let text = made.text();
    assert!(text.contains("\n  NOT NULL    columns without a null in the only record of the file; records"), "{text}");
    assert!(text.contains("\n  id          order_id, by its name: ") && !text.contains("1 records"), "{text}");
}

#[tokio::test]
async fn the_type_that_may_be_too_narrow_is_among_what_was_picked() {
    let (made, ..) = fitted_to("orders.csv", "customer_id,ts,units,price\nc1,2024-05-01,1,9.5\nc1,2024-05-02,2,10.25\n").await;
    let text = made.text();
    assert!(text.contains("\n  type        price DECIMAL(18,4): decimal places found: 2 at most; records with more than 4 will"), "{text}");
    assert!(text.contains("\n  type        units BIGINT: found whole numbers alone\n"), "{text}");
}

#[tokio::test]
async fn a_column_of_numbers_and_strings_is_among_what_was_picked_and_in_the_comment() {
    let line = |second: u32, units: &str| format!("{{\"ts\":\"2024-05-01T12:00:{second:02}Z\",\"user\":\"u\",\"units\":{units}}}\n");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.jsonl");
    std::fs::write(&file, line(1, "7") + &line(2, "\"n/a\"")).unwrap();
    let project = folder.path().join("p");
    let text = init(&project, Some(&file), Shape::default()).unwrap().text();
    let said = "units JSON: a number on line 1 (7) and a string on line 2 (\"n/a\")";
    assert!(text.contains(&format!("\n  type        {said}; choose a type, and records with")), "{text}");
    let stream = std::fs::read_to_string(project.join("streams/a.sql")).unwrap();
    assert!(stream.contains(&format!("\n-- {said}.\n")), "{stream}");
    sound(&project).await;
}

#[tokio::test]
async fn a_column_with_a_few_texts_is_among_what_was_picked_and_in_the_comment() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.csv");
    std::fs::write(&file, "ts,price\n2024-05-01,1.5\n2024-05-01,2.5\n2024-05-01,n/a\n2024-05-01,3.5\n2024-05-01,4.5\n").unwrap();
    let project = folder.path().join("p");
    let text = init(&project, Some(&file), Shape::default()).unwrap().text();
    let (said, change) =
        ("price TEXT: 4 of 5 values are numbers, 1 is not, the first \"n/a\" on line 4", "if all should be numbers, declare it");
    assert!(text.contains(&format!("\n  type        {said}; {change} DECIMAL(18,4), and records")), "{text}");
    let stream = std::fs::read_to_string(project.join("streams/a.sql")).unwrap();
    assert!(stream.contains(&format!("\n-- {said};\n--   {change} DECIMAL(18,4), and records")), "{stream}");
    sound(&project).await;
}

#[tokio::test]
async fn a_column_that_repeats_in_a_few_records_is_among_what_was_picked() {
    let row = |i: usize| format!("{},2024-05-01,9.5\n", i.max(1));
    let csv = "payment_id,ts,price\n".to_owned() + &(0..50).map(row).collect::<String>();
    let (made, ..) = fitted_to("payments.csv", &csv).await;
    let text = made.text();
    let note = "\n  id          payment_id repeats in 1 of 50 records: if these are repeats, set id = 'payment_id'\n";
    assert!(text.contains(note), "{text}");
}

#[tokio::test]
async fn the_key_to_look_up_is_one_of_the_newest_event_and_safe_in_a_shell() {
    let csv = "user,ts,amount\nnew ö$,2024-05-03,1\nold,2024-05-01,2\nold,2024-05-02,3\n";
    let (made, ..) = fitted_to("visits.csv", csv).await;
    assert_eq!(made.example_key, "user=new ö$");
    assert!(made.next.iter().any(|command| command == "basestream lookup visits_by_user 'user=new ö$'"), "{:?}", made.next);
}

/// A year that was mistyped: such an event becomes a dead letter.
#[tokio::test]
async fn an_event_of_the_far_future_decides_neither_the_clock_nor_the_windows() {
    let (made, _, settings) = fitted_to("visits.csv", "user,ts\na,2024-05-01\nb,2024-05-01\na,2024-05-02\nc,9999-05-01\n").await;
    assert!(settings.contains("\nclock = \"event\""), "{settings}");
    assert!(made.text().contains("the newest event is of 2024-05-02T00:00:00Z"), "{}", made.text());
    assert_eq!(made.example_key, "user=a");
}

#[test]
fn numbers_that_say_which_or_where_are_not_summed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.csv");
    let header = "ip,ts,order_no,http_response_status,loc_lat,server_port,year,volume\n";
    std::fs::write(
        &file,
        header.to_owned() + "a,2024-05-01,1,200,52.5,443,2024,10\na,2024-05-02,2,404,52.5,443,2024,20\nb,2024-05-03,2,200,1.5,80,2024,7\n",
    )
    .unwrap();
    init(&folder.path().join("p"), Some(&file), Shape::default()).unwrap();
    let view = std::fs::read_to_string(folder.path().join("p/views/access_by_ip.sql")).unwrap();
    assert_eq!(view.matches("sum(").count(), 1, "{view}");
    assert!(view.contains("sum(volume) AS volume"), "{view}");
}

#[test]
fn the_command_to_ingest_names_the_file_without_steps_up_and_what_was_said_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let root = std::fs::canonicalize(folder.path()).unwrap();
    std::fs::create_dir(root.join("w")).unwrap();
    std::fs::write(root.join("a.txt"), "user|ts\nu|2024-05-01\nu|2024-05-02\n").unwrap();
    let shape = Shape { format: Some(Format::Csv), delimiter: Some(b'|'), numbers: None };
    let made = init(&root.join("p"), Some(&root.join("w/../a.txt")), shape).unwrap();
    let expected = format!("basestream ingest a {}/a.txt --format csv --delimiter '|'", root.display());
    assert!(made.next.contains(&expected), "{:?}", made.next);
}

#[test]
fn a_file_with_a_stray_quote_makes_no_project() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.csv");
    // After the records from which the stream is guessed.
    let rows = |from: u32, to: u32| (from..to).map(|i| format!("u{i},2024-05-01,\"n\"\n")).collect::<String>();
    std::fs::write(&file, "user,ts,note\n".to_owned() + &rows(0, 1_500) + "u,2024-05-01,\"n\n" + &rows(0, 9)).unwrap();
    let error = init(&folder.path().join("p"), Some(&file), Shape::default()).unwrap_err();
    assert!(error.message().starts_with("the quote opened on line 1502 is closed in the middle of a cell on line 1503"), "{error}");
    assert!(error.fact("file").is_some_and(|file| file.ends_with("a.csv")), "{error}");
    assert!(!folder.path().join("p").exists());
}

#[tokio::test]
async fn a_file_with_german_numbers_and_times_without_a_zone_says_so_and_how_to_ingest_it() {
    let row = |i: u32| format!("c{};2024-05-01 10:00;B-{i};{}.027,90\n", i % 9, 1 + i % 9);
    let csv = "customer_id;ts;beleg_nr;revenue\n".to_owned() + &(0..100).map(row).collect::<String>();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sales.csv");
    std::fs::write(&file, csv).unwrap();
    let project = folder.path().join("p");
    let made = init(&project, Some(&file), Shape::default()).unwrap();
    assert_eq!(sound(&project).await, "customer_id");
    let text = made.text();
    for expected in [
        "\n  numbers     written as 1.234,56; ",
        "\n  zone        ts has times without a zone, such as 2024-05-01 10:00: they are read as UTC\n",
        "\n  id          none; proposed is beleg_nr, different in each of the 100 records that were read: add id = 'beleg_nr' if",
        "/sales.csv --numbers 1.234,56\n",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let stream = std::fs::read_to_string(project.join("streams/sales.sql")).unwrap();
    assert!(stream.starts_with("-- Guessed from all 100 records of sales.csv: review it.\n"), "{stream}");
    assert!(stream.contains("\n-- The file writes numbers as 1.234,56: ingest it with --numbers \"1.234,56\".\n"), "{stream}");
    assert!(stream.contains("\n-- Proposal: id = 'beleg_nr', if no two events have the same beleg_nr.\n"), "{stream}");
    assert!(stream.contains("revenue      DECIMAL(18,2) NOT NULL"), "{stream}");
}

#[test]
fn the_layers_are_started_before_the_file_is_ingested_as_in_the_pages() {
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path().join("p");
    let made = init(&project, None, Shape::default()).unwrap();
    let enter = format!("cd {}", project.display());
    let commands: Vec<&str> = made.next.iter().map(|command| command.split('#').next().unwrap().trim()).collect();
    let expected = ["basestream check", "basestream apply", "basestream up", enter.as_str(), "basestream ingest transactions events.jsonl"];
    assert_eq!((commands[0], &commands[1..6]), (&*enter, &expected[..]));
    let printed = made.next.join("\n");
    let pages = [include_str!("../../../README.md"), include_str!("../../../docs/start.md"), crate::cli::EXAMPLES, printed.as_str()];
    for page in pages {
        let mut rest = page;
        for command in ["up", "ingest", "lookup", "query", "batch run", "verify"] {
            let (_, after) = rest.split_once(&format!("basestream {command}")).unwrap_or_else(|| panic!("{command} is missing: {page}"));
            rest = after;
        }
    }
}
