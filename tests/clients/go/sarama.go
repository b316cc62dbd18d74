package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

var saramaProducers sync.Map

func saramaOperations() map[string]operation {
	operations := groupOperations()
	for name, done := range map[string]operation{
		"open":      saramaOpen,
		"send":      saramaSend,
		"begin":     func(r *request) (any, error) { return nil, saramaProducer(r).BeginTxn() },
		"end":       saramaEnd,
		"close":     saramaClose,
		"consume":   saramaConsume,
		"join":      saramaJoin,
		"transform": saramaTransform,
		"version":   versionOf("github.com/IBM/sarama"),
	} {
		operations[name] = done
	}
	for name, done := range saramaAdministration() {
		operations[name] = done
	}
	return operations
}

func saramaConfig(r *request) (*sarama.Config, error) {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.Retry.Backoff = 20 * time.Millisecond
	config.Metadata.Retry.Max = 200
	config.Producer.Retry.Backoff = 20 * time.Millisecond
	config.Producer.Retry.Max = 200
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Heartbeat.Interval = 50 * time.Millisecond
	config.Consumer.Group.Rebalance.Retry.Backoff = 20 * time.Millisecond
	encrypted, err := r.Access.tls()
	config.Net.TLS.Enable, config.Net.TLS.Config = encrypted != nil, encrypted
	if mechanism := sarama.SASLMechanism(r.Access.Mechanism); mechanism != "" {
		config.Net.SASL.Enable, config.Net.SASL.Mechanism = true, mechanism
		config.Net.SASL.User, config.Net.SASL.Password = r.Access.User, r.Access.Password
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{mechanism: mechanism} }
		config.Net.SASL.TokenProvider = r.Access
	}
	return config, err
}

func saramaServers(r *request) []string { return strings.Split(r.Servers, ",") }

func saramaOpen(r *request) (any, error) {
	config, err := saramaConfig(r)
	if err != nil {
		return nil, err
	}
	config.Producer.RequiredAcks = map[string]sarama.RequiredAcks{
		"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll,
	}[r.Acks]
	config.Producer.Compression = map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}[r.Codec]
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	if r.MaxBytes > 0 {
		config.Producer.MaxMessageBytes = int(r.MaxBytes)
	}
	if r.Idempotent || r.TransactionalID != "" {
		config.Producer.Idempotent = true
		config.Producer.Transaction.ID = r.TransactionalID
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer(saramaServers(r), config)
	if err == nil {
		saramaProducers.Store(r.Name, producer)
	}
	return nil, err
}

func saramaProducer(r *request) sarama.SyncProducer {
	found, _ := saramaProducers.Load(r.Name)
	return found.(sarama.SyncProducer)
}

func saramaBytes(data *[]byte) sarama.Encoder {
	if data == nil {
		return nil
	}
	return sarama.ByteEncoder(bytesOf(data))
}

func saramaSend(r *request) (any, error) {
	sent := []*sarama.ProducerMessage{}
	for _, given := range r.Records {
		one := &sarama.ProducerMessage{
			Topic: r.Topic, Partition: given.Partition, Key: saramaBytes(given.Key), Value: saramaBytes(given.Value),
		}
		if given.Timestamp >= 0 {
			one.Timestamp = time.UnixMilli(given.Timestamp)
		}
		for _, pair := range given.Headers {
			one.Headers = append(one.Headers, sarama.RecordHeader{Key: []byte(pair.Key), Value: bytesOf(pair.Value)})
		}
		sent = append(sent, one)
	}
	if err := saramaProducer(r).SendMessages(sent); err != nil {
		var each sarama.ProducerErrors
		if errors.As(err, &each) {
			return nil, each[0].Err
		}
		return nil, err
	}
	offsets := []int64{}
	for _, one := range sent {
		if r.Acks == "0" {
			one.Offset = -1
		}
		offsets = append(offsets, one.Offset)
	}
	return offsets, nil
}

func saramaEnd(r *request) (any, error) {
	if r.Committed {
		return nil, saramaProducer(r).CommitTxn()
	}
	return nil, saramaProducer(r).AbortTxn()
}

func saramaClose(r *request) (any, error) {
	err := saramaProducer(r).Close()
	saramaProducers.Delete(r.Name)
	return nil, err
}

func saramaRecord(read *sarama.ConsumerMessage) record {
	headers := []header{}
	for _, pair := range read.Headers {
		headers = append(headers, header{Key: string(pair.Key), Value: pointer(pair.Value)})
	}
	return record{
		Partition: read.Partition, Offset: read.Offset, Timestamp: read.Timestamp.UnixMilli(),
		Key: pointer(read.Key), Value: pointer(read.Value), Headers: headers,
	}
}

func saramaConsume(r *request) (any, error) {
	config, err := saramaConfig(r)
	if err != nil {
		return nil, err
	}
	if r.Committed {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer(saramaServers(r), config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	arrived := make(chan *sarama.ConsumerMessage)
	failed := make(chan error, len(r.Offsets))
	over := make(chan struct{})
	defer close(over)
	for partition, offset := range r.Offsets {
		part, err := consumer.ConsumePartition(r.Topic, partition, offset)
		if err != nil {
			return nil, err
		}
		defer part.AsyncClose()
		go func() {
			for one := range part.Messages() {
				select {
				case arrived <- one:
				case <-over:
				}
			}
		}()
		go func() {
			for err := range part.Errors() {
				select {
				case failed <- err:
				case <-over:
				}
			}
		}()
	}
	read := []record{}
	deadline := time.After(patience)
	for len(read) < r.Count {
		select {
		case one := <-arrived:
			read = append(read, saramaRecord(one))
		case err := <-failed:
			return nil, err
		case <-deadline:
			return nil, fmt.Errorf("%d records read in time", len(read))
		}
	}
	return read, nil
}

// saramaTransform reads records of partition 0 and writes them to another topic, with the offset behind them, in one transaction.
func saramaTransform(r *request) (any, error) {
	read, err := saramaConsume(&request{
		Servers: r.Servers, Access: r.Access, Topic: r.Topic, Offsets: map[int32]int64{0: r.Offsets[0]}, Count: r.Count, Committed: true,
	})
	if err != nil {
		return nil, err
	}
	open := *r
	open.Name, open.Acks, open.Codec = "transform of "+r.TransactionalID, "all", "none"
	if _, err := saramaOpen(&open); err != nil {
		return nil, err
	}
	defer saramaClose(&open)
	producer := saramaProducer(&open)
	if err := producer.BeginTxn(); err != nil {
		return nil, err
	}
	records := read.([]record)
	open.Topic, open.Records = r.Target, records
	if _, err := saramaSend(&open); err != nil {
		return nil, err
	}
	next := []*sarama.PartitionOffsetMetadata{{Partition: 0, Offset: records[len(records)-1].Offset + 1}}
	if err := producer.AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{r.Topic: next}, r.Group); err != nil {
		return nil, err
	}
	_, err = saramaEnd(&open)
	return records, err
}
