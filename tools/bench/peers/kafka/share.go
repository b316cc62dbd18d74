package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// parking is how long a member has been waiting for records before the one that holds the only record lets go of it.
const parking = 5 * time.Millisecond

// fromStart lets a share group that nobody knows yet begin with the oldest record.
func fromStart(ctx context.Context, client *kgo.Client, group string) error {
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = "share.auto.offset.reset", kmsg.StringPtr("earliest")
	resource.Configs = append(resource.Configs, config)
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = append(request.Resources, resource)
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(answer.Resources[0].ErrorCode)
}

// shareConsume reads a partition from its start as the only member of a share group, where each poll accepts what the one
// before gave, and answers how fast values came: from the first record on, so that joining does not count.
func shareConsume(ctx context.Context, s *settings) (map[string]any, error) {
	client, err := connect(s, kgo.ShareGroup(s.group), kgo.ConsumeTopics(s.topic))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if err := fromStart(ctx, client, s.group); err != nil {
		return nil, err
	}
	within, done := context.WithTimeout(ctx, patience)
	defer done()
	var began time.Time
	count, bytes, before := 0, 0, 0
	for count < s.records {
		fetched := client.PollFetches(within)
		if err := fetched.Err(); err != nil {
			return nil, fmt.Errorf("%w (%d records read)", err, count)
		}
		fetched.EachRecord(func(read *kgo.Record) {
			count++
			bytes += len(read.Value)
		})
		if began.IsZero() {
			began, before = time.Now(), bytes
		}
	}
	if err := client.FlushAcks(within); err != nil {
		return nil, err
	}
	taken := time.Since(began).Seconds()
	return map[string]any{"mb_s": float64(bytes-before) / 1e6 / taken, "seconds": taken}, nil
}

// shareRelease has two members and one record at a time: one gets it, the other one waits, the first one releases it, and the
// time until the other one has it is taken. As often as `requests` says.
func shareRelease(ctx context.Context, s *settings) (map[string]any, error) {
	within, done := context.WithTimeout(ctx, patience)
	defer done()
	sender, err := producer(s, 0)
	if err != nil {
		return nil, err
	}
	defer sender.Close()
	if err := fromStart(within, sender, s.group); err != nil {
		return nil, err
	}
	var members [2]*kgo.Client
	for at := range members {
		// one fetch a poll, so that a member that does not poll takes nothing
		members[at], err = connect(s, kgo.ShareGroup(s.group), kgo.ConsumeTopics(s.topic), kgo.MaxConcurrentFetches(0))
		if err != nil {
			return nil, err
		}
		defer members[at].Close()
	}
	taken := make([]time.Duration, 0, s.requests)
	value := valueOf(s)
	for number := range s.requests + s.requests/10 + 2 { // each member waits once before anything counts, so both have joined
		if err := sender.ProduceSync(within, &kgo.Record{Value: value}).FirstErr(); err != nil {
			return nil, err
		}
		each, err := passOn(within, members[number%2], members[(number+1)%2], int64(number))
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", number, err)
		}
		if number >= s.requests/10+2 {
			taken = append(taken, each)
		}
	}
	return latencies(taken)
}

func passOn(ctx context.Context, holder, waiter *kgo.Client, offset int64) (time.Duration, error) {
	held, err := pollOne(ctx, holder, offset)
	if err != nil {
		return 0, err
	}
	type delivery struct {
		record *kgo.Record
		at     time.Time
		err    error
	}
	deliveries := make(chan delivery, 1)
	go func() {
		given, err := pollOne(ctx, waiter, offset)
		deliveries <- delivery{given, time.Now(), err}
	}()
	time.Sleep(parking)
	released := time.Now()
	held.Ack(kgo.AckRelease)
	if err := holder.FlushAcks(ctx); err != nil {
		return 0, err
	}
	given := <-deliveries
	if given.err != nil {
		return 0, given.err
	}
	if count := given.record.DeliveryCount(); count != 2 {
		return 0, fmt.Errorf("delivered %d times, not twice", count)
	}
	given.record.Ack(kgo.AckAccept)
	return given.at.Sub(released), waiter.FlushAcks(ctx)
}

// pollOne answers the record that a poll gives, which must be this one.
func pollOne(ctx context.Context, client *kgo.Client, offset int64) (*kgo.Record, error) {
	fetched := client.PollFetches(ctx)
	if err := fetched.Err(); err != nil {
		return nil, err
	}
	records := fetched.Records()
	if len(records) != 1 || records[0].Offset != offset {
		return nil, fmt.Errorf("%d records instead of the one at %d", len(records), offset)
	}
	return records[0], nil
}
