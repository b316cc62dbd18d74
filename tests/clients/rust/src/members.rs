//! Members of groups, each with a thread that polls, and reading of assigned partitions.
use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{Value, json};

use crate::{Answer, Login, PATIENCE, Request, received};

const POLL: Duration = Duration::from_millis(50);

#[derive(Default)]
struct State {
    held: BTreeSet<i32>,
    revoked: usize,
    records: Vec<Value>,
    failure: Option<String>,
}

#[derive(Default)]
pub struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    leaving: AtomicBool,
}

impl Shared {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    fn wait<T>(&self, reached: impl Fn(&State) -> bool, result: impl Fn(&State) -> T) -> Result<T, Box<dyn Error>> {
        let wanted = |state: &mut State| !reached(state) && state.failure.is_none();
        let (state, timeout) = self.changed.wait_timeout_while(self.state.lock().unwrap(), PATIENCE, wanted).unwrap();
        match &state.failure {
            Some(failure) => Err(failure.as_str().into()),
            None if timeout.timed_out() => {
                Err(format!("not in time: {:?} held, {} records received", state.held, state.records.len()).into())
            }
            None => Ok(result(&state)),
        }
    }
}

impl ConsumerContext for Login {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let Some(member) = &self.member else { return };
        let numbers = |list: &TopicPartitionList| list.elements().iter().map(|each| each.partition()).collect::<Vec<_>>();
        member.change(|state| match rebalance {
            Rebalance::Assign(given) => state.held.extend(numbers(given)),
            Rebalance::Revoke(taken) => {
                state.revoked += numbers(taken).iter().filter(|each| state.held.remove(each)).count();
            }
            Rebalance::Error(error) => state.failure = Some(error.to_string()),
        });
    }
}

struct Member {
    consumer: Arc<BaseConsumer<Login>>,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
pub struct Members(HashMap<String, Member>);

impl Members {
    pub fn answer(&mut self, asked: &Request) -> Answer {
        let (name, count) = (asked.text("name"), asked.number("count") as usize);
        match asked.text("op") {
            "join" => {
                self.0.insert(name.into(), join(asked)?);
                Ok(Value::Null)
            }
            "assigned" => self.0[name]
                .shared
                .wait(|state| state.held.len() == count, |state| json!({"partitions": state.held, "revoked": state.revoked})),
            "received" => self.0[name].shared.wait(|state| state.records.len() >= count, |state| state.records.clone().into()),
            "commit" => Ok(json!(self.0[name].consumer.commit_consumer_state(CommitMode::Sync)?)),
            _ => {
                let member = self.0.remove(name).unwrap();
                member.shared.leaving.store(true, Ordering::Relaxed);
                member.thread.join().unwrap();
                Ok(Value::Null) // the member leaves as the last reference to its consumer is dropped
            }
        }
    }
}

fn join(asked: &Request) -> Result<Member, Box<dyn Error>> {
    let mut settings = vec![
        ("group.id", asked.text("group")),
        ("enable.auto.commit", "false"),
        ("auto.offset.reset", "earliest"),
        ("fetch.wait.max.ms", "50"),
    ];
    match asked.text("assignor") {
        "server" => settings.push(("group.protocol", "consumer")),
        chosen => {
            let strategy = if chosen == "cooperative" { "cooperative-sticky" } else { chosen };
            settings.push(("partition.assignment.strategy", strategy));
            settings.extend([("heartbeat.interval.ms", "50"), ("session.timeout.ms", "10000")]);
        }
    }
    if !asked.text("instance").is_empty() {
        settings.push(("group.instance.id", asked.text("instance")));
    }
    let shared = Arc::new(Shared::default());
    let login = Login { member: Some(shared.clone()), ..asked.login() };
    let consumer: Arc<BaseConsumer<Login>> = Arc::new(asked.client_of(login, &settings)?);
    consumer.subscribe(&[asked.text("topic")])?;
    let polled = (consumer.clone(), shared.clone());
    let thread = thread::spawn(move || {
        let (consumer, shared) = polled;
        while !shared.leaving.load(Ordering::Relaxed) {
            match consumer.poll(POLL) {
                Some(Ok(message)) => shared.change(|state| state.records.push(received(&message))),
                Some(Err(error)) => shared.change(|state| state.failure = Some(error.to_string())),
                None => {}
            }
        }
    });
    Ok(Member { consumer, shared, thread })
}

/// Returns `count` records of partitions, each from an offset on.
pub fn consume(asked: &Request, group: &str) -> Result<Vec<Value>, Box<dyn Error>> {
    let isolation =
        if asked.flag("committed") || asked.text("op") == "transform" { "read_committed" } else { "read_uncommitted" };
    let consumer: BaseConsumer<Login> = asked.client(&[
        ("group.id", group),
        ("enable.auto.commit", "false"),
        ("fetch.wait.max.ms", "50"),
        ("isolation.level", isolation),
    ])?;
    let mut assigned = TopicPartitionList::new();
    for (partition, offset) in asked.offsets() {
        assigned.add_partition_offset(asked.text("topic"), partition, Offset::Offset(offset))?;
    }
    consumer.assign(&assigned)?;
    let (mut records, deadline) = (vec![], Instant::now() + PATIENCE);
    while records.len() < asked.number("count") as usize && Instant::now() < deadline {
        if let Some(message) = consumer.poll(POLL) {
            records.push(received(&message?));
        }
    }
    Ok(records)
}
