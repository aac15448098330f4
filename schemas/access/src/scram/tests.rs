use proptest::prelude::*;

use super::*;

/// The exchange of RFC 7677, section 3: user `user`, password `pencil`.
#[test]
fn the_example_of_the_rfc() {
    let salt = BASE64_STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
    let keys = LoginKeys::read(&keys("pencil", &salt)).unwrap();
    let auth_message = "n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
        s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    let proof = BASE64_STANDARD.decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=").unwrap();
    let signature = keys.signature(auth_message.as_bytes(), &proof).unwrap();
    assert_eq!(BASE64_STANDARD.encode(signature), "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    assert_eq!(proof_of_client(&salted(b"pencil", &salt, ITERATIONS), auth_message.as_bytes()).as_slice(), proof);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn any_other_proof_is_refused(flipped in 0..256usize, cut in 0..32usize) {
        let keys = LoginKeys::read(&keys("pencil", b"0123456789abcdef")).unwrap();
        let mut proof = proof_of_client(&salted(b"pencil", b"0123456789abcdef", ITERATIONS), b"message");
        prop_assert!(keys.signature(b"message", &proof).is_some());
        prop_assert!(keys.signature(b"another", &proof).is_none());
        prop_assert!(keys.signature(b"message", &proof[..cut]).is_none());
        proof[flipped / 8] ^= 1 << (flipped % 8);
        prop_assert!(keys.signature(b"message", &proof).is_none());
    }
}

/// A leaked catalog: neither of the keys in it is a proof, or makes one.
#[test]
fn the_kept_keys_open_nothing() {
    let kept = keys("pencil", b"0123456789abcdef");
    let keys = LoginKeys::read(&kept).unwrap();
    for stolen in [&kept.stored_key, &kept.server_key] {
        let stolen: Key = BASE64_STANDARD.decode(stolen).unwrap().try_into().unwrap();
        assert!(keys.signature(b"message", &stolen).is_none());
        assert!(keys.signature(b"message", &proof_of_client(&stolen, b"message")).is_none());
        assert!(keys.signature(b"message", &xor(&stolen, &mac(&stolen, b"message"))).is_none());
    }
}
