//! Whether a JWT (RFC 7519) counts, and for whom: a function of the token, the keys, the settings and the time.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use catalog::Role;
use serde::Deserialize;
use serde_json::{Map, Value};
use types::tiles::Micros;

use super::IssuerSettings;
use super::keys::Key;
use crate::principal::{Grant, GrantScope, Principal};

/// By how much the clocks of issuer and server may differ.
const LEEWAY_SECONDS: f64 = 30.0;
/// Names go into logs.
const MAX_NAME_CHARS: usize = 200;

/// Why a JWT does not count.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The issuer may have new keys.
    UnknownKey,
    Because(&'static str),
}

use Refusal::{Because, UnknownKey};

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// What a reader must understand; nothing is understood here.
    crit: Option<Value>,
}

/// Checks a token at `now` (seconds since 1970), its signature before any claim.
pub(super) fn verify(jwt: &str, keys: &[Key], expected: &IssuerSettings, now: i64) -> Result<Principal, Refusal> {
    let (message, signature) = jwt.rsplit_once('.').ok_or(Because("it is not a JWT"))?;
    let (header, claims) = message.split_once('.').ok_or(Because("it is not a JWT"))?;
    let header: Header = json(header)?;
    if header.crit.is_some() {
        return Err(Because("its header uses an extension that is not supported"));
    }
    let key = key_of(&header, keys)?;
    if header.alg != key.algorithm() {
        return Err(Because("its algorithm is not the key's"));
    }
    let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).map_err(|_| Because("its signature cannot be read"))?;
    if !key.has_signed(message.as_bytes(), &signature) {
        return Err(Because("its signature is wrong"));
    }
    let claims: Map<String, Value> = json(claims)?;
    check_claims(&claims, expected, now as f64)?;
    let subject = claims.get("sub").and_then(Value::as_str).filter(|subject| !subject.is_empty());
    let subject: String = subject.ok_or(Because("it has no subject"))?.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect();
    // No token of the catalog has a colon in its name.
    let expires_at = claims.get("exp").and_then(Value::as_f64).map(|seconds| ((seconds + LEEWAY_SECONDS) * 1e6) as Micros);
    Ok(Principal::new(&format!("oidc:{subject}"), grants(&claims, &expected.roles_claim)).until(expires_at))
}

fn json<T: for<'de> Deserialize<'de>>(part: &str) -> Result<T, Refusal> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(part).ok();
    bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).ok_or(Because("it is not a JWT"))
}

fn key_of<'a>(header: &Header, keys: &'a [Key]) -> Result<&'a Key, Refusal> {
    match (&header.kid, keys) {
        (Some(id), _) => keys.iter().find(|key| key.id.as_ref() == Some(id)).ok_or(UnknownKey),
        (None, [only]) => Ok(only),
        (None, _) => Err(Because("it does not name its key")),
    }
}

fn check_claims(claims: &Map<String, Value>, expected: &IssuerSettings, now: f64) -> Result<(), Refusal> {
    let time = |name: &str| match claims.get(name) {
        None => Ok(None),
        Some(time) => time.as_f64().map(Some).ok_or(Because("one of its times is not a number")),
    };
    let is_of = |value: &Value, text: &str| value.as_str() == Some(text);
    if !claims.get("iss").is_some_and(|issuer| is_of(issuer, &expected.issuer)) {
        return Err(Because("another issuer issued it"));
    }
    let is_for_us = match claims.get("aud") {
        Some(Value::Array(audiences)) => audiences.iter().any(|audience| is_of(audience, &expected.audience)),
        Some(audience) => is_of(audience, &expected.audience),
        None => false,
    };
    if !is_for_us {
        return Err(Because("it is for another audience"));
    }
    if now >= time("exp")?.ok_or(Because("it never expires"))? + LEEWAY_SECONDS {
        return Err(Because("it is expired"));
    }
    if [time("nbf")?, time("iat")?].into_iter().flatten().any(|from| now < from - LEEWAY_SECONDS) {
        return Err(Because("it is not valid yet"));
    }
    Ok(())
}

/// Reads `reader`, or `reader:NAME` for one view or stream; words of other programs are passed over.
fn grants(claims: &Map<String, Value>, roles_claim: &str) -> Vec<Grant> {
    // `https://example.com/roles` has dots of its own.
    match claims.get(roles_claim).or_else(|| inner(claims, roles_claim)) {
        Some(Value::String(word)) => grant(word).into_iter().collect(),
        Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).filter_map(grant).collect(),
        _ => Vec::new(),
    }
}

/// Goes into an object at each dot.
fn inner<'a>(claims: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let mut names = path.split('.');
    let first = claims.get(names.next()?)?;
    names.try_fold(first, |value, name| value.get(name))
}

fn grant(text: &str) -> Option<Grant> {
    let (word, name) = text.split_once(':').map_or((text, None), |(word, name)| (word, Some(name)));
    let role = Role::ALL.into_iter().find(|role| role.word() == word)?;
    let only = name.map(|name| GrantScope { views: [name.to_owned()].into(), streams: [name.to_owned()].into() });
    match (role, &only) {
        // All or nothing.
        (Role::Admin, Some(_)) => None,
        _ => Some(Grant { role, only }),
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UnknownKey => "its key is not one of the issuer's",
            Because(why) => why,
        })
    }
}

#[cfg(test)]
mod tests;
