mod triolog;

use chrono::Utc;
use rskafka::client::ClientBuilder;
use rskafka::client::partition::{Compression, UnknownTopicHandling};
use rskafka::record::Record;
use serde_json::json;
use triolog::Triolog;

#[tokio::test]
async fn an_order_arrives_although_the_leader_moves() {
    let triolog = Triolog::start();
    triolog.post("/topics", json!({"name": "orders"}));
    triolog.post("/faults", json!({"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "once": true}));
    let client = ClientBuilder::new(vec![triolog.address("kafka")]).build().await.unwrap();
    let orders = client.partition_client("orders", 0, UnknownTopicHandling::Error).await.unwrap();

    let value = Some(b"espresso".to_vec());
    let order = Record { key: None, value, headers: Default::default(), timestamp: Utc::now() };
    orders.produce(vec![order], Compression::NoCompression).await.unwrap();
    let (received, _) = orders.fetch_records(0, 1..1_000_000, 60_000).await.unwrap();

    assert_eq!(received[0].record.value.as_deref(), Some(b"espresso".as_slice()));
    assert_eq!(triolog.get("/faults")[0]["fired"], 1);
}
