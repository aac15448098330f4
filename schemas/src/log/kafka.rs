//! x
pub struct KafkaLog;
