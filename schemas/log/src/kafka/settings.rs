//! librdkafka's settings for each kind of client: the user's properties, overridden by those our guarantees depend on.

use std::collections::BTreeMap;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;

use types::{Error, Result};

/// Settings that correctness depends on. A property with another value is refused.
const PRODUCER: [(&str, &str); 2] = [("acks", "all"), ("enable.idempotence", "true")];
const CONSUMER: [(&str, &str); 8] = [
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    ("auto.offset.reset", "error"),
    ("check.crcs", "true"),
    ("isolation.level", "read_committed"),
    ("enable.partition.eof", "true"),
    ("partition.assignment.strategy", "cooperative-sticky"),
    ("allow.auto.create.topics", "false"),
];

/// Aliases of these settings, and settings that would undo them.
const REFUSED: [&str; 10] = [
    "bootstrap.servers",
    "metadata.broker.list",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "request.required.acks",
    "auto.commit.enable",
    "transactional.id",
    "enable.gapless.guarantee",
    "log.queue",
];

/// Our defaults, which a property may override.
const PRODUCER_DEFAULTS: [(&str, &str); 3] =
    [("compression.codec", "lz4"), ("message.timeout.ms", "30000"), ("queue.buffering.max.kbytes", "262144")];
const CONSUMER_DEFAULTS: [(&str, &str); 7] = [
    // Drains a full queue sooner than librdkafka's default of a second.
    ("fetch.queue.backoff.ms", "20"),
    // The end of a partition is detected when a fetch returns nothing.
    ("fetch.wait.max.ms", "100"),
    // How soon a rebalance is noticed, and how soon a dead worker's partitions are taken over.
    ("heartbeat.interval.ms", "1000"),
    ("session.timeout.ms", "15000"),
    ("max.poll.interval.ms", "300000"),
    // Per partition: records fetched ahead are held in memory.
    ("queued.max.messages.kbytes", "16384"),
    ("topic.metadata.refresh.interval.ms", "10000"),
];

/// Settings with two names in librdkafka: the user's one replaces our default under the other name.
const ALIASES: [(&str, &str); 2] = [("compression.type", "compression.codec"), ("delivery.timeout.ms", "message.timeout.ms")];

/// The addresses and properties of one Kafka log.
#[derive(Clone)]
pub(super) struct KafkaSettings {
    pub(super) addresses: String,
    properties: BTreeMap<String, String>,
}

impl KafkaSettings {
    /// Checks addresses and properties. Errors: `Input`, naming the property but not its value, which may be a secret.
    pub(super) fn new(addresses: &str, properties: &BTreeMap<String, String>) -> Result<KafkaSettings> {
        check_addresses(addresses)?;
        for (name, value) in properties {
            let fixed = PRODUCER.iter().chain(&CONSUMER).find(|(fixed, _)| fixed == name);
            match fixed {
                Some((_, fixed)) if fixed != value => return Err(refused(name).with("expected", fixed)),
                None if REFUSED.contains(&name.as_str()) => return Err(refused(name)),
                _ => {}
            }
        }
        let settings = KafkaSettings { addresses: addresses.to_owned(), properties: properties.clone() };
        settings.producer().create_native_config().map_err(refusal)?;
        settings.consumer("check", "check").create_native_config().map_err(refusal)?;
        Ok(settings)
    }

    pub(super) fn producer(&self) -> ClientConfig {
        self.config(&PRODUCER_DEFAULTS, &PRODUCER)
    }

    pub(super) fn consumer(&self, group: &str, client: &str) -> ClientConfig {
        let mut config = self.config(&CONSUMER_DEFAULTS, &CONSUMER);
        config.set("group.id", group).set("client.id", client);
        config
    }

    /// Returns the configuration of a client that queries metadata and bounds, and joins no group.
    pub(super) fn metadata(&self) -> ClientConfig {
        self.config(&CONSUMER_DEFAULTS, &CONSUMER)
    }

    fn config(&self, defaults: &[(&str, &str)], fixed: &[(&str, &str)]) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set_log_level(RDKafkaLogLevel::Info);
        for (name, value) in defaults {
            config.set(*name, *value);
        }
        for (name, value) in &self.properties {
            if let Some((_, twin)) = ALIASES.iter().find(|(alias, _)| alias == name) {
                config.remove(twin);
            }
            config.set(name, value);
        }
        for (name, value) in fixed {
            config.set(*name, *value);
        }
        config.set("bootstrap.servers", &self.addresses);
        config
    }
}

/// Returns why librdkafka refuses these settings.
pub(super) fn refusal(error: KafkaError) -> Error {
    match error {
        KafkaError::ClientConfig(_, description, name, value) => {
            // librdkafka quotes the values that it refuses, which may be secrets.
            let description = if value.is_empty() { description } else { description.replace(&value, "***") };
            Error::input("Kafka has no such property").with("property", name).with("reason", description)
        }
        error => Error::input("Kafka has no such properties").with("reason", error),
    }
}

fn refused(name: &str) -> Error {
    Error::input("basestream sets this property itself: its correctness depends on it").with("property", name)
}

fn check_addresses(addresses: &str) -> Result<()> {
    let wrong =
        |found: &str| Error::input("a Kafka address is wrong").with("found", format!("{found:?}")).with("expected", "host:port, ..");
    if addresses.contains('@') {
        let expected = "host:port, ..; user and password are properties, sasl.username and sasl.password";
        return Err(Error::input("a Kafka address holds credentials").with("expected", expected));
    }
    for address in addresses.split(',') {
        let (host, port) = address.trim().rsplit_once(':').ok_or_else(|| wrong(address))?;
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        if host.is_empty() || !is_port || host.contains(['/', '@', ' ']) {
            return Err(wrong(address));
        }
    }
    Ok(())
}
