//! Exchanges with a client of the tests, and what no client may do.

use std::num::NonZeroU32;
use std::sync::Arc;

use access::{Keyring, NewToken, new_token, proof_of_client, salted};
use catalog::Role;

use super::*;

const CERTIFICATE: &[u8] = b"the hash of a certificate";

fn authenticator(is_required: bool) -> (Authenticator, String) {
    let keyring = Keyring::new().unwrap();
    let new = NewToken {
        name: "grafana".into(),
        role: Role::Reader,
        views: Vec::new(),
        streams: Vec::new(),
        created_by: "tests".into(),
        expires_at: None,
    };
    let (token, record) = new_token(new, 0).unwrap();
    keyring.set(vec![record]);
    (Authenticator { is_required, keyring, issuer: None, clock: Arc::new(|| 1) }, token)
}

/// What a client answers to the server's first message.
fn last(first: &str, server_first: &str, password: &str, binding: &[u8]) -> String {
    let attribute = |name: &str| server_first.split(',').find_map(|attribute| attribute.strip_prefix(name)).unwrap();
    let salt = BASE64_STANDARD.decode(attribute("s=")).unwrap();
    let salted = salted(password.as_bytes(), &salt, NonZeroU32::new(attribute("i=").parse().unwrap()).unwrap());
    let without_proof = format!("c={},r={}", BASE64_STANDARD.encode(binding), attribute("r="));
    let proof = proof_of_client(&salted, format!("{first},{server_first},{without_proof}").as_bytes());
    format!("{without_proof},p={}", BASE64_STANDARD.encode(proof))
}

fn log_in(user: &str, password: &str) -> Result<Arc<Principal>, SqlProblem> {
    let (authenticator, token) = authenticator(true);
    let exchange = Exchange::begin(PLAIN, "n,,n=,r=abc", user, &authenticator, None, "def")?;
    let password = if password == "the token" { &token } else { password };
    exchange.finish(&last("n=,r=abc", &exchange.server_first, password, b"n,,")).map(|(_, principal)| principal)
}

#[test]
fn a_user_is_a_tokens_name_and_its_password_the_token() {
    assert_eq!(&*log_in("grafana", "the token").unwrap().name, "grafana");
    let refusals = [log_in("grafana", "another"), log_in("nobody", "the token")].map(|refused| refused.unwrap_err());
    assert!(refusals.iter().all(|problem| problem.state == INVALID_PASSWORD), "{refusals:?}");
}

#[test]
fn an_exchange_is_bound_to_the_certificate_and_to_its_nonce() {
    let (authenticator, token) = authenticator(true);
    let begin = |mechanism, first: &str, certificate| Exchange::begin(mechanism, first, "grafana", &authenticator, certificate, "def");
    let bound = begin(BOUND, "p=tls-server-end-point,,n=,r=abc", Some(CERTIFICATE)).unwrap();
    let with = |binding: &[u8]| bound.finish(&last("n=,r=abc", &bound.server_first, &token, binding));
    assert!(with(&[BINDING.as_bytes(), CERTIFICATE].concat()).is_ok());
    assert_eq!(with(&[BINDING.as_bytes(), b"the hash of another"].concat()).unwrap_err().state, PROTOCOL_VIOLATION);
    assert_eq!(with(b"n,,").unwrap_err().state, PROTOCOL_VIOLATION);

    let other_nonce =
        last("n=,r=abc", &bound.server_first, &token, &[BINDING.as_bytes(), CERTIFICATE].concat()).replace("r=abcdef", "r=abcxyz");
    assert_eq!(bound.finish(&other_nonce).unwrap_err().state, PROTOCOL_VIOLATION);

    // Somebody in between took the binding out of what the server offered.
    assert!(begin(PLAIN, "y,,n=,r=abc", Some(CERTIFICATE)).is_err());
    assert!(begin(PLAIN, "y,,n=,r=abc", None).is_ok(), "the server cannot bind without encryption");
    for (mechanism, first) in
        [(BOUND, "p=tls-server-end-point,,n=,r=abc"), (PLAIN, "p=tls-unique,,n=,r=abc"), ("MD5", "n,,n=,r=abc"), (PLAIN, "n,,n=")]
    {
        assert!(begin(mechanism, first, None).is_err(), "{mechanism} {first}");
    }
}

#[tokio::test]
async fn without_a_required_principal_nothing_is_asked() {
    let (authenticator, _) = authenticator(false);
    let (mut server, mut client) = tokio::io::duplex(1024);
    let caller = login(&mut server, &mut BytesMut::new(), "anybody", &authenticator, None).await.unwrap();
    assert!(caller.may_go_on().is_ok());
    drop(server);
    assert_eq!(client.read_u8().await.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
}

#[test]
fn a_revoked_token_ends_its_connections() {
    let (authenticator, token) = authenticator(true);
    let principal = authenticator.keyring.principal(&token, 1).unwrap();
    let caller = Caller { principal, authenticator: Some(authenticator.clone()) };
    assert!(caller.may_go_on().is_ok());
    authenticator.keyring.set(Vec::new());
    assert_eq!(caller.may_go_on().unwrap_err().state, INVALID_AUTHORIZATION);
}
