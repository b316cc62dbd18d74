package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// feed is an idempotent producer. A record that is given up ends the order of its producer: another one begins.
func feed(w *work) {
	for w.quiet.Err() == nil {
		client := w.client(kgo.ProducerLinger(5 * time.Millisecond))
		name := w.producerName()
		var pending atomic.Int64
		var failed atomic.Bool
		for w.quiet.Err() == nil && !failed.Load() {
			topic := []string{"plain", "plain", "plain", "expiring", "compacted"}[w.random.Intn(5)]
			records := w.records(topic, []int{1, 1, 2, 5}[w.random.Intn(4)])
			w.noteSends(name, "", records)
			for _, one := range records {
				pending.Add(1)
				client.Produce(context.Background(), one, func(record *kgo.Record, err error) {
					w.noteDelivery(record, err)
					pending.Add(-1)
					if err != nil {
						failed.Store(true)
					}
				})
			}
			w.pause(len(records), 1)
			for pending.Load() > mostPending && w.quiet.Err() == nil && !failed.Load() {
				time.Sleep(100 * time.Millisecond)
			}
		}
		_ = client.Flush(w.over)
		client.Close()
	}
}

// move writes in transactions, with another producer when one is of no use any more.
func move(w *work) {
	for w.quiet.Err() == nil {
		client := w.client(
			kgo.TransactionalID(w.role.TransactionalID), kgo.TransactionTimeout(transactionTime), kgo.ProducerLinger(0))
		name := w.producerName()
		w.note("introduces", map[string]any{"transactional_id": w.role.TransactionalID, "producer": name})
		if _, _, err := client.ProducerID(w.over); err == nil {
			w.note("introduced", map[string]any{"transactional_id": w.role.TransactionalID, "producer": name})
			for w.quiet.Err() == nil && transact(w, client, name) {
			}
		}
		client.Close()
	}
}

// transact tells whether the producer is still good.
func transact(w *work, client *kgo.Client, name string) bool {
	transaction := w.transactionName()
	if err := client.BeginTransaction(); err != nil {
		w.note("loses its producer", map[string]any{"error": err.Error()})
		return false
	}
	commit := w.random.Float64() < 0.75
	count := 0
	var failed atomic.Bool
	var settled sync.WaitGroup
	for range 1 + w.random.Intn(3) {
		records := w.records("plain", 1+w.random.Intn(3))
		w.noteSends(name, transaction, records)
		count += len(records)
		for _, one := range records {
			settled.Add(1)
			client.Produce(context.Background(), one, func(record *kgo.Record, err error) {
				defer settled.Done()
				w.noteDelivery(record, err)
				if err != nil {
					failed.Store(true)
				}
			})
		}
	}
	err := client.Flush(w.over)
	settled.Wait()
	if err != nil || failed.Load() {
		commit = false
	}
	w.note("ends", map[string]any{"transaction": transaction, "commit": commit})
	err = client.EndTransaction(w.over, kgo.TransactionEndTry(commit))
	if err == nil {
		w.note("ended", map[string]any{"transaction": transaction, "committed": commit})
	} else {
		w.note("ended", map[string]any{"transaction": transaction, "committed": nil, "error": err.Error()})
	}
	w.pause(count, 0.5)
	return err == nil
}

// read is a member of a group of either kind, which commits what it has read before it reads on.
func read(w *work) {
	isolation := kgo.ReadUncommitted()
	if w.role.Committed {
		isolation = kgo.ReadCommitted()
	}
	balancers := kgo.Opt(kgo.Balancers(kgo.RangeBalancer()))
	if w.role.Protocol == "consumer" {
		balancers = kgo.ServerSideBalancer()
	}
	client := w.client(
		kgo.FetchIsolationLevel(isolation), kgo.FetchMaxWait(250*time.Millisecond), kgo.ConsumerGroup(w.role.Group), kgo.ConsumeTopics(w.role.Topic),
		balancers, kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.HeartbeatInterval(time.Second), kgo.SessionTimeout(sessionTimeout), kgo.RebalanceTimeout(10*time.Second),
		kgo.BlockRebalanceOnPoll(), kgo.RequireStableFetchOffsets(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, given map[string][]int32) {
			for topic, partitions := range given {
				for _, partition := range partitions {
					w.note("moved", map[string]any{"of": []any{topic, partition}, "position": nil})
				}
			}
		}),
	)
	for w.over.Err() == nil {
		within, done := context.WithTimeout(w.over, 500*time.Millisecond)
		fetched := client.PollRecords(within, 50)
		done()
		for _, failure := range fetched.Errors() {
			if !errors.Is(failure.Err, context.DeadlineExceeded) && !errors.Is(failure.Err, context.Canceled) {
				w.note("poll failed", map[string]any{"error": failure.Err.Error()})
			}
		}
		take(w, client, fetched)
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
}

func take(w *work, client *kgo.Client, fetched kgo.Fetches) {
	offsets := map[string]map[int32]kgo.EpochOffset{}
	fetched.EachPartition(func(part kgo.FetchTopicPartition) {
		if len(part.Records) == 0 {
			return
		}
		found := [][]any{}
		for _, one := range part.Records {
			found = append(found, []any{one.Offset, id(one), one.Timestamp.UnixMilli()})
		}
		where := []any{part.Topic, part.Partition}
		w.note("polled", map[string]any{
			"of": where, "records": found, "committed": w.role.Committed, "group": w.role.Group, "transaction": "", "next": nil,
		})
		last := part.Records[len(part.Records)-1]
		if offsets[part.Topic] == nil {
			offsets[part.Topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[part.Topic][part.Partition] = kgo.EpochOffset{Epoch: last.LeaderEpoch, Offset: last.Offset + 1}
	})
	for topic, partitions := range offsets {
		for partition, at := range partitions {
			w.note("commits", map[string]any{
				"group": w.role.Group, "of": []any{topic, partition}, "offset": at.Offset, "transaction": "",
			})
		}
	}
	if len(offsets) == 0 {
		return
	}
	within, done := context.WithTimeout(context.Background(), 20*time.Second)
	defer done()
	client.CommitOffsetsSync(within, offsets, func(
		_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error,
	) {
		if err != nil || answer == nil {
			return
		}
		for _, topic := range answer.Topics {
			for _, part := range topic.Partitions {
				if kerr.ErrorForCode(part.ErrorCode) == nil {
					w.note("offset committed", map[string]any{
						"group": w.role.Group, "of": []any{topic.Topic, part.Partition},
						"offset": offsets[topic.Topic][part.Partition].Offset, "kept": true,
					})
				}
			}
		}
	})
}
