//! Authenticates clients: by a bearer token, as over HTTP, or by a token's name and the token, which drivers send as
//! user and password.

use std::sync::Arc;

use access::{Authenticator, Principal, TOKEN_PREFIX};
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use tonic::codegen::http::HeaderMap;
use types::{Error, ErrorKind, Result};

pub(crate) const AUTHORIZATION: &str = "authorization";

/// Some drivers, Go's among them, leave the padding out.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent));

/// Who a call acts for.
#[derive(Clone)]
pub(crate) struct FlightCaller {
    pub(crate) principal: Arc<Principal>,
    authenticator: Authenticator,
}

impl FlightCaller {
    /// Errors: `Unauthenticated` for a token that was revoked, or has expired, since the call began.
    pub(crate) fn may_go_on(&self) -> Result<()> {
        self.authenticator.check_still_valid(&self.principal)
    }
}

/// Returns who sends these headers. A credential is checked also where none is required.
///
/// Errors: `Unauthenticated`; `Unavailable` while the keys of the issuer cannot be read.
pub(crate) async fn caller(authenticator: &Authenticator, headers: &HeaderMap) -> Result<FlightCaller> {
    let authorization = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
    let found = match authorization.and_then(basic) {
        Some(login) => principal(authenticator, login?).await,
        None => authenticator.caller(authorization).await,
    };
    let principal = found.inspect_err(count_refused)?;
    Ok(FlightCaller { principal, authenticator: authenticator.clone() })
}

/// Returns the `authorization` of the calls that follow a login, if it named a user.
pub(crate) fn bearer(authorization: &[u8]) -> Option<String> {
    let login = basic(authorization)?.ok()?;
    Some(format!("Bearer {}", login.password))
}

/// A user and its password.
struct Login {
    user: String,
    password: String,
}

async fn principal(authenticator: &Authenticator, login: Login) -> Result<Arc<Principal>> {
    let refused = || {
        Error::unauthenticated(
            "the user and the password do not match: the user is a token's name, the password the token; see `basestream token list`",
        )
    };
    if !login.password.starts_with(TOKEN_PREFIX) {
        return Err(refused());
    }
    match authenticator.principal(&login.password).await {
        Ok(principal) if *principal.name == *login.user => Ok(principal),
        Err(error) if error.kind() != ErrorKind::Unauthenticated => Err(error),
        _ => Err(refused()),
    }
}

/// What follows `Basic`; `None` for another scheme.
fn basic(authorization: &[u8]) -> Option<Result<Login>> {
    let (scheme, encoded) = std::str::from_utf8(authorization).ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("basic").then(|| {
        let wrong =
            || Error::unauthenticated("the header authorization is not understood: expected Basic and a user and its password in base64");
        let text = String::from_utf8(BASE64.decode(encoded.trim()).map_err(|_| wrong())?).map_err(|_| wrong())?;
        let (user, password) = text.split_once(':').ok_or_else(wrong)?;
        Ok(Login { user: user.to_owned(), password: password.to_owned() })
    })
}

fn count_refused(error: &Error) {
    let reason = if error.kind() == ErrorKind::Unauthenticated { "unauthenticated" } else { "unavailable" };
    metrics::counter!("basestream_serving_refused_total", "reason" => reason).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_and_a_password_are_read() {
        let read = |header: &str| basic(header.as_bytes()).map(|login| login.map(|login| (login.user, login.password)).ok());
        let encoded = BASE64.encode("ann:a:bc");
        assert!(encoded.ends_with('='));
        let expected = Some(Some(("ann".into(), "a:bc".into())));
        assert_eq!(read(&format!("Basic {encoded}")), expected);
        assert_eq!(read(&format!("Basic {}", encoded.trim_end_matches('='))), expected);
        assert_eq!(read(&format!("basic  {encoded} ")), expected);
        for wrong in ["Basic !", "Basic ", "Basic YWJj", "Basic /w=="] {
            assert_eq!(read(wrong), Some(None), "{wrong}");
        }
        for other in ["Bearer abc", "Basic", ""] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
