use super::*;

fn check(hosts: &Hosts, uri: &str, host: Option<&str>) -> bool {
    let request = Request::builder().uri(uri);
    let request = host.into_iter().fold(request, |request, host| request.header(HOST, host));
    hosts.check(&request.body(axum::body::Body::empty()).unwrap()).is_ok()
}

fn loopback() -> Option<SocketAddr> {
    Some(([127, 0, 0, 1], 8080).into())
}

fn open() -> Protection {
    Protection { hosts: Arc::new(["Box.example".to_owned()].into()), ..Protection::none(Arc::new(|| 0)).unwrap() }
}

#[test]
fn where_everyone_of_this_machine_may_ask_a_name_of_another_site_is_refused() {
    let hosts = Hosts::new(&open(), loopback());
    for host in
        ["localhost", "LOCALHOST:8080", "app.localhost", "127.0.0.1:8080", "[::1]:8080", "192.0.2.7", "box.example", "box.example.:80"]
    {
        assert!(check(&hosts, "/v1/views", Some(host)), "{host}");
    }
    for host in ["evil.example", "evil.example:8080", "localhost.evil.example", "notlocalhost", "127.0.0.1.evil.example", "a b", ""] {
        assert!(!check(&hosts, "/v1/views", Some(host)), "{host}");
    }
    assert!(check(&hosts, "/v1/views", None), "a program without a name is no browser");
    assert!(!check(&hosts, "http://evil.example/v1/views", Some("localhost")), "the request line counts first");
}

#[test]
fn where_a_token_is_needed_or_other_machines_ask_any_name_will_do() {
    let mut needs_token = open();
    needs_token.authenticator.is_required = true;
    assert!(check(&Hosts::new(&needs_token, loopback()), "/", Some("evil.example")));
    assert!(check(&Hosts::new(&open(), Some(([192, 0, 2, 7], 80).into())), "/", Some("evil.example")));
    assert!(check(&Hosts::new(&open(), None), "/", Some("evil.example")));
}
