package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
)

type kafkaGoTask func(context.Context, *kafka.Client, *request) (any, error)

func kafkaGoAdministration() map[string]operation {
	operations := map[string]operation{}
	for name, task := range map[string]kafkaGoTask{
		"create_topic": func(within context.Context, client *kafka.Client, r *request) (any, error) {
			topic := kafka.TopicConfig{Topic: r.Topic, NumPartitions: int(r.Partitions), ReplicationFactor: 1}
			for name, value := range r.Configs {
				topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: value})
			}
			found, err := client.CreateTopics(within, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
			if err != nil {
				return nil, err
			}
			return nil, found.Errors[r.Topic]
		},
		"partitions": func(within context.Context, client *kafka.Client, r *request) (any, error) {
			return kafkaGoPartitions(within, client, r)
		},
		"bounds":         kafkaGoBounds,
		"offset_at":      kafkaGoOffsetAt,
		"committed":      kafkaGoCommitted,
		"reset":          kafkaGoReset,
		"describe_group": kafkaGoDescribeGroup,
		"delete_group": func(within context.Context, client *kafka.Client, r *request) (any, error) {
			found, err := client.DeleteGroups(within, &kafka.DeleteGroupsRequest{GroupIDs: []string{r.Group}})
			if err != nil {
				return nil, err
			}
			return nil, found.Errors[r.Group]
		},
	} {
		operations[name] = func(r *request) (any, error) {
			transport, err := kafkaGoTransport(r)
			if err != nil {
				return nil, err
			}
			defer transport.CloseIdleConnections()
			within, stop := context.WithTimeout(context.Background(), patience)
			defer stop()
			return task(within, &kafka.Client{Addr: kafka.TCP(kafkaGoServers(r)...), Transport: transport}, r)
		}
	}
	return operations
}

func kafkaGoPartitions(within context.Context, client *kafka.Client, r *request) ([]int, error) {
	numbers := []int{}
	found, err := client.Metadata(within, &kafka.MetadataRequest{Topics: []string{r.Topic}})
	if err != nil {
		return nil, err
	}
	for _, topic := range found.Topics {
		for _, each := range topic.Partitions {
			numbers = append(numbers, each.ID)
		}
	}
	return numbers, nil
}

func kafkaGoOffsets(
	within context.Context, client *kafka.Client, r *request, wanted ...kafka.OffsetRequest,
) (kafka.PartitionOffsets, error) {
	topics := map[string][]kafka.OffsetRequest{r.Topic: wanted}
	found, err := client.ListOffsets(within, &kafka.ListOffsetsRequest{Topics: topics})
	if err != nil {
		return kafka.PartitionOffsets{}, err
	}
	offsets := found.Topics[r.Topic]
	if len(offsets) != 1 {
		return kafka.PartitionOffsets{}, errors.New("not one partition")
	}
	return offsets[0], offsets[0].Error
}

func kafkaGoBounds(within context.Context, client *kafka.Client, r *request) (any, error) {
	partition := int(r.Partition)
	found, err := kafkaGoOffsets(within, client, r, kafka.FirstOffsetOf(partition), kafka.LastOffsetOf(partition))
	return []int64{found.FirstOffset, found.LastOffset}, err
}

func kafkaGoOffsetAt(within context.Context, client *kafka.Client, r *request) (any, error) {
	found, err := kafkaGoOffsets(within, client, r, kafka.TimeOffsetOf(int(r.Partition), time.UnixMilli(r.Timestamp)))
	for offset := range found.Offsets {
		if offset >= 0 {
			return offset, err
		}
	}
	return nil, err
}

func kafkaGoCommitted(within context.Context, client *kafka.Client, r *request) (any, error) {
	partitions, err := kafkaGoPartitions(within, client, r)
	if err != nil {
		return nil, err
	}
	topics := map[string][]int{r.Topic: partitions}
	found, err := client.OffsetFetch(within, &kafka.OffsetFetchRequest{GroupID: r.Group, Topics: topics})
	if err != nil {
		return nil, err
	}
	offsets := map[string]int64{}
	for _, each := range found.Topics[r.Topic] {
		if each.CommittedOffset >= 0 {
			offsets[fmt.Sprint(each.Partition)] = each.CommittedOffset
		}
	}
	return offsets, found.Error
}

func kafkaGoReset(within context.Context, client *kafka.Client, r *request) (any, error) {
	commits := []kafka.OffsetCommit{}
	for partition, offset := range r.Offsets {
		commits = append(commits, kafka.OffsetCommit{Partition: int(partition), Offset: offset})
	}
	found, err := client.OffsetCommit(within, &kafka.OffsetCommitRequest{
		GroupID: r.Group, GenerationID: -1, Topics: map[string][]kafka.OffsetCommit{r.Topic: commits},
	})
	if err != nil {
		return nil, err
	}
	for _, each := range found.Topics[r.Topic] {
		if each.Error != nil {
			return nil, each.Error
		}
	}
	return nil, nil
}

func kafkaGoDescribeGroup(within context.Context, client *kafka.Client, r *request) (any, error) {
	found, err := client.DescribeGroups(within, &kafka.DescribeGroupsRequest{GroupIDs: []string{r.Group}})
	if err != nil {
		return nil, err
	}
	group := found.Groups[0]
	return map[string]any{"state": group.GroupState, "members": len(group.Members)}, group.Error
}
