use parquet::errors::ParquetError;

use super::*;

fn full_disk() -> io::Error {
    io::ErrorKind::StorageFull.into()
}

#[test]
fn an_error_of_a_library_stays_the_source_and_is_shown_once() {
    fn expect_source<S: std::error::Error + 'static>(error: Error) {
        let source = std::error::Error::source(&error);
        assert!(source.is_some_and(|source| source.is::<S>()), "{error}");
        assert!(error.cause().is_none() && error.to_string() == error.message(), "{error}");
        let around = Error::internal("around").with("file", "a").caused_by(error.copied());
        assert_eq!(around.to_string(), format!("around (file: a): {error}"));
        assert_eq!(around.message_with_cause(), format!("around: {error}"));
    }
    expect_source::<io::Error>(full_disk().into());
    expect_source::<sqlx::Error>(sqlx::Error::PoolTimedOut.into());
    expect_source::<ParquetError>(ParquetError::EOF("the file ends".into()).into());
    expect_source::<arrow::error::ArrowError>(arrow::error::ArrowError::DivideByZero.into());
    expect_source::<DataFusionError>(DataFusionError::Execution("it is wrong".into()).into());
    expect_source::<serde_json::Error>(serde_json::from_str::<u8>("x").unwrap_err().into());
    let silent = object_store::Error::Generic { store: "S3", source: "http://host/bucket does not answer".into() };
    expect_source::<object_store::Error>(silent.into());
}

#[test]
fn a_full_disk_is_found_below_every_conversion() {
    let of_arrow = arrow::error::ArrowError::IoError("writing".into(), full_disk());
    let of_storage = object_store::Error::Generic { store: "LocalFileSystem", source: Box::new(full_disk()) };
    let of_datafusion = DataFusionError::IoError(full_disk()).context("spilling");
    let errors: [Error; 5] =
        [full_disk().into(), of_arrow.into(), of_storage.into(), sqlx::Error::Io(full_disk()).into(), of_datafusion.into()];
    for error in errors {
        assert!(error.is_of_full_disk(), "{error}");
        assert!(Error::internal("around").caused_by(error.copied()).is_of_full_disk(), "a copy of {error}");
    }
    let forbidden = Error::from(io::Error::from(io::ErrorKind::PermissionDenied));
    assert!(!forbidden.is_of_full_disk() && !Error::unavailable("the disk is full").is_of_full_disk());
}

#[test]
fn a_file_that_a_disk_cannot_read_is_found_below_the_errors_of_a_storage() {
    for error in [io::Error::from_raw_os_error(libc::EIO), io::ErrorKind::IsADirectory.into()] {
        let text = error.to_string();
        let error = Error::from(object_store::Error::Generic { store: "LocalFileSystem", source: Box::new(error) });
        assert_eq!(error.unreadable_file().map(ToString::to_string), Some(text));
    }
    assert!(Error::from(full_disk()).unreadable_file().is_none());
}

#[test]
fn an_error_inside_datafusions_is_found_although_it_was_made_from_one() {
    let ours = Error::from(DataFusionError::ResourcesExhausted("too much".into())).with("view", "totals");
    let expected = (ErrorKind::Limit, ours.to_string());
    let wrapped = DataFusionError::from(ours).context("while planning");
    assert!(matches!(Error::datafusion_root(&wrapped), DataFusionError::External(_)), "{wrapped}");
    assert_eq!(Error::plain_message(&wrapped), expected.1);
    let shared = Error::from(DataFusionError::Shared(Arc::new(wrapped)));
    assert_eq!((shared.kind(), shared.to_string()), expected);
}

#[test]
fn an_error_that_repeats_a_password_is_not_kept() {
    let text = "http://user:secret@host/bucket does not answer";
    let error = Error::from(object_store::Error::Generic { store: "S3", source: text.into() });
    assert!(!error.message().contains("secret") && std::error::Error::source(&error).is_none(), "{error}");
}
