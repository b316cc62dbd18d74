package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

func kafkaGoOperations() map[string]operation {
	operations := groupOperations()
	for name, done := range map[string]operation{
		"open":    kafkaGoOpen,
		"send":    kafkaGoSend,
		"close":   kafkaGoClose,
		"consume": kafkaGoConsume,
		"join":    kafkaGoJoin,
		"version": versionOf("github.com/segmentio/kafka-go"),
	} {
		operations[name] = done
	}
	for name, done := range kafkaGoAdministration() {
		operations[name] = done
	}
	return operations
}

func kafkaGoServers(r *request) []string { return strings.Split(r.Servers, ",") }

func kafkaGoLogin(r *request) (sasl.Mechanism, error) {
	switch r.Access.Mechanism {
	case "":
		return nil, nil
	case "PLAIN":
		return plain.Mechanism{Username: r.Access.User, Password: r.Access.Password}, nil
	case "SCRAM-SHA-256":
		return scram.Mechanism(scram.SHA256, r.Access.User, r.Access.Password)
	case "SCRAM-SHA-512":
		return scram.Mechanism(scram.SHA512, r.Access.User, r.Access.Password)
	}
	return nil, fmt.Errorf("kafka-go has no %s", r.Access.Mechanism)
}

// kafkaGoTransport has the connections of a writer, or of one administrative request.
func kafkaGoTransport(r *request) (*kafka.Transport, error) {
	login, err := kafkaGoLogin(r)
	if err != nil {
		return nil, err
	}
	encrypted, err := r.Access.tls()
	return &kafka.Transport{TLS: encrypted, SASL: login}, err
}

// kafkaGoDialer opens the connections of readers and members.
func kafkaGoDialer(r *request) (*kafka.Dialer, error) {
	login, err := kafkaGoLogin(r)
	if err != nil {
		return nil, err
	}
	encrypted, err := r.Access.tls()
	return &kafka.Dialer{Timeout: patience, DualStack: true, TLS: encrypted, SASLMechanism: login}, err
}

var kafkaGoWriters sync.Map

// kafkaGoPlace is the partition for which a message is meant, and later its offset.
type kafkaGoPlace struct {
	partition int
	offset    int64
}

func kafkaGoOpen(r *request) (any, error) {
	transport, err := kafkaGoTransport(r)
	if err != nil {
		return nil, err
	}
	writer := &kafka.Writer{
		Addr:                   kafka.TCP(kafkaGoServers(r)...),
		Transport:              transport,
		AllowAutoTopicCreation: true,
		BatchTimeout:           time.Millisecond,
		WriteBackoffMin:        20 * time.Millisecond,
		Balancer: kafka.BalancerFunc(func(message kafka.Message, _ ...int) int {
			return message.WriterData.(*kafkaGoPlace).partition
		}),
		Completion: func(messages []kafka.Message, err error) {
			for _, one := range messages {
				one.WriterData.(*kafkaGoPlace).offset = one.Offset
			}
		},
		RequiredAcks: map[string]kafka.RequiredAcks{
			"0": kafka.RequireNone, "1": kafka.RequireOne, "all": kafka.RequireAll,
		}[r.Acks],
		Compression: map[string]kafka.Compression{
			"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
		}[r.Codec],
	}
	if r.MaxBytes > 0 {
		writer.BatchBytes = int64(r.MaxBytes)
	}
	kafkaGoWriters.Store(r.Name, writer)
	return nil, nil
}

func kafkaGoSend(r *request) (any, error) {
	sent, places := []kafka.Message{}, []*kafkaGoPlace{}
	for _, given := range r.Records {
		one := kafka.Message{
			Topic: r.Topic, Key: bytesOf(given.Key), Value: bytesOf(given.Value),
			WriterData: &kafkaGoPlace{partition: int(given.Partition)},
		}
		if given.Timestamp >= 0 {
			one.Time = time.UnixMilli(given.Timestamp)
		}
		for _, pair := range given.Headers {
			one.Headers = append(one.Headers, kafka.Header{Key: pair.Key, Value: bytesOf(pair.Value)})
		}
		sent, places = append(sent, one), append(places, one.WriterData.(*kafkaGoPlace))
	}
	writer, _ := kafkaGoWriters.Load(r.Name)
	within, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	if err := writer.(*kafka.Writer).WriteMessages(within, sent...); err != nil {
		return nil, err
	}
	offsets := []int64{}
	for _, one := range places {
		if r.Acks == "0" {
			one.offset = -1
		}
		offsets = append(offsets, one.offset)
	}
	return offsets, nil
}

