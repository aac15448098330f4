//! Builds a record's JSON text.

use engine::events::format_timestamp;
use types::tiles::Micros;

/// The members of a record. All strings in it are plain: nothing needs escaping.
pub(super) struct Fields<'a> {
    pub(super) id: &'a str,
    pub(super) ts: String,
    pub(super) user: Option<&'a str>,
    pub(super) device: &'a str,
    pub(super) ip: &'a str,
    /// Cents, currency, status.
    pub(super) payment: Option<(i64, &'static str, &'static str)>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(id: &'a str, ts: Micros, user: &'a str, device: &'a str, ip: &'a str) -> Self {
        Self { id, ts: format!("\"{}\"", format_timestamp(ts)), user: Some(user), device, ip, payment: None }
    }

    pub(super) fn json(&self) -> String {
        let mut text = format!(r#"{{"event_id":"{}","ts":{}"#, self.id, self.ts);
        if let Some(user) = self.user {
            text += &format!(r#","user_id":"{user}""#);
        }
        text += &format!(r#","device_id":"{}","ip":"{}""#, self.device, self.ip);
        if let Some((cents, currency, status)) = self.payment {
            text += &format!(r#","amount":{}.{:02},"currency":"{currency}","status":"{status}""#, cents / 100, cents % 100);
        }
        text + "}"
    }
}
