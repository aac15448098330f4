use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::json;

use super::*;
use crate::jwt::keys;

const NOW: i64 = 1_000;
/// The modulus of an RSA key whose private half was thrown away, and a token that it signed before.
const N: &str = "io_IGcZZYrWueKN-0njLZ3ApRtINDn1JsO9xCCOYvvkok0G6jhrGj10E3Q_9SNyJJsJ-P59UurBjSxOklluIYGxNS74eiWoBAOTfiIt_w32ABVxih6ZHcm_FKhTU51eozkDMAg8iXVtDIjdcZ-EMsE6xAsKbqZQwHA3fKXxGBjUm7ZcFDVFauPyPrYVTCl1tqYhIqYuOc4TOiITUyW3yZ2Pu94spHyuyl7fY6Kg4gI3icIDDXYXOSGkW99Rn-5CHsdM_Pc3tRQP8iGKzsIN2_ExaHWGIyw17n0bXaeC-rt2FP4FMxjFxBZNd0tD3_tfeRpTb0LjK8K8zPblarBf6Dw";
const RS256: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6InJzYSIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwiYXVkIjoiYmFzZXN0cmVhbSIsInN1YiI6ImFubiIsImV4cCI6MjAwMCwicm9sZXMiOlsicmVhZGVyIl19.QmqFKBNWvgJSy4Ge5gZUsrWVoDLG812wwT8owvOuNuomMmVZIJcIaZohA5ClB5ZoHzSpVBJa2em-y3WUUlQpO8GjNxb5q6YD_HagxH12THrDKN2Av4h_sD9rmCRgbrYsEMpZ250OI_MNJOugw1h1ak8RIw5DUquLrGa-WlaBvOcalIOGtYzrsefmoP1C0XUYJApuv02l9Nx2kJBybPjO18iVxpm7gf5lGNJNxBTWPF9MEu9CeNMA3L-cFx5HehEVwTGVp0fgY7iGxty88_ymWVxaB6eR87kxbGr9eA7H8sPXT8QobXv71KSZI3uhsoXXfkYS_vK92KM0tNDXusl7ag";

struct Signer {
    pair: EcdsaKeyPair,
}

impl Signer {
    fn new() -> Signer {
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
        Signer { pair: EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref(), &SystemRandom::new()).unwrap() }
    }

    fn jwk(&self, id: &str) -> Value {
        let point = self.pair.public_key().as_ref();
        json!({ "kty": "EC", "crv": "P-256", "kid": id, "use": "sig", "x": encoded(&point[1..33]), "y": encoded(&point[33..]) })
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let message = message(header, claims);
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", encoded(signature.as_ref()))
    }
}

fn encoded(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

fn message(header: &Value, claims: &Value) -> String {
    format!("{}.{}", encoded(header.to_string().as_bytes()), encoded(claims.to_string().as_bytes()))
}

fn rsa() -> Value {
    json!({ "kty": "RSA", "kid": "rsa", "alg": "RS256", "n": N, "e": "AQAB" })
}

fn read(keys: &[Value]) -> Vec<Key> {
    keys::read(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
}

fn expected() -> IssuerSettings {
    IssuerSettings { issuer: "https://issuer.example".into(), audience: "basestream".into(), roles_claim: "roles".into() }
}

fn claims() -> Value {
    json!({ "iss": "https://issuer.example", "aud": ["other", "basestream"], "sub": "ann", "exp": NOW + 60, "roles": ["reader"] })
}

fn with(claim: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[claim] = value;
    claims
}

fn without(claim: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(claim);
    claims
}

fn es256() -> Value {
    json!({ "alg": "ES256", "kid": "ec" })
}

#[test]
fn tokens_of_both_algorithms_count() {
    let signer = Signer::new();
    let keys = read(&[rsa(), signer.jwk("ec")]);
    let ann = Principal::new("oidc:ann", vec![Grant { role: Role::Reader, only: None }]);
    assert_eq!(verify(RS256, &keys, &expected(), NOW), Ok(ann.clone()));
    assert_eq!(verify(&signer.sign(&es256(), &claims()), &keys, &expected(), NOW), Ok(ann.clone()));
    // The only key needs no name.
    assert_eq!(verify(&signer.sign(&json!({ "alg": "ES256" }), &claims()), &keys[1..], &expected(), NOW), Ok(ann));
}

#[test]
fn a_token_whose_header_chooses_its_check_is_refused() {
    let signer = Signer::new();
    let keys = read(&[rsa(), signer.jwk("ec")]);
    let refused = |jwt: &str| verify(jwt, &keys, &expected(), NOW).unwrap_err();
    let not_the_keys = Because("its algorithm is not the key's");
    for alg in ["none", "None", "NONE", "", "HS256", "RS256", "ES384"] {
        let message = message(&json!({ "alg": alg, "kid": "ec" }), &claims());
        assert_eq!(refused(&format!("{message}.")), not_the_keys, "{alg}");
    }
    // The public key as the secret of an HMAC.
    for id in ["rsa", "ec"] {
        let message = message(&json!({ "alg": "HS256", "kid": id }), &claims());
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &BASE64_URL_SAFE_NO_PAD.decode(N).unwrap()), message.as_bytes());
        assert_eq!(refused(&format!("{message}.{}", encoded(tag.as_ref()))), not_the_keys, "{id}");
    }
    assert_eq!(refused(&signer.sign(&json!({ "alg": "ES256", "kid": "rsa" }), &claims())), not_the_keys);
    // A key that comes with the token.
    let own = json!({ "alg": "ES256", "kid": "own", "jwk": Signer::new().jwk("own") });
    assert_eq!(refused(&signer.sign(&own, &claims())), UnknownKey);
    assert_eq!(refused(&signer.sign(&json!({ "alg": "ES256" }), &claims())), Because("it does not name its key"));
    let critical = json!({ "alg": "ES256", "kid": "ec", "crit": ["b64"], "b64": false });
    assert_eq!(refused(&signer.sign(&critical, &claims())), Because("its header uses an extension that is not supported"));
}

