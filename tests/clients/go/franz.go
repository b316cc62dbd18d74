package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var franzProducers sync.Map

func franzOperations() map[string]operation {
	operations := groupOperations()
	for name, done := range map[string]operation{
		"consume":   franzConsume,
		"join":      franzJoin,
		"open":      franzOpen,
		"begin":     func(r *request) (any, error) { return nil, franzProducer(r).BeginTransaction() },
		"send":      func(r *request) (any, error) { return franzSend(franzProducer(r), r) },
		"end":       franzEnd,
		"close":     franzClose,
		"transform": franzTransform,
		"version":   versionOf("github.com/twmb/franz-go"),
	} {
		operations[name] = done
	}
	for _, more := range []map[string]operation{franzAdministration(), franzSharing()} {
		for name, done := range more {
			operations[name] = done
		}
	}
	return operations
}

func franzOptions(r *request) ([]kgo.Opt, error) {
	encrypted, err := r.Access.tls()
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(r.Servers, ",")...),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.RetryTimeout(patience),
	}
	if encrypted != nil {
		options = append(options, kgo.DialTLSConfig(encrypted))
	}
	user, password := r.Access.User, r.Access.Password
	switch r.Access.Mechanism {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: r.Access.Bearer}.AsMechanism()))
	}
	return options, err
}

func franzClient(r *request, options ...kgo.Opt) (*kgo.Client, error) {
	given, err := franzOptions(r)
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(append(given, options...)...)
}

func franzProducing(r *request) []kgo.Opt {
	codec := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[r.Codec]
	options := []kgo.Opt{
		kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0), kgo.AllowAutoTopicCreation(),
	}
	if r.MaxBytes > 0 {
		options = append(options, kgo.ProducerBatchMaxBytes(r.MaxBytes))
	}
	if !r.Idempotent && r.TransactionalID == "" {
		acks := map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}[r.Acks]
		options = append(options, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(acks))
	}
	return options
}

func franzSend(client *kgo.Client, r *request) (any, error) {
	sent := []*kgo.Record{}
	for _, given := range r.Records {
		one := &kgo.Record{Topic: r.Topic, Partition: given.Partition, Key: bytesOf(given.Key), Value: bytesOf(given.Value)}
		if given.Timestamp >= 0 {
			one.Timestamp = time.UnixMilli(given.Timestamp)
		}
		for _, pair := range given.Headers {
			one.Headers = append(one.Headers, kgo.RecordHeader{Key: pair.Key, Value: bytesOf(pair.Value)})
		}
		sent = append(sent, one)
	}
	offsets := []int64{}
	for _, result := range client.ProduceSync(context.Background(), sent...) {
		if result.Err != nil {
			return nil, result.Err
		}
		offsets = append(offsets, result.Record.Offset)
	}
	if r.Acks == "0" {
		for at := range offsets {
			offsets[at] = -1
		}
	}
	return offsets, nil
}

func franzRecord(read *kgo.Record) record {
	headers := []header{}
	for _, pair := range read.Headers {
		headers = append(headers, header{Key: pair.Key, Value: pointer(pair.Value)})
	}
	return record{
		Partition: read.Partition, Offset: read.Offset, Timestamp: read.Timestamp.UnixMilli(),
		Key: pointer(read.Key), Value: pointer(read.Value), Headers: headers,
	}
}

func franzReading(r *request) []kgo.Opt {
	isolation := kgo.ReadUncommitted()
	if r.Committed {
		isolation = kgo.ReadCommitted()
	}
	return []kgo.Opt{kgo.FetchIsolationLevel(isolation), kgo.FetchMaxWait(100 * time.Millisecond)}
}

func franzConsume(r *request) (any, error) {
	from := map[int32]kgo.Offset{}
	for partition, offset := range r.Offsets {
		from[partition] = kgo.NewOffset().At(offset)
	}
	options := append(franzReading(r), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.Topic: from}))
	client, err := franzClient(r, options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	within, done := context.WithTimeout(context.Background(), patience)
	defer done()
	read := []record{}
	for len(read) < r.Count {
		fetched := client.PollFetches(within)
		if err := fetched.Err(); err != nil {
			return nil, fmt.Errorf("%w (%d records read)", err, len(read))
		}
		fetched.EachRecord(func(one *kgo.Record) { read = append(read, franzRecord(one)) })
	}
	return read, nil
}

func franzProducer(r *request) *kgo.Client {
	found, _ := franzProducers.Load(r.Name)
	return found.(*kgo.Client)
}

func franzOpen(r *request) (any, error) {
	options := franzProducing(r)
	if r.TransactionalID != "" {
		options = append(options, kgo.TransactionalID(r.TransactionalID))
	}
	client, err := franzClient(r, options...)
	if err != nil {
		return nil, err
	}
	franzProducers.Store(r.Name, client)
	if r.TransactionalID != "" {
		_, _, err = client.ProducerID(context.Background())
	}
	return nil, err
}

func franzEnd(r *request) (any, error) {
	return nil, franzProducer(r).EndTransaction(context.Background(), kgo.TransactionEndTry(r.Committed))
}

func franzClose(r *request) (any, error) {
	franzProducer(r).Close()
	franzProducers.Delete(r.Name)
	return nil, nil
}

// franzTransform reads records of one topic as a member of a group and writes them to another, both in one transaction.
func franzTransform(r *request) (any, error) {
	options, err := franzOptions(r)
	if err != nil {
		return nil, err
	}
	options = append(append(options, franzProducing(r)...), franzReading(r)...)
	session, err := kgo.NewGroupTransactSession(append(options,
		kgo.TransactionalID(r.TransactionalID), kgo.ConsumerGroup(r.Group),
		kgo.ConsumeTopics(r.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets())...)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	within, done := context.WithTimeout(context.Background(), patience)
	defer done()
	if err := session.Begin(); err != nil {
		return nil, err
	}
	read := []record{}
	var failed error
	for len(read) < r.Count {
		fetched := session.PollFetches(within)
		if err := fetched.Err(); err != nil {
			return nil, err
		}
		fetched.EachRecord(func(one *kgo.Record) {
			read = append(read, franzRecord(one))
			copied := &kgo.Record{Topic: r.Target, Key: one.Key, Value: one.Value}
			failed = errors.Join(failed, session.ProduceSync(within, copied).FirstErr())
		})
		if failed != nil {
			return nil, failed
		}
	}
	ended, err := session.End(within, kgo.TransactionEndTry(r.Committed))
	if err == nil && ended != r.Committed {
		err = errors.New("the session ended the transaction otherwise than it was told")
	}
	return read, err
}
