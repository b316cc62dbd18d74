//! Producers by name, and transactions.
use std::collections::HashMap;
use std::error::Error;
use std::sync::mpsc::{Sender, channel};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{DeliveryResult, Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{Value, json};

use crate::{Answer, Login, PATIENCE, Request, bytes, members};

type Delivered = (usize, Result<i64, String>);

impl ProducerContext for Login {
    type DeliveryOpaque = Box<(usize, Sender<Delivered>)>;

    fn delivery(&self, result: &DeliveryResult, opaque: Self::DeliveryOpaque) {
        let (slot, told) = *opaque;
        let outcome = result.as_ref().map(|message| message.offset()).map_err(|(error, _)| error.to_string());
        let _ = told.send((slot, outcome));
    }
}

type Client = ThreadedProducer<Login>;

#[derive(Default)]
pub struct Producers(HashMap<String, (Client, String)>);

impl Producers {
    pub fn answer(&mut self, asked: &Request) -> Answer {
        let name = asked.text("name");
        match asked.text("op") {
            "open" => {
                self.0.insert(name.into(), (open(asked)?, asked.text("acks").into()));
                return Ok(Value::Null);
            }
            "close" => {
                self.0.remove(name);
                return Ok(Value::Null);
            }
            "transform" => return transform(asked),
            _ => {}
        }
        let (client, acks) = &self.0[name];
        match asked.text("op") {
            "send" => send(client, asked.text("topic"), asked.records(), acks == "0"),
            "begin" => Ok(json!(client.begin_transaction()?)),
            _ => end(client, asked.flag("committed")),
        }
    }
}

fn open(asked: &Request) -> Result<Client, Box<dyn Error>> {
    let (idempotent, max_bytes) = (asked.flag("idempotent").to_string(), asked.number("max_bytes").to_string());
    let mut settings = vec![("linger.ms", "1")];
    for (field, key) in [("acks", "acks"), ("codec", "compression.type"), ("transactional_id", "transactional.id")] {
        if !asked.text(field).is_empty() {
            settings.push((key, asked.text(field)));
        }
    }
    if asked.text("transactional_id").is_empty() {
        settings.push(("enable.idempotence", &idempotent));
    }
    if asked.number("max_bytes") > 0 {
        settings.push(("message.max.bytes", &max_bytes));
    }
    let client: Client = asked.client(&settings)?;
    if !asked.text("transactional_id").is_empty() {
        client.init_transactions(PATIENCE)?;
    }
    Ok(client)
}

fn send(client: &Client, topic: &str, records: &[Value], no_offsets: bool) -> Answer {
    let (told, delivered) = channel();
    for (slot, given) in records.iter().enumerate() {
        let (key, value) = (bytes(&given["key"]), bytes(&given["value"]));
        let mut record = BaseRecord::with_opaque_to(topic, Box::new((slot, told.clone())));
        record = record.partition(given["partition"].as_i64().unwrap() as i32);
        record.timestamp = given["timestamp"].as_i64().filter(|at| *at >= 0);
        record.key = key.as_deref();
        record.payload = value.as_deref();
        for header in given["headers"].as_array().into_iter().flatten() {
            let value = bytes(&header["value"]);
            let header = Header { key: header["key"].as_str().unwrap(), value: value.as_deref() };
            record.headers = Some(record.headers.unwrap_or_else(OwnedHeaders::new).insert(header));
        }
        client.send(record).map_err(|(error, _)| error)?;
    }
    let mut offsets = vec![-1; records.len()];
    for _ in records {
        let (slot, outcome) = delivered.recv_timeout(PATIENCE)?;
        offsets[slot] = if no_offsets { outcome.map(|_| -1)? } else { outcome? };
    }
    Ok(offsets.into())
}

fn end(client: &Client, commit: bool) -> Answer {
    let ended = if commit { client.commit_transaction(PATIENCE) } else { client.abort_transaction(PATIENCE) };
    Ok(json!(ended?))
}

fn transform(asked: &Request) -> Answer {
    let records = members::consume(asked, asked.text("group"))?;
    let client = open(asked)?;
    client.begin_transaction()?;
    send(&client, asked.text("target"), &records, false)?;
    let mut offsets = TopicPartitionList::new();
    let next = records.last().unwrap()["offset"].as_i64().unwrap() + 1;
    offsets.add_partition_offset(asked.text("topic"), 0, Offset::Offset(next))?;
    let group: BaseConsumer<Login> = asked.client(&[("group.id", asked.text("group"))])?;
    client.send_offsets_to_transaction(&offsets, &group.group_metadata().unwrap(), PATIENCE)?;
    end(&client, asked.flag("committed"))?;
    Ok(records.into())
}
