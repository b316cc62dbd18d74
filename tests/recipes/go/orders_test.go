package orders

import (
	"context"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var broker *Triolog

func TestMain(m *testing.M) {
	var err error
	if broker, err = startTriolog(); err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	broker.stop()
	os.Exit(code)
}

func TestAnOrderArrivesAlthoughTheLeaderMoves(t *testing.T) {
	broker.call(t, "POST", "/reset", "{}")
	broker.call(t, "POST", "/topics", `{"name": "orders"}`)
	broker.call(t, "POST", "/faults", `{"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "once": true}`)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Kafka), kgo.ConsumeTopics("orders"), kgo.ConsumerGroup("baristas"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	order := &kgo.Record{Topic: "orders", Value: []byte("espresso")}
	if err := client.ProduceSync(ctx, order).FirstErr(); err != nil {
		t.Fatal(err)
	}
	fetches := client.PollFetches(ctx)
	if err := fetches.Err(); err != nil {
		t.Fatal(err)
	}

	if records := fetches.Records(); len(records) != 1 || string(records[0].Value) != "espresso" {
		t.Error(records)
	}
	if faults := broker.call(t, "GET", "/faults", ""); !strings.Contains(faults, `"fired": 1`) {
		t.Error(faults)
	}
}
