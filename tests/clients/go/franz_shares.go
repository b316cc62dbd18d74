package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const groupResource kmsg.ConfigResourceType = 32

var acknowledgements = map[string]kgo.AckStatus{
	"accept": kgo.AckAccept, "release": kgo.AckRelease, "reject": kgo.AckReject, "renew": kgo.AckRenew,
}

// sharer is a consumer of a share group, which polls when it is told to.
type sharer struct {
	client  *kgo.Client
	mutex   sync.Mutex
	given   map[string]*kgo.Record
	refused []string
}

type shared struct {
	record
	Deliveries int32 `json:"deliveries"`
}

var sharers sync.Map

func franzSharing() map[string]operation {
	return map[string]operation{
		"share_join":        shareJoin,
		"share_poll":        sharePoll,
		"share_acknowledge": shareAcknowledge,
		"share_leave": func(r *request) (any, error) {
			found, _ := sharers.LoadAndDelete(r.Name)
			found.(*sharer).client.Close()
			return nil, nil
		},
		"share_configure": shareConfigure,
	}
}

func place(partition int32, offset int64) string { return fmt.Sprintf("%d-%d", partition, offset) }

func shareJoin(r *request) (any, error) {
	s := &sharer{given: map[string]*kgo.Record{}}
	client, err := franzClient(r, kgo.ShareGroup(r.Group), kgo.ConsumeTopics(r.Topic), kgo.FetchMaxWait(50*time.Millisecond),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			s.mutex.Lock()
			defer s.mutex.Unlock()
			for _, each := range results {
				if each.Err != nil {
					s.refused = append(s.refused, each.Err.Error())
				}
			}
		}))
	if err != nil {
		return nil, err
	}
	s.client = client
	sharers.Store(r.Name, s)
	return nil, nil
}

// sharePoll answers what the next poll that gives something gives.
func sharePoll(r *request) (any, error) {
	found, _ := sharers.Load(r.Name)
	s := found.(*sharer)
	within, done := context.WithTimeout(context.Background(), patience)
	defer done()
	read := []shared{}
	for len(read) == 0 {
		fetched := s.client.PollFetches(within)
		if err := fetched.Err(); err != nil {
			return nil, err
		}
		fetched.EachRecord(func(one *kgo.Record) {
			s.given[place(one.Partition, one.Offset)] = one
			read = append(read, shared{franzRecord(one), one.DeliveryCount()})
		})
	}
	return read, nil
}

// shareAcknowledge says what became of records and waits until the broker has it. It answers what was not taken.
func shareAcknowledge(r *request) (any, error) {
	found, _ := sharers.Load(r.Name)
	s := found.(*sharer)
	for _, said := range r.Said {
		one := s.given[place(int32(said[0].(float64)), int64(said[1].(float64)))]
		one.Ack(acknowledgements[said[2].(string)])
	}
	if len(r.Said) == 0 {
		s.client.MarkAcks(kgo.AckAccept)
	}
	within, done := context.WithTimeout(context.Background(), patience)
	defer done()
	if err := s.client.FlushAcks(within); err != nil {
		return nil, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	refused := append([]string{}, s.refused...)
	s.refused = nil
	return refused, nil
}

func shareConfigure(r *request) (any, error) {
	client, err := franzClient(r)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = groupResource, r.Group
	for name, value := range r.Configs {
		config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		config.Name, config.Value = name, kmsg.StringPtr(value)
		resource.Configs = append(resource.Configs, config)
	}
	asked := kmsg.NewPtrIncrementalAlterConfigsRequest()
	asked.Resources = append(asked.Resources, resource)
	told, err := asked.RequestWith(context.Background(), client)
	if err != nil {
		return nil, err
	}
	return nil, kerr.ErrorForCode(told.Resources[0].ErrorCode)
}
