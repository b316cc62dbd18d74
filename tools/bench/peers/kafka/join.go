package main

import (
	"context"
	"fmt"
	"math/rand"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// heartbeats are short, so that a member that was there first hears of the second one from the broker and not after seconds.
const heartbeats = 50 * time.Millisecond

func seeded() *rand.Rand { return rand.New(rand.NewSource(1)) }

// join lets two members come at once into a group that nobody knows yet, and takes the time until both have read a record;
// each partition of the topic has one. As often as `requests` says, each time another group.
func join(ctx context.Context, s *settings) (map[string]any, error) {
	taken := []time.Duration{}
	first := []time.Duration{}
	for number := range s.requests {
		each, err := joinOnce(ctx, s, fmt.Sprintf("%s-%d", s.topic, number))
		if err != nil {
			return nil, err
		}
		taken = append(taken, max(each[0], each[1]))
		first = append(first, min(each[0], each[1]))
	}
	answer, err := latencies(taken)
	if err != nil {
		return nil, err
	}
	ofFirst, err := latencies(first)
	answer["first_p50_ms"] = ofFirst["p50_ms"]
	return answer, err
}

func joinOnce(ctx context.Context, s *settings, group string) ([2]time.Duration, error) {
	within, done := context.WithTimeout(ctx, patience)
	defer done()
	var members sync.WaitGroup
	var each [2]time.Duration
	var failures [2]error
	var clients [2]*kgo.Client
	began := time.Now()
	for at := range each {
		members.Go(func() {
			clients[at], failures[at] = connect(s, kgo.ConsumerGroup(group), kgo.ConsumeTopics(s.topic),
				kgo.Balancers(kgo.RangeBalancer()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
				kgo.HeartbeatInterval(heartbeats), kgo.DisableAutoCommit())
			for failures[at] == nil {
				fetched := clients[at].PollFetches(within)
				if failures[at] = fetched.Err(); failures[at] == nil && fetched.NumRecords() > 0 {
					break
				}
			}
			each[at] = time.Since(began)
		})
	}
	members.Wait()
	for _, client := range clients {
		if client != nil {
			members.Go(client.Close)
		}
	}
	members.Wait()
	if failures[0] != nil {
		return each, failures[0]
	}
	return each, failures[1]
}
