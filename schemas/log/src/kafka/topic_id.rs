//! Kafka's own id of a topic. One that was deleted and created again under its name has another id. rdkafka does not
//! offer it, so librdkafka is called here.

use std::ffi::{CString, c_char, c_int};
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::bindings as native;
use rdkafka::client::Client;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::types::{RDKafkaAdminOp, RDKafkaRespErr};
use uuid::Uuid;

/// Asks the brokers. All zeros if they give their topics no ids, as before Kafka 2.8.
#[allow(unsafe_code)]
pub(super) fn topic_id<C: ClientContext>(client: &Client<C>, topic: &str, timeout: Duration) -> Result<Uuid, KafkaError> {
    let name = CString::new(topic)?;
    let mut names = [name.as_ptr()];
    let timeout_ms = timeout.as_millis() as c_int;
    let mut refusal: [c_char; 128] = [0; 128];
    // SAFETY: what librdkafka makes is freed once, when its owner is dropped, in the reverse order. The client and the
    // name outlive the call, and all that is read belongs to the event, which outlives the reading.
    unsafe {
        let client = client.native_ptr();
        let topics = native::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
        let topics = Owned { object: topics, free: native::rd_kafka_TopicCollection_destroy };
        let options = native::rd_kafka_AdminOptions_new(client, RDKafkaAdminOp::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS);
        let options = Owned { object: options, free: native::rd_kafka_AdminOptions_destroy };
        let set = native::rd_kafka_AdminOptions_set_request_timeout;
        checked(set(options.object, timeout_ms, refusal.as_mut_ptr(), refusal.len()))?;
        let answers = Owned { object: native::rd_kafka_queue_new(client), free: native::rd_kafka_queue_destroy };
        native::rd_kafka_DescribeTopics(client, topics.object, options.object, answers.object);
        let answer = native::rd_kafka_queue_poll(answers.object, timeout_ms);
        let answer = Owned { object: answer, free: native::rd_kafka_event_destroy };
        if answer.object.is_null() {
            return Err(KafkaError::MetadataFetch(RDKafkaErrorCode::OperationTimedOut));
        }
        checked(native::rd_kafka_event_error(answer.object))?;
        let mut count = 0_usize;
        let found = native::rd_kafka_DescribeTopics_result_topics(native::rd_kafka_event_DescribeTopics_result(answer.object), &mut count);
        if count == 0 || found.is_null() {
            return Err(KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopicOrPartition));
        }
        let error = native::rd_kafka_TopicDescription_error(*found);
        if !error.is_null() {
            checked(native::rd_kafka_error_code(error))?;
        }
        let id = native::rd_kafka_TopicDescription_topic_id(*found);
        let (high, low) = (native::rd_kafka_Uuid_most_significant_bits(id), native::rd_kafka_Uuid_least_significant_bits(id));
        Ok(Uuid::from_u64_pair(high as u64, low as u64))
    }
}

fn checked(code: RDKafkaRespErr) -> Result<(), KafkaError> {
    match code {
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
        code => Err(KafkaError::MetadataFetch(code.into())),
    }
}

/// An object of librdkafka, or null.
struct Owned<T> {
    object: *mut T,
    free: unsafe extern "C" fn(*mut T),
}

impl<T> Drop for Owned<T> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        if !self.object.is_null() {
            // SAFETY: nobody else frees it, and nobody uses it after its owner.
            unsafe { (self.free)(self.object) }
        }
    }
}
