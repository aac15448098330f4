//! The ids of accounts and merchants, as events and lookups have them.

pub fn account_text(account: u64) -> String {
    format!("a{account:08}")
}

pub fn merchant_text(merchant: u64) -> String {
    format!("m{merchant:06}")
}
