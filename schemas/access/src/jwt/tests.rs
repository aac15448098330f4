use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use types::ErrorKind;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use super::*;

/// An issuer on this machine: its keys have the ids that it is given.
#[derive(Clone)]
struct Fake {
    url: String,
    pair: Arc<EcdsaKeyPair>,
    ids: Arc<RwLock<Vec<&'static str>>>,
    asked: Arc<AtomicUsize>,
    /// It takes requests and answers none.
    is_silent: Arc<AtomicBool>,
}

impl Fake {
    async fn start() -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref(), &SystemRandom::new()).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let fake = Fake { url, pair: Arc::new(pair), ids: Arc::default(), asked: Arc::default(), is_silent: Arc::default() };
        let serving = fake.clone();
        tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((mut connection, _)) = listener.accept().await {
                if serving.is_silent.load(Ordering::SeqCst) {
                    held.push(connection);
                    continue;
                }
                let mut request = vec![0; 4096];
                let read = connection.read(&mut request).await.unwrap_or(0);
                let body = serving.answer(&String::from_utf8_lossy(&request[..read]));
                let reply = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                let _ = connection.write_all(reply.as_bytes()).await;
            }
        });
        fake
    }

    fn answer(&self, request: &str) -> String {
        if request.starts_with("GET /.well-known/openid-configuration ") {
            return json!({ "issuer": self.url, "jwks_uri": format!("{}/keys", self.url) }).to_string();
        }
        self.asked.fetch_add(1, Ordering::SeqCst);
        let point = self.pair.public_key().as_ref();
        let encoded = |bytes| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let key = |id| json!({ "kty": "EC", "crv": "P-256", "kid": id, "x": encoded(&point[1..33]), "y": encoded(&point[33..]) });
        json!({ "keys": self.ids.read().unwrap().iter().map(key).collect::<Vec<_>>() }).to_string()
    }

    fn token(&self, id: &str) -> String {
        let encoded = |json: serde_json::Value| BASE64_URL_SAFE_NO_PAD.encode(json.to_string());
        let claims = json!({ "iss": self.url, "aud": "basestream", "sub": "ann", "exp": 1_000_000, "roles": "reader" });
        let message = format!("{}.{}", encoded(json!({ "alg": "ES256", "kid": id })), encoded(claims));
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    fn issuer(&self) -> Issuer {
        Issuer::new(IssuerSettings { issuer: self.url.clone(), audience: "basestream".into(), roles_claim: "roles".into() }).unwrap()
    }

    fn has(&self, ids: &[&'static str]) {
        *self.ids.write().unwrap() = ids.to_vec();
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// The process's clock, by which tokens expire, stands still: only the time since the last question counts for keys.
struct Asking {
    issuer: Issuer,
    begun: Instant,
}

impl Asking {
    fn begin(fake: &Fake) -> Asking {
        Asking { issuer: fake.issuer(), begun: Instant::now() }
    }

    async fn principal(&self, jwt: &str, after: Duration) -> Result<Principal> {
        self.issuer.principal_at(jwt, 0, self.begun + after).await
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test]
async fn keys_are_read_once_and_again_for_a_new_one_with_a_limit() {
    let fake = Fake::start().await;
    fake.has(&["one"]);
    let asking = Asking::begin(&fake);
    assert_eq!(&*asking.principal(&fake.token("one"), seconds(0)).await.unwrap().name, "oidc:ann");
    assert!(asking.principal(&fake.token("one"), seconds(1)).await.is_ok());
    assert_eq!(fake.asked(), 1);

    // The issuer changes its key: an unknown one is a reason to ask, and no more than one in half a minute.
    fake.has(&["one", "two"]);
    for after in [2, 3, 29] {
        assert_eq!(asking.principal(&fake.token("two"), seconds(after)).await.unwrap_err().kind(), ErrorKind::Unauthenticated);
    }
    assert_eq!(fake.asked(), 1);
    assert!(asking.principal(&fake.token("two"), ASK_AGAIN).await.is_ok());
    for id in ["three", "four", "five"] {
        assert!(asking.principal(&fake.token(id), ASK_AGAIN + seconds(1)).await.is_err());
    }
    assert_eq!(fake.asked(), 2);

    // A key that the issuer has withdrawn counts until the keys are read again, which happens in the background.
    fake.has(&["two"]);
    let withdrawn = async {
        while asking.principal(&fake.token("one"), ASK_AGAIN + KEYS_LAST).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(seconds(60), withdrawn).await.expect("timed out: the key counts");
    assert_eq!(fake.asked(), 3);
}

#[tokio::test]
async fn keys_that_were_not_asked_for_again_for_long_are_before_they_count() {
    let fake = Fake::start().await;
    fake.has(&["one"]);
    let asking = Asking::begin(&fake);
    assert!(asking.principal(&fake.token("one"), seconds(0)).await.is_ok());
    fake.has(&["two"]);
    assert!(asking.principal(&fake.token("one"), KEYS_LAST_UNASKED).await.is_err());
    assert_eq!(fake.asked(), 2);
}

#[tokio::test]
async fn while_the_issuer_hangs_who_has_a_known_key_does_not_wait() {
    let fake = Fake::start().await;
    fake.has(&["one"]);
    let asking = Asking::begin(&fake);
    let token = fake.token("one");
    assert!(asking.principal(&token, seconds(0)).await.is_ok());
    fake.is_silent.store(true, Ordering::SeqCst);
    for after in 0..3 {
        let mut asked = pin!(asking.principal(&token, KEYS_LAST + seconds(after)));
        let answer = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(answer, Poll::Ready(Ok(_))), "{after}: {answer:?}");
        assert!(asking.issuer.0.asking.try_lock().is_err(), "the issuer is asked meanwhile");
    }
}

#[tokio::test]
async fn without_any_key_it_is_unavailable_and_with_some_they_stay() {
    let fake = Fake::start().await;
    let asking = Asking::begin(&fake);
    // It has none that can be used.
    assert_eq!(asking.principal(&fake.token("one"), seconds(0)).await.unwrap_err().kind(), ErrorKind::Unavailable);
    fake.has(&["one"]);
    assert_eq!(asking.principal(&fake.token("one"), seconds(1)).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(asking.principal(&fake.token("one"), ASK_AGAIN).await.is_ok());
    fake.has(&[]);
    for after in [ASK_AGAIN + KEYS_LAST, ASK_AGAIN + KEYS_LAST_UNASKED] {
        assert!(asking.principal(&fake.token("one"), after).await.is_ok());
    }
}

#[tokio::test]
async fn an_issuer_without_a_known_key_is_an_outage_until_it_has_one() {
    let fake = Fake::start().await;
    let (issuer, begun) = (fake.issuer(), Instant::now());
    assert_eq!(issuer.outage(), None, "nobody has asked it yet");
    issuer.ask(begun).await;
    let outage = issuer.outage().unwrap();
    assert_eq!(outage.what, ISSUER_UNREAD);
    assert!(outage.error.contains("no key that can be used"), "{outage:?}");
    fake.has(&["one"]);
    issuer.ask(begun + ASK_AGAIN).await;
    assert_eq!(issuer.outage(), None);
    fake.has(&[]);
    issuer.ask(begun + ASK_AGAIN * 2).await;
    assert_eq!((issuer.outage(), fake.asked()), (None, 3), "the known keys count");
}

#[tokio::test]
async fn an_issuer_is_asked_before_the_first_jwt() {
    let fake = Fake::start().await;
    fake.has(&["one"]);
    let (issuer, stop) = (fake.issuer(), CancellationToken::new());
    let watching = tokio::spawn({
        let (issuer, stop) = (issuer.clone(), stop.clone());
        async move { issuer.watch(stop).await }
    });
    let asked = async {
        while issuer.known().answered_at.is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(seconds(60), asked).await.expect("timed out: the issuer was not asked");
    stop.cancel();
    watching.await.unwrap();
    assert_eq!(fake.asked(), 1);
}

#[tokio::test]
async fn an_issuer_that_names_itself_otherwise_is_none() {
    let fake = Fake::start().await;
    fake.has(&["one"]);
    let settings = IssuerSettings { issuer: format!("{}/", fake.url), audience: "basestream".into(), roles_claim: "roles".into() };
    let issuer = Issuer::new(settings).unwrap();
    assert_eq!(issuer.principal(&fake.token("one"), 0).await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn keys_over_a_connection_that_is_not_encrypted_are_none() {
    for (url, is_fine) in [
        ("https://issuer.example", true),
        ("http://127.0.0.1:8080/realm", true),
        ("http://localhost", true),
        ("http://issuer.example", false),
        ("http://127.0.0.1.example", false),
        ("file:///etc/passwd", false),
        ("issuer", false),
    ] {
        assert_eq!(check_url(url).is_ok(), is_fine, "{url}");
    }
}
