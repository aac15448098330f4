//! JWTs of an OIDC issuer. One is accepted if a key of the issuer signed it for this audience; a claim has its roles.
//!
//! Only RS256 and ES256 are known, and the key says which: a token that names another algorithm is refused, whatever it
//! is. The checks are written out here over `ring`, which TLS needs anyway, because what a general JWT library would
//! add are the algorithms that must not be accepted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use types::outage::Outage;
use types::tiles::Micros;
use types::{Error, Result};
use url::Url;

use crate::principal::Principal;

mod keys;
mod verify;

use keys::{Configuration, Key};
use verify::{Refusal, verify};

const SECOND: Micros = 1_000_000;
/// The issuer's keys are asked for again after this time. Those that are known count meanwhile.
const KEYS_LAST: Duration = Duration::from_secs(3_600);
/// Where they were not asked for again in this time, they are before they count: the issuer may have withdrawn one.
const KEYS_LAST_UNASKED: Duration = KEYS_LAST.saturating_mul(2);
/// The least time between two requests to the issuer: anyone can send tokens that cause one.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// What the issuer may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// A larger answer is refused.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// The outage while no key is known: JWTs are refused, and all others are answered as before.
pub const ISSUER_UNREAD: &str = "the keys of the OIDC issuer cannot be read";

/// `[serving.auth]`, of its JWTs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerSettings {
    /// Its URL, as in the claim `iss`.
    pub issuer: String,
    /// One of the claim `aud`.
    pub audience: String,
    /// The claim that has the roles; a dot goes into an object: `realm_access.roles`.
    pub roles_claim: String,
}

/// A cheap-to-clone handle.
#[derive(Clone)]
pub struct Issuer(Arc<Inner>);

struct Inner {
    settings: IssuerSettings,
    client: reqwest::Client,
    known: RwLock<Known>,
    /// One question at a time.
    asking: Arc<Mutex<()>>,
}

/// What the issuer answered, and when it was asked.
#[derive(Clone, Default)]
struct Known {
    keys: Arc<Vec<Key>>,
    answered_at: Option<Instant>,
    asked_at: Option<Instant>,
    /// Since when it has not answered, and the last error.
    failing: Option<(Instant, String)>,
}

impl Issuer {
    /// Asks nothing yet: [`Issuer::watch`] does, and the first JWT.
    ///
    /// Errors: `Input` for a URL that is not https (or on this machine).
    pub fn new(settings: IssuerSettings) -> Result<Issuer> {
        check_url(&settings.issuer)?;
        let client = reqwest::Client::builder().timeout(ANSWER_LIMIT).redirect(reqwest::redirect::Policy::none()).build();
        let client = client.map_err(|error| Error::internal("no HTTP client can be made").caused_by(error))?;
        Ok(Issuer(Arc::new(Inner { settings, client, known: RwLock::default(), asking: Arc::default() })))
    }

    /// Returns whose JWT it is.
    ///
    /// Errors: `Unauthenticated`; `Unavailable` while no key of the issuer is known.
    pub async fn principal(&self, jwt: &str, now: Micros) -> Result<Principal> {
        self.principal_at(jwt, now, Instant::now()).await
    }

