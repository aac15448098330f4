use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::*;
use crate::http::table;
use crate::http::tests::Client;
use crate::limits::ServingLimits;

fn parsed() -> Value {
    serde_json::from_str(DOCUMENT).unwrap()
}

/// A method and a path of each operation.
fn described() -> BTreeMap<(String, String), Value> {
    let document = parsed();
    let of_path = |(path, item): (&String, &Value)| {
        let operations = item.as_object().unwrap().iter().filter(|(method, _)| *method != "parameters");
        operations.map(|(method, operation)| ((method.to_uppercase(), path.clone()), operation.clone())).collect::<Vec<_>>()
    };
    document["paths"].as_object().unwrap().iter().flat_map(of_path).collect()
}

#[test]
fn what_is_answered_is_described_and_nothing_else() {
    let answered: BTreeSet<_> = table().into_iter().map(|route| (route.method.to_owned(), route.path.to_owned())).collect();
    assert_eq!(described().into_keys().collect::<BTreeSet<_>>(), answered);
}

#[test]
fn each_parameter_of_a_path_is_described() {
    let document = parsed();
    for (path, item) in document["paths"].as_object().unwrap() {
        let named: BTreeSet<&str> = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        let described = item["parameters"].as_array().into_iter().flatten().map(|parameter| parameter["name"].as_str().unwrap());
        assert_eq!(described.collect::<BTreeSet<_>>(), named, "{path}");
    }
}

/// What anything may be answered with: no token, no right, another host, a defect, not now.
#[test]
fn each_operation_has_the_statuses_that_every_one_has_and_each_is_a_problem() {
    for ((method, path), operation) in described() {
        let responses = operation["responses"].as_object().unwrap();
        for status in ["401", "403", "421", "500", "503"] {
            assert!(responses.contains_key(status), "{method} {path}: {status}");
        }
        for (status, response) in responses.iter().filter(|(status, _)| status.as_str() >= "400") {
            let content = resolved(response)["content"]["application/problem+json"].is_object();
            assert!(content, "{method} {path}: {status}");
        }
        assert!(operation["operationId"].is_string() && operation["summary"].is_string(), "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_says_of_its_readiness_is_described() {
    let client = Client::limited(ServingLimits::default()).await;
    let ready = client.send("GET", "/readyz", "", b"").await.json();
    let names = |object: &Value| object.as_object().unwrap().keys().cloned().collect::<BTreeSet<String>>();
    assert_eq!(names(&parsed()["components"]["schemas"]["Ready"]["properties"]), names(&ready));
}

#[test]
fn every_reference_leads_somewhere() {
    let (mut left, mut references) = (vec![parsed()], 0);
    while let Some(value) = left.pop() {
        match value {
            Value::Object(members) => {
                if members.contains_key("$ref") {
                    assert!(!resolved(&Value::Object(members.clone())).is_null(), "{members:?}");
                    references += 1;
                }
                left.extend(members.into_iter().map(|(_, value)| value));
            }
            Value::Array(items) => left.extend(items),
            _ => {}
        }
    }
    assert!(references > 0, "the document has no reference");
}

/// What a value refers to, if it does.
fn resolved(value: &Value) -> Value {
    match value["$ref"].as_str() {
        Some(reference) => parsed().pointer(reference.trim_start_matches('#')).cloned().unwrap_or_default(),
        None => value.clone(),
    }
}