func kafkaGoClose(r *request) (any, error) {
	found, _ := kafkaGoWriters.LoadAndDelete(r.Name)
	writer := found.(*kafka.Writer)
	err := writer.Close()
	writer.Transport.(*kafka.Transport).CloseIdleConnections()
	return nil, err
}

func kafkaGoRecord(read kafka.Message) record {
	headers := []header{}
	for _, pair := range read.Headers {
		headers = append(headers, header{Key: pair.Key, Value: pointer(pair.Value)})
	}
	return record{
		Partition: int32(read.Partition), Offset: read.Offset, Timestamp: read.Time.UnixMilli(),
		Key: pointer(read.Key), Value: pointer(read.Value), Headers: headers,
	}
}

// kafkaGoReader reads one partition from an offset on.
func kafkaGoReader(r *request, dialer *kafka.Dialer, partition int, offset int64) (*kafka.Reader, error) {
	config := kafka.ReaderConfig{
		Brokers: kafkaGoServers(r), Topic: r.Topic, Partition: partition, Dialer: dialer,
		MinBytes: 1, MaxBytes: 1 << 24, MaxWait: 100 * time.Millisecond, ReadBackoffMin: 20 * time.Millisecond,
	}
	if r.Committed {
		config.IsolationLevel = kafka.ReadCommitted
	}
	reader := kafka.NewReader(config)
	return reader, reader.SetOffset(offset)
}

func kafkaGoConsume(r *request) (any, error) {
	dialer, err := kafkaGoDialer(r)
	if err != nil {
		return nil, err
	}
	within, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	arrived := make(chan kafka.Message)
	for partition, offset := range r.Offsets {
		reader, err := kafkaGoReader(r, dialer, int(partition), offset)
		if err != nil {
			return nil, err
		}
		go func() {
			defer reader.Close()
			for {
				one, err := reader.ReadMessage(within)
				if err != nil {
					return
				}
				select {
				case arrived <- one:
				case <-within.Done():
				}
			}
		}()
	}
	read := []record{}
	for len(read) < r.Count {
		select {
		case one := <-arrived:
			read = append(read, kafkaGoRecord(one))
		case <-within.Done():
			return nil, fmt.Errorf("%d records read in time", len(read))
		}
	}
	return read, nil
}

func kafkaGoJoin(r *request) (any, error) {
	dialer, err := kafkaGoDialer(r)
	if err != nil {
		return nil, err
	}
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: r.Group, Brokers: kafkaGoServers(r), Topics: []string{r.Topic}, Dialer: dialer,
		HeartbeatInterval: 50 * time.Millisecond, JoinGroupBackoff: 20 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	m := newMember()
	var generation *kafka.Generation
	next := map[int]int64{}
	m.commit = func() error {
		m.mutex.Lock()
		defer m.mutex.Unlock()
		return generation.CommitOffsets(map[string]map[int]int64{r.Topic: next})
	}
	m.leave = group.Close
	members.Store(r.Name, m)
	hold := func(current *kafka.Generation) {
		assigned := current.Assignments[r.Topic]
		m.change(func() {
			generation, next = current, map[int]int64{}
			for _, each := range assigned {
				m.owned[int32(each.ID)] = true
			}
		})
		current.Start(func(within context.Context) {
			<-within.Done()
			m.change(func() {
				m.revoked += len(m.owned)
				m.owned = map[int32]bool{}
			})
		})
		for _, each := range assigned {
			current.Start(func(within context.Context) {
				reader, err := kafkaGoReader(r, dialer, each.ID, each.Offset)
				defer reader.Close()
				for err == nil {
					var one kafka.Message
					if one, err = reader.ReadMessage(within); err == nil {
						m.change(func() {
							m.records = append(m.records, kafkaGoRecord(one))
							next[one.Partition] = one.Offset + 1
						})
					}
				}
				<-within.Done()
			})
		}
	}
	go func() {
		for {
			current, err := group.Next(context.Background())
			switch err {
			case nil:
				hold(current)
			case kafka.ErrGroupClosed:
				return
			case kafka.RebalanceInProgress: // it joins again
			default:
				m.change(func() { m.failure = err })
			}
		}
	}()
	return nil, nil
}
