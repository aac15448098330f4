use types::ErrorKind;

use super::*;

#[test]
fn only_loopback_is_open_unless_it_is_said() {
    let is_open = |address: &str, required| may_listen("serving.http", address.parse().unwrap(), required).is_ok();
    for loopback in ["127.0.0.1:8080", "127.8.8.8:1", "[::1]:8080", "[::ffff:127.0.0.1]:8080"] {
        assert!(is_open(loopback, None), "{loopback}");
    }
    for reached in ["0.0.0.0:8080", "10.0.0.7:8080", "[::]:8080", "[::ffff:10.0.0.7]:80", "192.168.1.2:0"] {
        assert!(!is_open(reached, None), "{reached}");
        assert!(is_open(reached, Some(true)) && is_open(reached, Some(false)), "{reached}");
    }
}

#[test]
fn the_refusal_names_the_setting_and_the_three_ways_out() {
    let error = may_listen("speed.http", "0.0.0.0:8081".parse().unwrap(), None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input);
    for part in ["speed.http = \"0.0.0.0:8081\"", "required = true", "basestream token create", "127.0.0.1", "required = false"] {
        assert!(error.message().contains(part), "{part}: {error}");
    }
}
