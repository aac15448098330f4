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

#[test]
fn a_page_of_another_site_is_known_by_its_origin_where_a_browser_says_nothing_else() {
    let mut needs_token = open();
    needs_token.authenticator.is_required = true;
    let (hosts, protected) = (Hosts::new(&open(), loopback()), Hosts::new(&needs_token, loopback()));
    let request = |method: Method, host: &str, headers: &[(&str, &str)]| {
        let request = Request::builder().method(method).uri("/v1/sql").header(HOST, host);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.body(axum::body::Body::empty()).unwrap()
    };
    let foreign = |host: &str, headers: &[(&str, &str)]| hosts.is_from_another_site(&request(Method::POST, host, headers));
    for (host, origin) in [
        ("0.0.0.0:8080", "https://evil.example"),
        ("192.0.2.7:8080", "http://192.0.2.8:8080"),
        ("192.0.2.7:8080", "http://192.0.2.7"),
        ("192.0.2.7:8080", "http://box.example.evil.example"),
        ("192.0.2.7:8080", "null"),
    ] {
        assert!(foreign(host, &[("origin", origin)]), "{host} {origin}");
        assert!(!hosts.is_from_another_site(&request(Method::GET, host, &[("origin", origin)])), "a page may read nothing of it");
        let of_token = request(Method::POST, host, &[("origin", origin)]);
        assert!(!protected.is_from_another_site(&of_token), "a page of another site has no token");
    }
    for (host, origin) in [
        ("192.0.2.7:8080", "http://192.0.2.7:8080"),
        ("0.0.0.0:8080", "http://0.0.0.0:8080"),
        ("node.example", "https://Node.example"),
        ("127.0.0.1:8080", "http://box.example"),
    ] {
        assert!(!foreign(host, &[("origin", origin)]), "{host} {origin}");
    }
    assert!(!foreign("127.0.0.1:8080", &[]), "a program is no browser");
    let says_more = |site| [("origin", "http://dashboards.example"), ("sec-fetch-site", site)];
    assert!(!foreign("127.0.0.1:8080", &says_more("same-origin")), "a proxy may ask by another name");
    assert!(foreign("127.0.0.1:8080", &says_more("same-site")));
}
