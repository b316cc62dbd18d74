package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// consume reads a partition from its start, and answers how fast its records' values came.
func consume(ctx context.Context, s *settings) (map[string]any, error) {
	from := map[string]map[int32]kgo.Offset{s.topic: {0: kgo.NewOffset().AtStart()}}
	client, err := connect(s, kgo.ConsumePartitions(from))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	within, done := context.WithTimeout(ctx, patience)
	defer done()
	began := time.Now()
	count, bytes := 0, 0
	for count < s.records {
		fetched := client.PollFetches(within)
		if err := fetched.Err(); err != nil {
			return nil, fmt.Errorf("%w (%d records read)", err, count)
		}
		fetched.EachRecord(func(read *kgo.Record) {
			count++
			bytes += len(read.Value)
		})
	}
	taken := time.Since(began).Seconds()
	return map[string]any{"records_s": float64(count) / taken, "mb_s": float64(bytes) / 1e6 / taken, "seconds": taken}, nil
}

// times asks one connection for the offsets of times, all partitions in each request, one request after the other. The topic
// holds timestamps from 1 to `records`.
func times(ctx context.Context, s *settings) (map[string]any, error) {
	client, err := connect(s)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	leader, err := leaderOf(ctx, client, s.topic)
	if err != nil {
		return nil, err
	}
	broker := client.Broker(int(leader))
	taken := make([]time.Duration, 0, s.requests)
	random := seeded()
	for number := range s.requests + s.requests/10 + 1 {
		request := kmsg.NewPtrListOffsetsRequest()
		request.ReplicaID = -1
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic = s.topic
		for partition := range s.partitions {
			asked := kmsg.NewListOffsetsRequestTopicPartition()
			asked.Partition = int32(partition)
			asked.Timestamp = 1 + random.Int63n(int64(s.records))
			topic.Partitions = append(topic.Partitions, asked)
		}
		request.Topics = append(request.Topics, topic)
		sent := time.Now()
		answer, err := broker.Request(ctx, request)
		if err != nil {
			return nil, err
		}
		if number > s.requests/10 { // the first ones open the connection and warm the path
			taken = append(taken, time.Since(sent))
		}
		for _, found := range answer.(*kmsg.ListOffsetsResponse).Topics[0].Partitions {
			if found.ErrorCode != 0 || found.Offset < 0 {
				return nil, fmt.Errorf("partition %d: error %d, offset %d", found.Partition, found.ErrorCode, found.Offset)
			}
		}
	}
	var total time.Duration
	for _, each := range taken {
		total += each
	}
	answer, err := latencies(taken)
	if err == nil {
		answer["requests_s"] = float64(len(taken)) / total.Seconds()
	}
	return answer, err
}

func leaderOf(ctx context.Context, client *kgo.Client, name string) (int32, error) {
	request := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(name)
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return 0, err
	}
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) == 0 {
		return 0, fmt.Errorf("%s has no partitions", name)
	}
	return answer.Topics[0].Partitions[0].Leader, nil
}
