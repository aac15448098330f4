//! Whether a process may listen where its settings say.

use std::net::SocketAddr;

use types::{Error, Result};

/// A process that does not say whether it requires a principal listens on loopback alone: what is open to a network by
/// mistake is found by others first. `required` is `serving.auth.required`, `setting` what names the address.
///
/// Errors: `Input`, which names the three ways out.
pub fn may_listen(setting: &str, address: SocketAddr, required: Option<bool>) -> Result<()> {
    if required.is_some() || address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let message = format!(
        "{setting} = \"{address}\" is reached from other machines, and nothing says who may do what: set [serving.auth] required = true \
         and make a token (`basestream token create`), or listen at 127.0.0.1, or set required = false if the network lets only those in \
         who may do everything"
    );
    Err(Error::input(message).with("setting", "serving.auth.required").with("found", "nothing").with("expected", "true or false"))
}

#[cfg(test)]
mod tests;