    /// Asks for the keys before anyone needs them, until there are some, and whenever they are old, until `stop`.
    pub async fn watch(&self, stop: CancellationToken) {
        let rounds = async {
            loop {
                let now = Instant::now();
                if is_past(self.known().answered_at, KEYS_LAST, now) {
                    self.ask(now).await;
                }
                tokio::time::sleep(ASK_AGAIN).await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = rounds => {}
        }
    }

    /// Returns the outage while no key is known. Those that are known count for as long as there are no newer ones.
    pub fn outage(&self) -> Option<Outage> {
        let Known { answered_at: None, failing: Some((since, error)), .. } = self.known() else { return None };
        Some(Outage { what: ISSUER_UNREAD, lasting: since.elapsed(), error, errors: BTreeMap::new() })
    }

    /// `at` is the same time by a clock that nobody sets.
    async fn principal_at(&self, jwt: &str, now: Micros, at: Instant) -> Result<Principal> {
        let known = self.known();
        if known.must_be_asked_for(at) {
            self.ask_to_the_end(at).await;
        } else if is_past(known.answered_at, KEYS_LAST, at) {
            self.ask_in_background(at);
        }
        let mut verified = self.verify(jwt, now)?;
        if verified == Err(Refusal::UnknownKey) && self.ask_to_the_end(at).await {
            verified = self.verify(jwt, now)?;
        }
        verified.map_err(|refusal| Error::unauthenticated(format!("the JWT is refused: {refusal}")))
    }

    fn verify(&self, jwt: &str, now: Micros) -> Result<Result<Principal, Refusal>> {
        let known = self.known();
        if known.answered_at.is_none() {
            return Err(Error::unavailable("the keys of the issuer are not known yet").with("issuer", &self.0.settings.issuer));
        }
        Ok(verify(jwt, &known.keys, &self.0.settings, now.div_euclid(SECOND)))
    }

    /// The same as `ask`, also if the caller leaves meanwhile: a caller that hangs up and calls again causes no further
    /// request to the issuer.
    async fn ask_to_the_end(&self, at: Instant) -> bool {
        let issuer = self.clone();
        tokio::spawn(async move { issuer.ask(at).await }).await.unwrap_or(false)
    }

    /// Asks the issuer for its keys, unless that is under way or was done a moment ago. Nobody waits for it.
    fn ask_in_background(&self, at: Instant) {
        let Ok(one_at_a_time) = self.0.asking.clone().try_lock_owned() else { return };
        if is_past(self.known().asked_at, ASK_AGAIN, at) {
            let issuer = self.clone();
            tokio::spawn(async move {
                issuer.ask_now(at).await;
                drop(one_at_a_time);
            });
        }
    }

    /// Asks the issuer for its keys, unless it was asked a moment ago. Returns whether there may be others now.
    async fn ask(&self, at: Instant) -> bool {
        let before = self.known().asked_at;
        let _one_at_a_time = self.0.asking.lock().await;
        let asked_at = self.known().asked_at;
        if asked_at != before {
            return true;
        }
        is_past(asked_at, ASK_AGAIN, at) && self.ask_now(at).await
    }

    /// Returns whether the issuer answered. The keys that are known stay while it does not.
    async fn ask_now(&self, at: Instant) -> bool {
        let answer = self.read_keys().await;
        let mut known = self.0.known.write().unwrap_or_else(PoisonError::into_inner);
        known.asked_at = Some(at);
        let failed_before = known.failing.take();
        match answer {
            Ok(keys) => {
                info!(issuer = self.0.settings.issuer, keys = keys.len(), "keys of the issuer read");
                known.keys = Arc::new(keys);
                known.answered_at = Some(at);
                true
            }
            Err(error) => {
                let effect = match known.answered_at {
                    Some(_) => "the known keys stay in use",
                    None => "JWTs are refused until they can be",
                };
                let issuer = &self.0.settings.issuer;
                // Each attempt fails alike.
                match &failed_before {
                    Some(_) => debug!(%error, issuer, "the issuer's keys cannot be read; {effect}"),
                    None => warn!(%error, issuer, "the issuer's keys cannot be read; {effect}"),
                }
                let since = failed_before.map_or(at, |(since, _)| since);
                known.failing = Some((since, error.to_string()));
                false
            }
        }
    }

    async fn read_keys(&self) -> Result<Vec<Key>> {
        let issuer = &self.0.settings.issuer;
        let configuration = self.get(&format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'))).await?;
        let Configuration { issuer: found, jwks_uri } = keys::configuration(&configuration)?;
        if found != *issuer {
            return Err(Error::input("the issuer's configuration names another issuer").with("found", found).with("expected", issuer));
        }
        check_url(&jwks_uri)?;
        keys::read(&self.get(&jwks_uri).await?)
    }

    async fn get(&self, url: &str) -> Result<Vec<u8>> {
        let failed =
            |error: reqwest::Error| Error::unavailable("the issuer did not answer").with("url", url).caused_by(error.without_url());
        let mut response = self.0.client.get(url).send().await.map_err(failed)?;
        if !response.status().is_success() {
            return Err(Error::unavailable("the issuer did not answer").with("url", url).with("status", response.status().as_u16()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_ANSWER_BYTES {
                return Err(Error::limit("the issuer's answer is too large").with("url", url).with("expected at most", MAX_ANSWER_BYTES));
            }
        }
        Ok(body)
    }

    fn known(&self) -> Known {
        self.0.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Known {
    /// Whether a JWT has to wait for the issuer's answer.
    fn must_be_asked_for(&self, at: Instant) -> bool {
        self.answered_at.is_none() || is_past(self.asked_at, KEYS_LAST_UNASKED, at)
    }
}

/// Whether it was this long before `at`, or never.
fn is_past(time: Option<Instant>, duration: Duration, at: Instant) -> bool {
    time.is_none_or(|time| at.saturating_duration_since(time) >= duration)
}

/// Keys that come over a connection which anyone can change are no keys.
fn check_url(text: &str) -> Result<()> {
    let wrong = |what: &str| Error::input(format!("the issuer's URL {what}: expected https://..")).with("found", text);
    let url = Url::parse(text).map_err(|_| wrong("cannot be read"))?;
    let is_here = match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => return Err(wrong("has no host")),
    };
    match url.scheme() {
        "https" => Ok(()),
        "http" if is_here => Ok(()),
        _ => Err(wrong("is not encrypted")),
    }
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuer").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
