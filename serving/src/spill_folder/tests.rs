use std::io;

use super::*;

/// What Linux calls a disk without space.
const ENOSPC: i32 = 28;

#[test]
fn an_error_of_the_disk_names_the_folder_and_its_setting_and_another_stays_what_it_is() {
    let cache = tempfile::tempdir().unwrap();
    let folder = SpillFolder::make_in(cache.path()).unwrap();
    assert!(folder.path().is_dir());
    let full = || io::Error::from_raw_os_error(ENOSPC);
    // DataFusion writes by Arrow, below which its own error may be hidden.
    let hidden = io::Error::other(DataFusionError::IoError(full()));
    let of_arrow = ArrowError::IoError(hidden.to_string(), hidden);
    let errors = [
        DataFusionError::IoError(full()),
        DataFusionError::ArrowError(Box::new(of_arrow), None),
        DataFusionError::IoError(full()).context("spilling"),
        DataFusionError::Shared(Arc::new(DataFusionError::IoError(full()))),
    ];
    for error in errors {
        let named = Error::from(folder.named(error));
        assert_eq!(named.kind(), types::ErrorKind::Unavailable, "{named}");
        assert_eq!(named.fact("disk"), Some("full"), "{named}");
        assert_eq!(named.fact("folder"), Some(&*folder.path().display().to_string()), "{named}");
        assert_eq!(named.fact("setting"), Some("serving.cache_dir"), "{named}");
        assert!(named.to_string().contains("No space left on device"), "{named}");
    }
    let forbidden = Error::from(folder.named(DataFusionError::IoError(ErrorKind::PermissionDenied.into())));
    assert_eq!((forbidden.fact("setting"), forbidden.fact("disk")), (Some("serving.cache_dir"), None), "{forbidden}");
    let removed = Error::from(folder.named(DataFusionError::IoError(ErrorKind::NotFound.into())));
    assert!(removed.fact("help").unwrap().contains("somebody removed the folder"), "{removed}");
    assert!(matches!(folder.named(DataFusionError::Plan("x".into())), DataFusionError::Plan(_)));
    for ours in [Error::unavailable("the storage does not answer"), Error::from(DataFusionError::IoError(full()))] {
        let of_storage = Error::from(folder.named(ours.into()));
        assert_eq!(of_storage.fact("setting"), None, "{of_storage}");
    }
}
