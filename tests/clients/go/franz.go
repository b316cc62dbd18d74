package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
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
	} {
		operations[name] = done
	}
	for name, done := range franzAdministration() {
		operations[name] = done
	}
	return operations
}

func franzClient(r *request, options ...kgo.Opt) (*kgo.Client, error) {
	given := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(r.Servers, ",")...),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.RetryTimeout(patience),
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

func franzJoin(r *request) (any, error) {
	m := newMember()
	balancer := kgo.RangeBalancer()
	if r.Assignor == "cooperative" {
		balancer = kgo.CooperativeStickyBalancer()
	}
	gone := func(_ context.Context, _ *kgo.Client, taken map[string][]int32) {
		m.change(func() {
			for _, partition := range taken[r.Topic] {
				delete(m.owned, partition)
				m.revoked++
			}
		})
	}
	options := append(franzReading(r),
		kgo.ConsumerGroup(r.Group), kgo.ConsumeTopics(r.Topic), kgo.Balancers(balancer), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(50*time.Millisecond),
		kgo.SessionTimeout(10*time.Second), kgo.RebalanceTimeout(10*time.Second),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, given map[string][]int32) {
			m.change(func() {
				for _, partition := range given[r.Topic] {
					m.owned[partition] = true
				}
			})
		}), kgo.OnPartitionsRevoked(gone), kgo.OnPartitionsLost(gone))
	if r.Instance != "" {
		options = append(options, kgo.InstanceID(r.Instance))
	}
	client, err := franzClient(r, options...)
	if err != nil {
		return nil, err
	}
	m.commit = func() error { return client.CommitUncommittedOffsets(context.Background()) }
	m.leave = func() error {
		client.Close()
		<-m.finished
		return nil
	}
	members.Store(r.Name, m)
	go func() {
		defer close(m.finished)
		for {
			fetched := client.PollFetches(context.Background())
			if fetched.IsClientClosed() {
				return
			}
			m.change(func() {
				fetched.EachRecord(func(one *kgo.Record) { m.records = append(m.records, franzRecord(one)) })
				if err := fetched.Err(); err != nil && !errors.Is(err, context.Canceled) {
					m.failure = err
				}
			})
		}
	}()
	return nil, nil
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
	options := append(franzProducing(r), franzReading(r)...)
	session, err := kgo.NewGroupTransactSession(append(options,
		kgo.SeedBrokers(strings.Split(r.Servers, ",")...), kgo.TransactionalID(r.TransactionalID), kgo.ConsumerGroup(r.Group),
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

func franzAdministration() map[string]operation {
	within := context.Background()
	with := func(do func(*kadm.Client, *request) (any, error)) operation {
		return func(r *request) (any, error) {
			client, err := franzClient(r)
			if err != nil {
				return nil, err
			}
			defer client.Close()
			return do(kadm.NewClient(client), r)
		}
	}
	return map[string]operation{
		"create_topic": with(func(admin *kadm.Client, r *request) (any, error) {
			configs := map[string]*string{}
			for key, value := range r.Configs {
				configs[key] = &value
			}
			_, err := admin.CreateTopic(within, r.Partitions, 1, configs, r.Topic)
			return nil, err
		}),
		"delete_topic": with(func(admin *kadm.Client, r *request) (any, error) {
			_, err := admin.DeleteTopic(within, r.Topic)
			return nil, err
		}),
		"partitions": with(func(admin *kadm.Client, r *request) (any, error) {
			found, err := admin.ListTopics(within)
			if err != nil || !found.Has(r.Topic) {
				return []int32{}, err
			}
			return found[r.Topic].Partitions.Numbers(), nil
		}),
		"add_partitions": with(func(admin *kadm.Client, r *request) (any, error) {
			changed, err := admin.UpdatePartitions(within, int(r.Partitions), r.Topic)
			if err == nil {
				err = changed.Error()
			}
			return nil, err
		}),
		"describe_configs": with(func(admin *kadm.Client, r *request) (any, error) {
			found, err := admin.DescribeTopicConfigs(within, r.Topic)
			if err != nil {
				return nil, err
			}
			of, err := found.On(r.Topic, nil)
			values := map[string]string{}
			for _, config := range of.Configs {
				values[config.Key] = config.MaybeValue()
			}
			return values, errors.Join(err, of.Err)
		}),
		"alter_configs": with(func(admin *kadm.Client, r *request) (any, error) {
			set := []kadm.AlterConfig{}
			for key, value := range r.Configs {
				set = append(set, kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: &value})
			}
			changed, err := admin.AlterTopicConfigs(within, set, r.Topic)
			if err == nil {
				err = changed[0].Err
			}
			return nil, err
		}),
		"delete_records": with(func(admin *kadm.Client, r *request) (any, error) {
			before := kadm.Offsets{}
			for partition, offset := range r.Offsets {
				before.AddOffset(r.Topic, partition, offset, -1)
			}
			deleted, err := admin.DeleteRecords(within, before)
			if err == nil {
				err = deleted.Error()
			}
			return nil, err
		}),
		"bounds": with(func(admin *kadm.Client, r *request) (any, error) {
			start, err := admin.ListStartOffsets(within, r.Topic)
			end, fault := admin.ListEndOffsets(within, r.Topic)
			if err := errors.Join(err, fault); err != nil {
				return nil, err
			}
			return []int64{start[r.Topic][r.Partition].Offset, end[r.Topic][r.Partition].Offset}, nil
		}),
		"offset_at": with(func(admin *kadm.Client, r *request) (any, error) {
			found, err := admin.ListOffsetsAfterMilli(within, r.Timestamp, r.Topic)
			of := found[r.Topic][r.Partition]
			if err != nil || of.Timestamp < 0 { // it says the end of the log where there is no such record
				return nil, err
			}
			return of.Offset, of.Err
		}),
		"committed": with(func(admin *kadm.Client, r *request) (any, error) {
			found, err := admin.FetchOffsets(within, r.Group)
			offsets := map[int32]int64{}
			for partition, of := range found[r.Topic] {
				offsets[partition] = of.At
			}
			return offsets, err
		}),
		"reset": with(func(admin *kadm.Client, r *request) (any, error) {
			to := kadm.Offsets{}
			for partition, offset := range r.Offsets {
				to.AddOffset(r.Topic, partition, offset, -1)
			}
			return nil, admin.CommitAllOffsets(within, r.Group, to)
		}),
		"describe_group": with(func(admin *kadm.Client, r *request) (any, error) {
			found, err := admin.DescribeGroups(within, r.Group)
			if err != nil {
				return nil, err
			}
			of := found[r.Group]
			return map[string]any{"state": of.State, "members": len(of.Members)}, of.Err
		}),
		"delete_group": with(func(admin *kadm.Client, r *request) (any, error) {
			_, err := admin.DeleteGroup(within, r.Group)
			return nil, err
		}),
	}
}
