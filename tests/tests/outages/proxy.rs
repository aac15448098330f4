//! Controls toxiproxy between the product and a service: `tests/services/toxiproxy.sh` starts it, a test creates the
//! proxies it needs.

use std::time::{Duration, Instant};

use basestream_tests::patience::PATIENCE;
use basestream_tests::process::free_port;
use serde_json::{Value, json};
use types::timed_out;

/// One proxy. Its connections can be cut and slowed, and its replies dropped.
pub struct Proxy {
    api: String,
    name: String,
    /// The address it listens on: `127.0.0.1:port`.
    pub address: String,
}

impl Proxy {
    /// A proxy in front of `upstream` (`host:port`) on a free port, which no connection takes while the proxy is
    /// closed.
    pub async fn before(api: &str, upstream: &str) -> Proxy {
        Proxy::at(api, &format!("127.0.0.1:{}", free_port().unwrap()), upstream).await
    }

    /// A proxy that listens at `listen`; it replaces one that an earlier test left there.
    pub async fn at(api: &str, listen: &str, upstream: &str) -> Proxy {
        let all: Value = reqwest::get(format!("{api}/proxies")).await.unwrap().json().await.unwrap();
        for (name, proxy) in all.as_object().unwrap() {
            if proxy["listen"].as_str() == Some(listen) {
                reqwest::Client::new().delete(format!("{api}/proxies/{name}")).send().await.unwrap();
            }
        }
        let name = format!("p{}", uuid::Uuid::now_v7().simple());
        let body = json!({"name": name, "listen": listen, "upstream": upstream, "enabled": true});
        let made: Value = post(&format!("{api}/proxies"), &body).await;
        Proxy { api: api.to_owned(), name, address: made["listen"].as_str().unwrap().to_owned() }
    }

    /// Cuts all connections and accepts no new ones.
    pub async fn close(&self) {
        post(&self.url(""), &json!({"enabled": false})).await;
    }

    pub async fn open(&self) {
        post(&self.url(""), &json!({"enabled": true})).await;
    }

    /// Cuts all connections; new ones are accepted at once.
    pub async fn cut(&self) {
        self.close().await;
        self.open().await;
    }

    /// Delays every reply by this time. A reply that is held back when its connection is cut is lost.
    pub async fn delay_replies(&self, milliseconds: u64) {
        self.add("latency", "downstream", json!({"latency": milliseconds})).await;
    }

    /// Cuts each connection after this many bytes towards the service.
    pub async fn cut_uploads_after(&self, bytes: u64) {
        self.add("limit_data", "upstream", json!({"bytes": bytes})).await;
    }

    /// Cuts each connection after this many bytes from the service.
    pub async fn cut_downloads_after(&self, bytes: u64) {
        self.add("limit_data", "downstream", json!({"bytes": bytes})).await;
    }

    /// Drops every reply; the connections stay open.
    pub async fn swallow_replies(&self) {
        self.add("timeout", "downstream", json!({"timeout": 0})).await;
    }

    /// Removes all faults; the connections stay open. If a fault's connections end at the same moment, its removal may
    /// be reported late.
    pub async fn heal(&self) {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let toxics: Value = reqwest::get(self.url("/toxics")).await.unwrap().json().await.unwrap();
            let names: Vec<&str> = toxics.as_array().unwrap().iter().filter_map(|toxic| toxic["name"].as_str()).collect();
            if names.is_empty() {
                return;
            }
            for name in names {
                let _ = reqwest::Client::new().delete(self.url(&format!("/toxics/{name}"))).send().await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        timed_out::fail("the proxy keeps its disturbances");
    }

    /// Removes the proxy.
    pub async fn remove(self) {
        assert!(reqwest::Client::new().delete(self.url("")).send().await.unwrap().status().is_success());
    }

    async fn add(&self, kind: &str, stream: &str, attributes: Value) {
        let body = json!({"name": format!("{kind}_{stream}"), "type": kind, "stream": stream, "attributes": attributes});
        post(&self.url("/toxics"), &body).await;
    }

    fn url(&self, path: &str) -> String {
        format!("{}/proxies/{}{path}", self.api, self.name)
    }
}

async fn post(url: &str, body: &Value) -> Value {
    let reply = reqwest::Client::new().post(url).json(body).send().await.unwrap();
    let status = reply.status();
    let text = reply.text().await.unwrap();
    assert!(status.is_success(), "toxiproxy: {status} {text}");
    serde_json::from_str(&text).unwrap()
}
