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

var triolog *Triolog

func TestMain(m *testing.M) {
	var err error
	if triolog, err = startTriolog(); err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	triolog.stop()
	os.Exit(code)
}

func TestAnOrderArrivesAlthoughTheLeaderMoves(t *testing.T) {
	triolog.call(t, "POST", "/reset", "{}")
	triolog.call(t, "POST", "/topics", `{"name": "orders"}`)
	triolog.call(t, "POST", "/faults", `{"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "once": true}`)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(triolog.Kafka), kgo.ConsumeTopics("orders"), kgo.ConsumerGroup("baristas"))
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
	if faults := triolog.call(t, "GET", "/faults", ""); !strings.Contains(faults, `"fired": 1`) {
		t.Error(faults)
	}
}
