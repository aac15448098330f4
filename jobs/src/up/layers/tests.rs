use super::*;

fn settings(advertise: Option<&str>) -> Settings {
    let mut settings = Settings::default();
    settings.speed.flight_advertise = advertise.map(str::to_owned);
    settings
}

#[test]
fn nodes_are_sent_where_they_can_reach_the_worker() {
    let bound = |text: &str| text.parse::<SocketAddr>().unwrap();
    let address = |advertise, at, tls| advertised(&settings(advertise), bound(at), tls).unwrap();
    assert_eq!(address(None, "10.0.0.7:7000", false), "http://10.0.0.7:7000");
    assert_eq!(address(None, "[::1]:7000", true), "https://[::1]:7000");
    assert_eq!(address(Some("worker-1"), "0.0.0.0:41234", true), "https://worker-1:41234");
    assert_eq!(address(Some("proxy:443"), "0.0.0.0:41234", true), "https://proxy:443");
    let error = advertised(&settings(None), bound("0.0.0.0:7000"), false).unwrap_err().to_string();
    assert!(error.contains("speed.flight_advertise"), "{error}");
}
