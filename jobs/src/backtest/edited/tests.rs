use catalog::DefinitionRecord;

use super::*;

const STREAM: &str = "CREATE STREAM s (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, k TEXT, x BIGINT) WITH (topic = 'in', event_time = 'ts')";
const COUNTED: &str = "CREATE VIEW counted AS SELECT k, count(*) AS n FROM s GROUP BY k";
const LARGE: &str = "CREATE VIEW large AS SELECT k, x FROM s WHERE x > 5";
const SUMMED: &str = "CREATE VIEW summed AS SELECT k, sum(x) AS x FROM large GROUP BY k";
/// [`SUMMED`] as it is stored: with the view that it reads in its text.
const STORED: &str =
    "CREATE VIEW summed AS WITH large AS (\nSELECT k, x FROM s WHERE x > 5\n)\nSELECT k, sum(x) AS x FROM large GROUP BY k";
const MOST: &str = "CREATE PARAMETER most = 4";
const SCORED: &str = "CREATE SINK scored WITH (topic = 'out') AS
    SELECT e.id, c.n, v.x FROM s e LEFT JOIN counted c ON c.k = e.k LEFT JOIN summed v ON v.k = e.k";

fn applied() -> CatalogState {
    let definitions = [
        DefinitionRecord::first(DefinitionKind::Stream, "s", STREAM),
        DefinitionRecord::first(DefinitionKind::View, "counted", COUNTED),
        DefinitionRecord::first(DefinitionKind::View, "large", LARGE),
        DefinitionRecord::first(DefinitionKind::View, "summed", STORED),
        DefinitionRecord::first(DefinitionKind::Parameter, "most", MOST),
    ];
    CatalogState { definitions: definitions.into_iter().collect(), ..CatalogState::default() }
}

/// A file with these statements and an edited sink.
fn edited_file(statements: &[&str]) -> Result<EditedFile> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edited.sql");
    std::fs::write(&path, [statements, &[SCORED]].concat().join(";\n")).unwrap();
    let mut mistakes = Mistakes::default();
    let file = EditedFile::read(&applied(), &path, "scored", &mut mistakes)?;
    mistakes.into_result()?;
    file.ok_or_else(|| Error::internal("no mistake was noted"))
}

#[test]
fn a_view_of_the_file_is_edited_if_it_means_something_else_than_the_applied_one() {
    let every = COUNTED.replace(" AS SELECT", " WITH (every = '1h') AS SELECT");
    let (counted, large) = (COUNTED.replace("FROM s", "FROM s WHERE x > 1"), LARGE.replace("> 5", "> 6"));
    let unread = counted.replace("counted", "unread");
    let cases: [(&[&str], &[&str]); 8] = [
        (&[], &[]),
        (&[STREAM, COUNTED], &[]),
        (&[&*every], &[]),
        (&[&*unread], &[]),
        (&[&*counted], &["counted"]),
        (&[SUMMED], &[]),
        (&[SUMMED, LARGE], &[]),
        (&[SUMMED, &*large], &["summed"]),
    ];
    for (statements, edited) in cases {
        let file = edited_file(statements).unwrap_or_else(|error| panic!("{statements:?}: {error}"));
        let names: Vec<&str> = file.views.iter().map(|view| &*view.name).collect();
        assert_eq!(names, edited, "{statements:?}");
    }
}

#[test]
fn what_has_no_meaning_beside_an_edited_sink_is_refused() {
    let large = LARGE.replace("> 5", "> 6");
    let stream = STREAM.replace("x BIGINT", "x DOUBLE");
    let other = STREAM.replace("CREATE STREAM s", "CREATE STREAM other").replace("'in'", "'other'");
    for (statement, why) in [
        (&*large, "the view \"summed\" reads \"large\", which the file of the edited sink has otherwise than it is applied"),
        (&*stream, "the file of the edited sink has the stream \"s\" otherwise than it is applied"),
        (&*other, "the file of the edited sink has the stream \"other\" otherwise than it is applied"),
        ("CREATE VIEW s AS SELECT k, count(*) AS n FROM other GROUP BY k", "the catalog has a stream of that name"),
    ] {
        let error = edited_file(&[statement]).err().unwrap_or_else(|| panic!("{statement} is taken"));
        assert!(error.to_string().contains(why), "{error}");
    }
    let error = edited_file(&[COUNTED, &*stream]).err().unwrap();
    assert_eq!(error.fact("line"), Some("2"), "{error}");
    assert!(error.fact("file").is_some_and(|file| file.ends_with("edited.sql")), "{error}");
}

#[test]
fn a_value_in_effect_stays_unless_the_file_has_another_initial_value_than_is_applied() {
    let mut in_effect = Parameters::initial(&[parse::parse_parameter(MOST).unwrap()]);
    in_effect.set("most", "9", 2).unwrap();
    let cases: [(&[&str], &str); 3] = [(&[], "9"), (&[MOST], "9"), (&["CREATE PARAMETER most = 5"], "5")];
    for (statements, most) in cases {
        let values = edited_file(statements).unwrap().values(&in_effect);
        assert_eq!(values.get("most").unwrap().value, most, "{statements:?}");
    }
    let values = edited_file(&["CREATE PARAMETER least = 1"]).unwrap().values(&in_effect);
    assert_eq!((&*values.get("least").unwrap().value, &*values.get("most").unwrap().value), ("1", "9"));
}
