// The generator of `triolog bench-kafka`: loads that any Kafka broker can be put under, and franz-go's own broker in memory.
// One load a process; what it measured is one JSON line.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// patience is how long a load waits for what must come.
const patience = 120 * time.Second

// settings are the flags; each load reads those it needs.
type settings struct {
	address    string
	topic      string
	partitions int
	records    int
	bytes      int
	batchBytes int
	stepMs     int
	linger     time.Duration
	clients    int
	seconds    float64
	requests   int
	flush      bool
	first      int
	pid        int
	segmentMs  int
}

var loads = map[string]func(context.Context, *settings) (map[string]any, error){
	"create": create, "delete": remove, "produce": produce, "consume": consume, "single": single, "times": times, "join": join,
	"fill": fill, "idle": idle, "groups": groups, "roll": roll, "seek": seek, "transactional": transactional, "consumers": consumers,
}

func main() {
	if len(os.Args) < 2 {
		log.Fatal("which load?")
	}
	s := &settings{}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	flags.StringVar(&s.address, "address", "", "of the broker")
	flags.StringVar(&s.topic, "topic", "bench", "to work on")
	flags.IntVar(&s.partitions, "partitions", 1, "of the topic")
	flags.IntVar(&s.records, "records", 1, "to send or to read")
	flags.IntVar(&s.bytes, "bytes", 100, "of a record's value")
	flags.IntVar(&s.batchBytes, "batch-bytes", 128<<10, "of a batch at most")
	flags.IntVar(&s.stepMs, "step-ms", 0, "between the timestamps of records, which count from 1; 0: the time of sending")
	flags.DurationVar(&s.linger, "linger", 10*time.Millisecond, "for more records in a batch")
	flags.IntVar(&s.clients, "clients", 1, "connections, each with one record under way")
	flags.Float64Var(&s.seconds, "seconds", 1, "to measure for")
	flags.IntVar(&s.requests, "requests", 100, "to send, or groups to join")
	flags.BoolVar(&s.flush, "flush", false, "create the topic with flush.messages=1")
	flags.IntVar(&s.first, "first", 0, "the number of things that are there already, for loads that grow something")
	flags.IntVar(&s.pid, "pid", 0, "of the broker")
	flags.IntVar(&s.segmentMs, "segment-ms", 0, "create the topic with this segment.ms")
	flags.Parse(os.Args[2:])
	if os.Args[1] == "kfake" {
		if err := serveFake(s); err != nil {
			log.Fatal(err)
		}
		return
	}
	load, known := loads[os.Args[1]]
	if !known {
		log.Fatalf("no load is called %q", os.Args[1])
	}
	answer, err := load(context.Background(), s)
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		log.Fatal(err)
	}
}

func connect(s *settings, options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(s.address)}, options...)...)
}

func create(ctx context.Context, s *settings) (map[string]any, error) {
	client, err := connect(s)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	configs := map[string]*string{"retention.ms": kadm.StringPtr("-1")} // some loads have timestamps of 1970
	if s.flush {
		configs["flush.messages"] = kadm.StringPtr("1")
	}
	if s.segmentMs > 0 {
		configs["segment.ms"] = kadm.StringPtr(fmt.Sprint(s.segmentMs))
	}
	answer, err := kadm.NewClient(client).CreateTopic(ctx, int32(s.partitions), 1, configs, s.topic)
	if err != nil {
		return nil, err
	}
	return map[string]any{}, answer.Err
}

func remove(ctx context.Context, s *settings) (map[string]any, error) {
	client, err := connect(s)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	answer, err := kadm.NewClient(client).DeleteTopic(ctx, s.topic)
	if err != nil {
		return nil, err
	}
	return map[string]any{}, answer.Err
}

// share answers the smallest of ordered values that at least this share of them do not exceed, in milliseconds.
func share(ordered []time.Duration, part float64) float64 {
	at := min(len(ordered)-1, int(part*float64(len(ordered))))
	return float64(ordered[at]) / float64(time.Millisecond)
}

func latencies(all []time.Duration) (map[string]any, error) {
	if len(all) == 0 {
		return nil, fmt.Errorf("nothing was answered")
	}
	slices.Sort(all)
	return map[string]any{"count": len(all), "p50_ms": share(all, 0.5), "p99_ms": share(all, 0.99)}, nil
}
