package main

import (
	"context"
	"math/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// inFlight is how many produce requests a client has under way, as Kafka's own producers.
const inFlight = 5

// buffered is how many records wait in the client; its own default would starve batches of small records.
const buffered = 100_000

func producer(s *settings, linger time.Duration, more ...kgo.Opt) (*kgo.Client, error) {
	return connect(s, append(more,
		kgo.DefaultProduceTopic(s.topic), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()),
		kgo.MaxProduceRequestsInflightPerBroker(inFlight), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(int32(s.batchBytes)), kgo.ProducerLinger(linger), kgo.MaxBufferedRecords(buffered),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)...)
}

func valueOf(s *settings) []byte {
	value := make([]byte, s.bytes)
	rand.New(rand.NewSource(1)).Read(value)
	return value
}

// produce sends records, as many at once as the client takes, and answers how fast they were acknowledged.
func produce(ctx context.Context, s *settings) (map[string]any, error) {
	client, err := producer(s, s.linger)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	value := valueOf(s)
	if s.stepMs == 0 { // connections and metadata are there before the time counts; this record is not counted
		if err := client.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr(); err != nil {
			return nil, err
		}
	}
	var failure atomic.Pointer[error]
	began := time.Now()
	for number := range s.records {
		record := &kgo.Record{Value: value, Partition: int32(number % s.partitions)}
		if s.stepMs > 0 {
			record.Timestamp = time.UnixMilli(int64(1 + number/s.partitions*s.stepMs))
		}
		client.Produce(ctx, record, func(_ *kgo.Record, err error) {
			if err != nil {
				failure.Store(&err)
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return nil, err
	}
	taken := time.Since(began).Seconds()
	if found := failure.Load(); found != nil {
		return nil, *found
	}
	rate := float64(s.records) / taken
	return map[string]any{"records_s": rate, "mb_s": rate * float64(s.bytes) / 1e6, "seconds": taken}, nil
}

// single lets clients, each with a connection of its own, send one record after the other, each when the one before is
// acknowledged.
func single(ctx context.Context, s *settings) (map[string]any, error) {
	value := valueOf(s)
	clients := make([]*kgo.Client, s.clients)
	for at := range clients {
		client, err := producer(s, 0)
		if err != nil {
			return nil, err
		}
		defer client.Close()
		if err := client.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr(); err != nil {
			return nil, err
		}
		clients[at] = client
	}
	var group sync.WaitGroup
	taken := make([][]time.Duration, s.clients)
	failures := make([]error, s.clients)
	began := time.Now()
	end := began.Add(time.Duration(s.seconds * float64(time.Second)))
	for at, client := range clients {
		group.Go(func() {
			for sent := time.Now(); sent.Before(end) && failures[at] == nil; {
				failures[at] = client.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr()
				now := time.Now()
				taken[at] = append(taken[at], now.Sub(sent))
				sent = now
			}
		})
	}
	group.Wait()
	seconds := time.Since(began).Seconds()
	all := []time.Duration{}
	for at := range clients {
		if failures[at] != nil {
			return nil, failures[at]
		}
		all = append(all, taken[at]...)
	}
	answer, err := latencies(all)
	if err == nil {
		answer["records_s"] = float64(len(all)) / seconds
	}
	return answer, err
}
