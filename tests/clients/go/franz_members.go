package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

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
	if r.Assignor == "server" {
		options = append(options, kgo.ServerSideBalancer())
	}
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
