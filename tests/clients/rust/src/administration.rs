//! Topics, configurations, offsets and groups. The admin client has no call for offsets of groups: consumers have.
use std::error::Error;

use futures_executor::block_on;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{Map, Value, json};

use crate::{Answer, Login, PATIENCE, Request};

type Results<T> = Vec<Result<T, (String, RDKafkaErrorCode)>>;

fn only<T>(results: Results<T>) -> Answer {
    for result in results {
        result.map_err(|(name, code)| format!("{name}: {code}"))?;
    }
    Ok(Value::Null)
}

pub fn answer(asked: &Request) -> Answer {
    let (topic, group, options) = (asked.text("topic"), asked.text("group"), AdminOptions::new());
    let admin: AdminClient<Login> = asked.client(&[])?;
    match asked.text("op") {
        "create_topic" => {
            let mut wanted = NewTopic::new(topic, asked.number("partitions") as i32, TopicReplication::Fixed(1));
            for (name, value) in asked.configs() {
                wanted = wanted.set(name, value);
            }
            only(block_on(admin.create_topics(&[wanted], &options))?)
        }
        "delete_topic" => only(block_on(admin.delete_topics(&[topic], &options))?),
        "add_partitions" => {
            let wanted = NewPartitions::new(topic, asked.number("partitions") as usize);
            only(block_on(admin.create_partitions(&[wanted], &options))?)
        }
        "describe_configs" => {
            let found = block_on(admin.describe_configs(&[ResourceSpecifier::Topic(topic)], &options))?;
            let found = found.into_iter().next().unwrap()?;
            Ok(found.entries.into_iter().map(|each| (each.name, json!(each.value))).collect::<Map<_, _>>().into())
        }
        "alter_configs" => {
            let mut wanted = AlterConfig::new(ResourceSpecifier::Topic(topic));
            for (name, value) in asked.configs() {
                wanted = wanted.set(name, value);
            }
            for result in block_on(admin.alter_configs(&[wanted], &options))? {
                result.map_err(|(_, code)| code)?;
            }
            Ok(Value::Null)
        }
        "delete_records" => {
            block_on(admin.delete_records(&listed(asked)?, &options))?.elements().iter().try_for_each(|each| each.error())?;
            Ok(Value::Null)
        }
        "delete_group" => only(block_on(admin.delete_groups(&[group], &options))?),
        _ => consuming(asked, topic, group),
    }
}

fn consuming(asked: &Request, topic: &str, group: &str) -> Answer {
    let group = if group.is_empty() { "unused" } else { group };
    let consumer: BaseConsumer<Login> = asked.client(&[("group.id", group), ("allow.auto.create.topics", "false")])?;
    match asked.text("op") {
        "partitions" => Ok(partitions(&consumer, topic)?.into()),
        "bounds" => {
            let (low, high) = consumer.fetch_watermarks(topic, asked.number("partition") as i32, PATIENCE)?;
            Ok(json!([low, high]))
        }
        "offset_at" => {
            let mut wanted = TopicPartitionList::new();
            wanted.add_partition_offset(topic, asked.number("partition") as i32, Offset::Offset(asked.number("timestamp")))?;
            let found = consumer.offsets_for_times(wanted, PATIENCE)?;
            Ok(json!(found.elements()[0].offset().to_raw().filter(|offset| *offset >= 0)))
        }
        "committed" => {
            let mut wanted = TopicPartitionList::new();
            for partition in partitions(&consumer, topic)? {
                wanted.add_partition(topic, partition);
            }
            let found = consumer.committed_offsets(wanted, PATIENCE)?;
            let known = found.elements().into_iter().filter_map(|each| match each.offset() {
                Offset::Offset(offset) => Some((each.partition().to_string(), json!(offset))),
                _ => None,
            });
            Ok(known.collect::<Map<_, _>>().into())
        }
        "reset" => Ok(json!(consumer.commit(&listed(asked)?, CommitMode::Sync)?)),
        "describe_group" => {
            let found = consumer.fetch_group_list(Some(group), PATIENCE)?;
            let found = found.groups().first().ok_or("no such group")?;
            Ok(json!({"state": found.state(), "members": found.members().len()}))
        }
        other => Err(format!("no operation {other}").into()),
    }
}

fn partitions(consumer: &BaseConsumer<Login>, topic: &str) -> Result<Vec<i32>, Box<dyn Error>> {
    let found = consumer.fetch_metadata(None, PATIENCE)?;
    let found = found.topics().iter().filter(|each| each.name() == topic).flat_map(|each| each.partitions());
    Ok(found.map(|each| each.id()).collect())
}

fn listed(asked: &Request) -> Result<TopicPartitionList, Box<dyn Error>> {
    let mut list = TopicPartitionList::new();
    for (partition, offset) in asked.offsets() {
        list.add_partition_offset(asked.text("topic"), partition, Offset::Offset(offset))?;
    }
    Ok(list)
}