#[test]
fn a_token_of_another_key_or_with_another_text_is_refused() {
    let (signer, forger) = (Signer::new(), Signer::new());
    let keys = read(&[rsa(), signer.jwk("ec")]);
    let refused = |jwt: &str| verify(jwt, &keys, &expected(), NOW).unwrap_err();
    assert_eq!(refused(&forger.sign(&es256(), &claims())), Because("its signature is wrong"));
    let good = signer.sign(&es256(), &claims());
    let (_, signature) = good.rsplit_once('.').unwrap();
    let admin = message(&es256(), &with("roles", json!(["admin"])));
    assert_eq!(refused(&format!("{admin}.{signature}")), Because("its signature is wrong"));
    let forged = RS256.replace("eyJpc3Mi", "eyJpc3Ni");
    assert_eq!(refused(&forged), Because("its signature is wrong"));
    for text in ["", ".", "..", "a.b.c", &good[..good.len() - 2], &format!("{good}="), &format!("{good}.x")] {
        assert!(verify(text, &keys, &expected(), NOW).is_err(), "{text}");
    }
}

#[test]
fn every_claim_is_checked() {
    let signer = Signer::new();
    let keys = read(&[signer.jwk("ec")]);
    let outcome = |claims: &Value| verify(&signer.sign(&es256(), claims), &keys, &expected(), NOW).map(drop);
    let wrong = [
        (with("iss", json!("https://other.example")), "another issuer issued it"),
        (with("iss", json!("https://issuer.example/")), "another issuer issued it"),
        (without("iss"), "another issuer issued it"),
        (with("aud", json!("other")), "it is for another audience"),
        (with("aud", json!(["other"])), "it is for another audience"),
        (without("aud"), "it is for another audience"),
        (without("exp"), "it never expires"),
        (with("exp", json!("2000")), "one of its times is not a number"),
        (with("exp", json!(NOW - 30)), "it is expired"),
        (with("nbf", json!(NOW + 31)), "it is not valid yet"),
        (with("iat", json!(NOW + 31)), "it is not valid yet"),
        (without("sub"), "it has no subject"),
        (with("sub", json!("")), "it has no subject"),
        (with("sub", json!(7)), "it has no subject"),
    ];
    for (claims, why) in wrong {
        assert_eq!(outcome(&claims), Err(Because(why)), "{claims}");
    }
    // The clocks of two machines differ by a little.
    for claims in [with("exp", json!(NOW - 29)), with("nbf", json!(NOW + 30)), with("aud", json!("basestream")), with("exp", json!(1000.5))]
    {
        assert_eq!(outcome(&claims), Ok(()), "{claims}");
    }
}

#[test]
fn roles_are_read_where_the_setting_says_and_what_is_unknown_grants_nothing() {
    let grants_of = |claims: Value, claim: &str| grants(claims.as_object().unwrap(), claim);
    let all = |role| Grant { role, only: None };
    let one =
        |role, name: &str| Grant { role, only: Some(GrantScope { views: [name.to_owned()].into(), streams: [name.to_owned()].into() }) };
    assert_eq!(grants_of(json!({ "roles": ["writer", "offline_access", "Admin", 7] }), "roles"), [all(Role::Writer)]);
    assert_eq!(
        grants_of(json!({ "realm_access": { "roles": ["reader:velocity"] } }), "realm_access.roles"),
        [one(Role::Reader, "velocity")]
    );
    assert_eq!(grants_of(json!({ "https://a.example/roles": "operator" }), "https://a.example/roles"), [all(Role::Operator)]);
    for nothing in
        [json!({}), json!({ "roles": null }), json!({ "roles": { "reader": true } }), json!({ "roles": ["admin:velocity", "reader "] })]
    {
        assert_eq!(grants_of(nothing.clone(), "roles"), [], "{nothing}");
    }
}

#[test]
fn keys_for_other_things_are_left_out() {
    let signer = Signer::new();
    let other = [
        json!({ "kty": "oct", "kid": "a", "k": "c2VjcmV0" }),
        json!({ "kty": "RSA", "kid": "b", "use": "enc", "n": N, "e": "AQAB" }),
        json!({ "kty": "RSA", "kid": "c", "alg": "RS512", "n": N, "e": "AQAB" }),
        json!({ "kty": "EC", "crv": "P-384", "kid": "d", "x": "AA", "y": "AA" }),
        json!({ "kty": "EC", "crv": "P-256", "kid": "e", "x": "AA", "y": "AA" }),
        json!({ "kid": "f" }),
    ];
    let mut keys = other.to_vec();
    keys.push(signer.jwk("ec"));
    assert_eq!(read(&keys), read(&[signer.jwk("ec")]));
    assert!(keys::read(json!({ "keys": other }).to_string().as_bytes()).is_err());
    // A weak key checks nothing.
    let weak = json!({ "kty": "RSA", "kid": "rsa", "n": &N[..168], "e": "AQAB" });
    assert_eq!(verify(RS256, &read(&[weak]), &expected(), NOW), Err(Because("its signature is wrong")));
}
