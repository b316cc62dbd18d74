//! Drives rust-rdkafka for tests: a request is a line of JSON on standard input, its answer a line on standard output, one after
//! the other. Bytes are Base64. End of input ends the process.
mod administration;
mod members;
mod producers;

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::util::get_rdkafka_version;
use rdkafka::{ClientConfig, config::FromClientConfigAndContext};
use serde_json::{Value, json};

pub type Answer = Result<Value, Box<dyn Error>>;

pub const PATIENCE: Duration = Duration::from_secs(30);
const MANIFEST: &str = include_str!("../Cargo.toml");
const TOKEN_LIFETIME_MS: i64 = 4_000_000_000_000;

/// A request's fields, with those of the login.
pub struct Request(Value);

impl Request {
    pub fn text(&self, field: &str) -> &str {
        self.0[field].as_str().unwrap_or_default()
    }

    pub fn number(&self, field: &str) -> i64 {
        self.0[field].as_i64().unwrap_or_default()
    }

    pub fn flag(&self, field: &str) -> bool {
        self.0[field].as_bool().unwrap_or_default()
    }

    pub fn records(&self) -> &[Value] {
        self.0["records"].as_array().map_or(&[], Vec::as_slice)
    }

    pub fn offsets(&self) -> Vec<(i32, i64)> {
        let offsets = self.0["offsets"].as_object().into_iter().flatten();
        offsets.map(|(partition, at)| (partition.parse().unwrap(), at.as_i64().unwrap())).collect()
    }

    pub fn configs(&self) -> Vec<(&str, &str)> {
        let configs = self.0["configs"].as_object().into_iter().flatten();
        configs.map(|(name, value)| (name.as_str(), value.as_str().unwrap())).collect()
    }

    /// Creates a client with the settings of every client and `settings`.
    pub fn client<C: FromClientConfigAndContext<Login>>(&self, settings: &[(&str, &str)]) -> Result<C, Box<dyn Error>> {
        self.client_of(self.login(), settings)
    }

    pub fn client_of<C: FromClientConfigAndContext<Login>>(
        &self,
        login: Login,
        settings: &[(&str, &str)],
    ) -> Result<C, Box<dyn Error>> {
        Ok(C::from_config_and_context(&self.config(settings), login)?)
    }

    pub fn login(&self) -> Login {
        Login { token: self.0["access"]["token"].as_str().unwrap_or_default().into(), member: None }
    }

    fn config(&self, settings: &[(&str, &str)]) -> ClientConfig {
        let access = &self.0["access"];
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.text("servers")).set("log_level", "0");
        config.set("reconnect.backoff.ms", "10").set("reconnect.backoff.max.ms", "100");
        let tls = access["ca"].as_str();
        let mechanism = access["mechanism"].as_str();
        let protocol = if tls.is_some() {
            "ssl"
        } else if mechanism.is_some() {
            "sasl_plaintext"
        } else {
            "plaintext"
        };
        config.set("security.protocol", protocol);
        for (key, value) in [
            ("ssl.ca.location", tls),
            ("ssl.certificate.location", access["certificate"].as_str()),
            ("ssl.key.location", access["certificate"].as_str()),
            ("sasl.mechanism", mechanism),
            ("sasl.username", mechanism.and(access["user"].as_str())),
            ("sasl.password", mechanism.and(access["password"].as_str())),
        ] {
            if let Some(value) = value {
                config.set(key, value);
            }
        }
        for (key, value) in settings {
            config.set(*key, *value);
        }
        config
    }
}

/// The context of every client: it has the token for OAUTHBEARER, and tells a member its partitions.
pub struct Login {
    token: String,
    pub member: Option<Arc<members::Shared>>,
}

impl ClientContext for Login {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        let principal_name = "alice".into();
        Ok(OAuthToken { token: self.token.clone(), principal_name, lifetime_ms: TOKEN_LIFETIME_MS })
    }
}

pub fn bytes(coded: &Value) -> Option<Vec<u8>> {
    coded.as_str().map(|text| STANDARD.decode(text).unwrap())
}

fn coded(data: Option<&[u8]>) -> Value {
    data.map_or(Value::Null, |data| STANDARD.encode(data).into())
}

pub fn received(message: &BorrowedMessage) -> Value {
    let headers = message.headers().into_iter().flat_map(Headers::iter);
    let headers: Vec<_> = headers.map(|each| json!({"key": each.key, "value": coded(each.value)})).collect();
    json!({
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp().to_millis(),
        "key": coded(message.key()),
        "value": coded(message.payload()),
        "headers": headers,
    })
}

fn version() -> String {
    let pinned = MANIFEST.split("rdkafka = { version = \"=").nth(1).and_then(|rest| rest.split('"').next());
    format!("{}, librdkafka {}", pinned.unwrap(), get_rdkafka_version().1)
}

fn main() {
    let mut producers = producers::Producers::default();
    let mut members = members::Members::default();
    for line in io::stdin().lock().lines() {
        let asked = Request(serde_json::from_str(&line.unwrap()).unwrap());
        let answer = match asked.text("op") {
            "version" => Ok(version().into()),
            "open" | "send" | "begin" | "end" | "close" | "transform" => producers.answer(&asked),
            "join" | "assigned" | "received" | "commit" | "leave" => members.answer(&asked),
            "consume" => members::consume(&asked, "reader").map(Value::from),
            _ => administration::answer(&asked),
        };
        let told = match answer {
            Ok(result) => json!({"id": asked.number("id"), "result": result}),
            Err(error) => json!({"id": asked.number("id"), "error": error.to_string()}),
        };
        let mut output = io::stdout().lock();
        writeln!(output, "{told}").and_then(|()| output.flush()).unwrap();
    }
}
