//! A minimal HTTP/1.1 client on one kept connection. It does no more than necessary, because it shares the cores with
//! the server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde::Deserialize;
use types::vector::Vector;
use types::{Error, Result};

use super::Client;

const TIMEOUT: Duration = Duration::from_secs(60);

pub struct Http {
    connection: BufReader<TcpStream>,
    address: String,
    line: String,
    body: Vec<u8>,
}

impl Http {
    pub fn connect(address: &str) -> Result<Http> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Http { connection: BufReader::new(stream), address: address.to_owned(), line: String::new(), body: Vec::new() })
    }

    /// Returns the body of a successful response.
    pub fn get(&mut self, path: &str) -> Result<&[u8]> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        self.send(request.as_bytes())
    }

    pub fn post(&mut self, path: &str, body: &str) -> Result<&[u8]> {
        let head = format!("POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n", self.address);
        self.send(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes())
    }

    fn send(&mut self, request: &[u8]) -> Result<&[u8]> {
        self.connection.get_mut().write_all(request)?;
        let is_success = self.line()?.split(' ').nth(1).is_some_and(|status| status.starts_with('2'));
        let status = self.line.trim().to_owned();
        let mut length = None;
        while !self.line()?.trim().is_empty() {
            if let Some((name, value)) = self.line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length")) {
                length = Some(value.trim().parse().map_err(|_| Error::unavailable("a length is no number").with("header", name))?);
            }
        }
        let length = length.ok_or_else(|| Error::unavailable("an answer has no length").with("status", &status))?;
        self.body.resize(length, 0);
        self.connection.read_exact(&mut self.body)?;
        match is_success {
            true => Ok(&self.body),
            false => {
                let body = String::from_utf8_lossy(&self.body);
                Err(Error::unavailable("a request failed").with("status", status).with("body", body))
            }
        }
    }

    fn line(&mut self) -> Result<&str> {
        self.line.clear();
        match self.connection.read_line(&mut self.line)? {
            0 => Err(Error::unavailable("the server closed the connection")),
            _ => Ok(&self.line),
        }
    }

    /// Returns the number of events that answers count now, and the time of that answer. Any row carries the number.
    pub fn counted(&mut self, row: &str) -> Result<(u64, Instant)> {
        #[derive(Deserialize)]
        struct Answer {
            meta: Meta,
        }
        #[derive(Deserialize)]
        struct Meta {
            cut: String,
        }
        let answer: Answer = serde_json::from_slice(self.get(row)?)
            .map_err(|error| Error::internal(format!("an answer is not as expected: {error}")).with("asked", row))?;
        let events = Vector::from_token(&answer.meta.cut)?.iter().map(|(_, offset)| offset.0 as u64).sum();
        Ok((events, Instant::now()))
    }
}

/// A client that gets one path after the other. The path is a function of the query's number.
pub struct Getting<F> {
    http: Http,
    path: F,
    pace: Duration,
}

impl<F: Fn(u64) -> String + Send + 'static> Getting<F> {
    /// Connects. The client waits for `pace` after each answer.
    pub fn connect(address: &str, pace: Duration, path: F) -> Result<Box<dyn Client>> {
        Ok(Box::new(Getting { http: Http::connect(address)?, path, pace }))
    }
}

impl<F: Fn(u64) -> String + Send> Client for Getting<F> {
    fn ask(&mut self, nth: u64) -> Result<()> {
        self.http.get(&(self.path)(nth)).map(drop)
    }

    fn pace(&self) -> Duration {
        self.pace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that responds to each request of one connection with the next of these texts.
    fn server(answers: &'static [&'static str]) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let mut connection = BufReader::new(listener.accept().unwrap().0);
            for answer in answers {
                let mut line = String::new();
                while connection.read_line(&mut line).unwrap() > 2 {
                    line.clear();
                }
                connection.get_mut().write_all(answer.as_bytes()).unwrap();
            }
        });
        address
    }

    #[test]
    fn answers_are_told_apart_on_one_connection() {
        const OK: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 3\r\n\r\none";
        let address = server(&[OK, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", OK]);
        let mut http = Http::connect(&address).unwrap();
        assert_eq!(http.get("/1").unwrap(), b"one");
        assert_eq!(http.get("/2").unwrap(), b"");
        assert_eq!(http.get("/3").unwrap(), b"one");
    }

    #[test]
    fn an_answer_that_is_no_success_is_an_error_with_its_body() {
        let address = server(&["HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\ngone", "HTTP/1.1 200 OK\r\n\r\n"]);
        let mut http = Http::connect(&address).unwrap();
        let error = http.get("/1").unwrap_err().to_string();
        assert!(error.contains("404") && error.contains("gone"), "{error}");
        assert!(http.get("/2").unwrap_err().to_string().contains("no length"));
        assert!(http.get("/3").is_err());
    }
}
