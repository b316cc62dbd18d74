package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	quotaTurns = 10
	// neverReached is a quota of bytes a second.
	neverReached = 1e12
	metered      = "metered"
)

// quota sends records one by one on one connection, by turns with a byte rate for its client id that is never reached and with
// no quota in the broker at all, and answers what the broker's process computes for a record in each.
func quota(ctx context.Context, s *settings) (map[string]any, error) {
	client, err := producer(s, 0, kgo.ClientID(metered))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	value := valueOf(s)
	if err := client.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr(); err != nil {
		return nil, err
	}
	each := max(1, s.records/(2*quotaTurns))
	var seconds [2]float64
	for turn := range 2 * quotaTurns {
		with := turn/2%2 != turn%2 // 0 1, 1 0: neither is always the first one
		if err := alterQuota(ctx, client, !with); err != nil {
			return nil, err
		}
		began, err := cpuSeconds(s.pid)
		if err != nil {
			return nil, err
		}
		for range each {
			if err := client.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr(); err != nil {
				return nil, err
			}
		}
		ended, err := cpuSeconds(s.pid)
		if err != nil {
			return nil, err
		}
		if with {
			seconds[1] += ended - began
		} else {
			seconds[0] += ended - began
		}
	}
	if err := alterQuota(ctx, client, true); err != nil {
		return nil, err
	}
	micros := 1e6 / float64(each*quotaTurns)
	return map[string]any{
		"without_us": max(seconds[0], clockTick) * micros, "with_us": max(seconds[1], clockTick) * micros,
	}, nil
}

func alterQuota(ctx context.Context, client *kgo.Client, remove bool) error {
	entity := kmsg.NewAlterClientQuotasRequestEntryEntity()
	entity.Type, entity.Name = "client-id", kmsg.StringPtr(metered)
	rate := kmsg.NewAlterClientQuotasRequestEntryOp()
	rate.Key, rate.Value, rate.Remove = "producer_byte_rate", neverReached, remove
	entry := kmsg.NewAlterClientQuotasRequestEntry()
	entry.Entity = append(entry.Entity, entity)
	entry.Ops = append(entry.Ops, rate)
	request := kmsg.NewPtrAlterClientQuotasRequest()
	request.Entries = append(request.Entries, entry)
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	if len(answer.Entries) != 1 {
		return fmt.Errorf("%d answers for one quota", len(answer.Entries))
	}
	return kerr.ErrorForCode(answer.Entries[0].ErrorCode)
}
