use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A server on ports that the system chooses. It stops when it goes out of scope.
pub struct Triolog {
    ready: Value,
    server: Child,
    _folder: TempDir,
}

impl Triolog {
    pub fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("triolog-").tempdir().unwrap();
        let mut server = Command::new("triolog")
            .args(["serve", "--durability", "os", "--log-level", "error", "--data-dir"])
            .arg(folder.path().join("data"))
            .args(["--native", "127.0.0.1:0", "--kafka", "127.0.0.1:0", "--control", "127.0.0.1:0"])
            .args(["--ready-file", "-"])
            .env("TRIOLOG_GROUP_INITIAL_REBALANCE_DELAY_MS", "0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("cannot run triolog");
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).expect("triolog did not start: standard error has the reason");
        Self { ready, server, _folder: folder }
    }

    /// The address of the listener `name`, such as "kafka".
    pub fn address(&self, name: &str) -> String {
        self.ready[name].as_str().unwrap().to_owned()
    }

    /// Call the control port, and return its response.
    pub fn get(&self, path: &str) -> Value {
        ureq::get(self.url(path)).call().unwrap().body_mut().read_json().unwrap()
    }

    pub fn post(&self, path: &str, body: Value) -> Value {
        ureq::post(self.url(path)).send_json(body).unwrap().body_mut().read_json().unwrap()
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address("control"))
    }
}

impl Drop for Triolog {
    fn drop(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}
