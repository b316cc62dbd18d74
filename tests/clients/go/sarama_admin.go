package main

import (
	"errors"

	"github.com/IBM/sarama"
)

func saramaAdministration() map[string]operation {
	with := func(do func(sarama.ClusterAdmin, *request) (any, error)) operation {
		return func(r *request) (any, error) {
			config, err := saramaConfig(r)
			if err != nil {
				return nil, err
			}
			admin, err := sarama.NewClusterAdmin(saramaServers(r), config)
			if err != nil {
				return nil, err
			}
			defer admin.Close()
			return do(admin, r)
		}
	}
	asking := func(do func(sarama.Client, *request) (any, error)) operation {
		return func(r *request) (any, error) {
			config, err := saramaConfig(r)
			if err != nil {
				return nil, err
			}
			client, err := sarama.NewClient(saramaServers(r), config)
			if err != nil {
				return nil, err
			}
			defer client.Close()
			return do(client, r)
		}
	}
	return map[string]operation{
		"create_topic": with(func(admin sarama.ClusterAdmin, r *request) (any, error) {
			configs := map[string]*string{}
			for key, value := range r.Configs {
				configs[key] = &value
			}
			detail := &sarama.TopicDetail{NumPartitions: r.Partitions, ReplicationFactor: 1, ConfigEntries: configs}
			return nil, admin.CreateTopic(r.Topic, detail, false)
		}),
		"delete_topic": with(func(admin sarama.ClusterAdmin, r *request) (any, error) { return nil, admin.DeleteTopic(r.Topic) }),
		"partitions": with(func(admin sarama.ClusterAdmin, r *request) (any, error) {
			found, err := admin.ListTopics() // a client that asks for one topic makes it
			numbers := []int32{}
			for number := range found[r.Topic].NumPartitions {
				numbers = append(numbers, number)
			}
			return numbers, err
		}),
		"add_partitions": with(func(admin sarama.ClusterAdmin, r *request) (any, error) {
			return nil, admin.CreatePartitions(r.Topic, r.Partitions, nil, false)
		}),
		"describe_configs": with(func(admin sarama.ClusterAdmin, r *request) (any, error) {
			found, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: r.Topic})
			values := map[string]string{}
			for _, config := range found {
				values[config.Name] = config.Value
			}
			return values, err
		}),
		"alter_configs": with(func(admin sarama.ClusterAdmin, r *request) (any, error) {
			set := map[string]sarama.IncrementalAlterConfigsEntry{}
			for key, value := range r.Configs {
				set[key] = sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}
			}
			return nil, admin.IncrementalAlterConfig(sarama.TopicResource, r.Topic, set, false)
		}),
		"delete_records": with(func(admin sarama.ClusterAdmin, r *request) (any, error) {
			return nil, admin.DeleteRecords(r.Topic, r.Offsets)
		}),
		"bounds": asking(func(client sarama.Client, r *request) (any, error) {
			start, err := client.GetOffset(r.Topic, r.Partition, sarama.OffsetOldest)
			end, fault := client.GetOffset(r.Topic, r.Partition, sarama.OffsetNewest)
			return []int64{start, end}, errors.Join(err, fault)
		}),
		"offset_at": asking(func(client sarama.Client, r *request) (any, error) {
			found, err := client.GetOffset(r.Topic, r.Partition, r.Timestamp)
			if err != nil || found < 0 {
				return nil, err
			}
			return found, nil
		}),
		"committed": with(func(admin sarama.ClusterAdmin, r *request) (any, error) {
			found, err := admin.ListConsumerGroupOffsets(r.Group, nil)
			if err != nil {
				return nil, err
			}
			offsets := map[int32]int64{}
			for partition, block := range found.Blocks[r.Topic] {
				offsets[partition] = block.Offset
			}
			return offsets, nil
		}),
		"reset": asking(func(client sarama.Client, r *request) (any, error) {
			manager, err := sarama.NewOffsetManagerFromClient(r.Group, client)
			if err != nil {
				return nil, err
			}
			defer manager.Close()
			for partition, offset := range r.Offsets {
				part, err := manager.ManagePartition(r.Topic, partition)
				if err != nil {
					return nil, err
				}
				defer part.AsyncClose() // the manager, closed after it, waits for it
				part.MarkOffset(offset, "")
				part.ResetOffset(offset, "")
			}
			manager.Commit()
			return nil, nil
		}),
		"describe_group": with(func(admin sarama.ClusterAdmin, r *request) (any, error) {
			found, err := admin.DescribeConsumerGroups([]string{r.Group})
			if err != nil {
				return nil, err
			}
			return map[string]any{"state": found[0].State, "members": len(found[0].Members)}, nil
		}),
		"delete_group": with(func(admin sarama.ClusterAdmin, r *request) (any, error) {
			return nil, admin.DeleteConsumerGroup(r.Group)
		}),
	}
}
