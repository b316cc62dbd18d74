package main

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

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
			if !errors.Is(of.Err, kerr.GroupIDNotFound) {
				return map[string]any{"state": of.State, "members": len(of.Members)}, of.Err
			}
			assigned, err := admin.DescribeConsumerGroups(within, r.Group) // KIP-848
			if err != nil {
				return nil, err
			}
			by := assigned[r.Group]
			return map[string]any{"state": by.State, "members": len(by.Members)}, by.Err
		}),
		"delete_group": with(func(admin *kadm.Client, r *request) (any, error) {
			_, err := admin.DeleteGroup(within, r.Group)
			return nil, err
		}),
	}
}
