package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// workers send requests at once while a broker is filled; measured requests go one by one.
const workers = 16

// sampled is how many of many groups, ids or offsets are asked for while a figure is taken.
const sampled = 500

// listings is how often everything is listed.
const listings = 10

// grow opens a client whose requests have old versions: those name topics, and need no epochs.
func grow(s *settings) (*kgo.Client, *kgo.Broker, error) {
	client, err := connect(s, kgo.MaxVersions(kversion.V2_4_0()), kgo.RequestTimeoutOverhead(patience))
	if err != nil {
		return nil, nil, err
	}
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{}
	answer, err := request.RequestWith(context.Background(), client)
	if err != nil {
		return nil, nil, err
	}
	return client, client.Broker(int(answer.Brokers[0].NodeID)), nil
}

// each calls a function for numbers from `first` up to `to`, exclusive, with workers side by side. It returns the first error.
func each(from, to int, call func(number int) error) error {
	var next atomic.Int64
	next.Store(int64(from))
	var failure atomic.Pointer[error]
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for failure.Load() == nil {
				number := int(next.Add(1)) - 1
				if number >= to {
					return
				}
				if err := call(number); err != nil {
					failure.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	group.Wait()
	if found := failure.Load(); found != nil {
		return *found
	}
	return nil
}

// timed calls a function so many times and returns how long the calls took, the first tenth excluded.
func timed(count int, call func(number int) error) ([]time.Duration, error) {
	taken := make([]time.Duration, 0, count)
	for number := range count + count/10 + 1 {
		sent := time.Now()
		if err := call(number); err != nil {
			return nil, err
		}
		if number > count/10 {
			taken = append(taken, time.Since(sent))
		}
	}
	return taken, nil
}

// coordinated asks for a coordinator, 0 of groups or 1 of transactional ids, until there is one: Kafka creates its topic then.
func coordinated(ctx context.Context, s *settings, broker *kgo.Broker, kind int8) error {
	request := kmsg.NewPtrFindCoordinatorRequest()
	request.CoordinatorKey, request.CoordinatorType = groupName(s, 0), kind
	return ready(func() error {
		answer, err := request.RequestWith(ctx, broker)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(answer.ErrorCode)
	})
}

// ready repeats a call while a coordinator is not ready yet.
func ready(call func() error) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if err := call(); err == nil || !kerr.IsRetriable(err) || time.Now().After(deadline) {
			return err
		}
	}
}

func p50(taken []time.Duration, err error) (float64, error) {
	if err != nil {
		return 0, err
	}
	answer, err := latencies(taken)
	if err != nil {
		return 0, err
	}
	return answer["p50_ms"].(float64), nil
}

// fill creates topics `first` up to `records`, exclusive, with `partitions` partitions each, and sends one record to each partition.
func fill(ctx context.Context, s *settings) (map[string]any, error) {
	client, err := producer(s, s.linger)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for number := s.first; number < s.records; number++ {
		topic := fmt.Sprintf("%s-%d", s.topic, number)
		answer, err := kadm.NewClient(client).CreateTopic(ctx, int32(s.partitions), 1, nil, topic)
		if err == nil {
			err = answer.Err
		}
		if err != nil {
			return nil, err
		}
		var failure atomic.Pointer[error]
		for partition := range s.partitions {
			record := &kgo.Record{Topic: topic, Partition: int32(partition), Value: valueOf(s)}
			client.Produce(ctx, record, func(_ *kgo.Record, err error) {
				if err != nil {
					failure.Store(&err)
				}
			})
		}
		if err := client.Flush(ctx); err != nil {
			return nil, err
		}
		if found := failure.Load(); found != nil {
			return nil, *found
		}
	}
	return map[string]any{}, nil
}

// idle opens `requests` connections, each of which has asked one question. While they stay open, it does what `single` does. Then it
// reads the memory of the broker's process.
func idle(ctx context.Context, s *settings) (map[string]any, error) {
	connections := make([]net.Conn, s.requests)
	question := []byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff} // ApiVersions, version 0, no client id
	err := each(0, s.requests, func(number int) error {
		connection, err := net.DialTimeout("tcp", s.address, patience)
		if err != nil {
			return err
		}
		connections[number] = connection
		connection.SetDeadline(time.Now().Add(patience))
		if _, err := connection.Write(question); err != nil {
			return err
		}
		_, err = io.ReadFull(connection, make([]byte, 4))
		return err
	})
	for _, connection := range connections {
		if connection != nil {
			defer connection.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w, of %d connections", err, s.requests)
	}
	answer, err := single(ctx, s)
	if err == nil {
		answer["pss_mib"], err = pssOf(s.pid)
	}
	return answer, err
}

// pssOf returns the memory of a process in MiB, in which pages that processes share count in parts.
func pssOf(pid int) (float64, error) {
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(rollup)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Pss:" {
			kib, err := strconv.Atoi(fields[1])
			return float64(kib) / 1024, err
		}
	}
	return 0, fmt.Errorf("process %d has no memory figures", pid)
}

// groups lets one static member join each of the groups `first` up to `requests`, exclusive. Then it lists all groups, and sends
// heartbeats to some.
func groups(ctx context.Context, s *settings) (map[string]any, error) {
	client, broker, err := grow(s)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if err := coordinated(ctx, s, broker, 0); err != nil {
		return nil, err
	}
	err = each(s.first, s.requests, func(number int) error {
		_, err := joinAlone(ctx, broker, s, number)
		return err
	})
	if err != nil {
		return nil, err
	}
	listed, err := p50(timed(listings, func(int) error {
		answer, err := kmsg.NewPtrListGroupsRequest().RequestWith(ctx, broker)
		if err == nil {
			err = kerr.ErrorForCode(answer.ErrorCode)
		}
		if err == nil && len(answer.Groups) < s.requests {
			err = fmt.Errorf("%d groups listed, %d expected", len(answer.Groups), s.requests)
		}
		return err
	}))
	if err != nil {
		return nil, err
	}
	random := seeded()
	members := make([]string, sampled)
	asked := make([]int, sampled)
	for at := range asked {
		asked[at] = random.Intn(s.requests)
	}
	for at := range asked {
		if members[at], err = joinAlone(ctx, broker, s, asked[at]); err != nil {
			return nil, err
		}
		for before := range at { // a group that is asked twice has another member id now
			if asked[before] == asked[at] {
				members[before] = members[at]
			}
		}
	}
	beat, err := p50(timed(sampled, func(number int) error {
		at := number % sampled
		request := kmsg.NewPtrHeartbeatRequest()
		request.Group, request.Generation, request.MemberID = groupName(s, asked[at]), generation, members[at]
		request.InstanceID = kmsg.StringPtr("only")
		answer, err := request.RequestWith(ctx, broker)
		if err == nil {
			err = kerr.ErrorForCode(answer.ErrorCode)
		}
		return err
	}))
	return map[string]any{"list_ms": listed, "heartbeat_ms": beat}, err
}

// generation is that of a group whose only member is static: a member that joins again does not start another one.
const generation = 1

func groupName(s *settings, number int) string { return fmt.Sprintf("%s-%d", s.topic, number) }

// joinAlone lets the only member of a group join and sync. It returns the member's id.
func joinAlone(ctx context.Context, broker *kgo.Broker, s *settings, number int) (string, error) {
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.ProtocolType, join.InstanceID = groupName(s, number), "consumer", kmsg.StringPtr("only")
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 1_800_000, 60_000
	metadata := kmsg.NewConsumerMemberMetadata()
	metadata.Topics = []string{s.topic}
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name, protocol.Metadata = "range", metadata.AppendTo(nil)
	join.Protocols = append(join.Protocols, protocol)
	var joined *kmsg.JoinGroupResponse
	err := ready(func() (err error) {
		if joined, err = join.RequestWith(ctx, broker); err != nil {
			return err
		}
		return kerr.ErrorForCode(joined.ErrorCode)
	})
	if err != nil {
		return "", err
	}
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.Generation, sync.MemberID, sync.InstanceID = join.Group, joined.Generation, joined.MemberID, join.InstanceID
	if joined.LeaderID == joined.MemberID {
		assignment := kmsg.NewSyncGroupRequestGroupAssignment()
		assignment.MemberID = joined.MemberID
		assignment.MemberAssignment = (&kmsg.ConsumerMemberAssignment{}).AppendTo(nil)
		sync.GroupAssignment = append(sync.GroupAssignment, assignment)
	}
	answer, err := sync.RequestWith(ctx, broker)
	if err == nil {
		err = kerr.ErrorForCode(answer.ErrorCode)
	}
	if err == nil && joined.Generation != generation {
		err = fmt.Errorf("group %s has generation %d", join.Group, joined.Generation)
	}
	return joined.MemberID, err
}

// roll appends records `first` up to `records`, exclusive, so far apart that each begins a segment.
func roll(ctx context.Context, s *settings) (map[string]any, error) {
	client, err := producer(s, 0)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	value := valueOf(s)
	for number := s.first; number < s.records; number++ {
		record := &kgo.Record{Value: value, Timestamp: time.UnixMilli(int64(1 + number*s.stepMs))}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return nil, err
		}
	}
	return map[string]any{}, nil
}

// seek fetches one record at random offsets below `records`, one request after the other.
func seek(ctx context.Context, s *settings) (map[string]any, error) {
	client, broker, err := grow(s)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	random := seeded()
	taken, err := timed(sampled, func(int) error {
		request := kmsg.NewPtrFetchRequest()
		request.ReplicaID, request.MinBytes, request.MaxBytes = -1, 1, 1
		topic := kmsg.NewFetchRequestTopic()
		topic.Topic = s.topic
		partition := kmsg.NewFetchRequestTopicPartition()
		partition.FetchOffset, partition.PartitionMaxBytes = random.Int63n(int64(s.records)), 1
		topic.Partitions = append(topic.Partitions, partition)
		request.Topics = append(request.Topics, topic)
		answer, err := request.RequestWith(ctx, broker)
		if err != nil {
			return err
		}
		found := answer.Topics[0].Partitions[0]
		if err := kerr.ErrorForCode(found.ErrorCode); err != nil {
			return err
		}
		if len(found.RecordBatches) == 0 {
			return fmt.Errorf("nothing at offset %d", partition.FetchOffset)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return latencies(taken)
}

// transactional asks for the producer ids of the transactional ids `first` up to `requests`, exclusive. Then it asks again for some of
// them, and lists all transactions.
func transactional(ctx context.Context, s *settings) (map[string]any, error) {
	client, broker, err := grow(s)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if err := coordinated(ctx, s, broker, 1); err != nil {
		return nil, err
	}
	begin := func(number int) error {
		request := kmsg.NewPtrInitProducerIDRequest()
		request.TransactionalID, request.TransactionTimeoutMillis = kmsg.StringPtr(groupName(s, number)), 60_000
		return ready(func() error {
			answer, err := request.RequestWith(ctx, broker)
			if err != nil {
				return err
			}
			return kerr.ErrorForCode(answer.ErrorCode)
		})
	}
	if err := each(s.first, s.requests, begin); err != nil {
		return nil, err
	}
	random := seeded()
	begun, err := p50(timed(sampled, func(int) error { return begin(random.Intn(s.requests)) }))
	if err != nil {
		return nil, err
	}
	current, err := connect(s)
	if err != nil {
		return nil, err
	}
	defer current.Close()
	listed, err := p50(timed(listings, func(int) error {
		found, err := kadm.NewClient(current).ListTransactions(ctx, nil, nil)
		if err == nil && len(found) < s.requests {
			err = fmt.Errorf("%d transactional ids listed, %d expected", len(found), s.requests)
		}
		return err
	}))
	return map[string]any{"init_ms": begun, "list_ms": listed}, err
}

// consumers lets `clients` consumers read a partition from its start at once, and returns how fast the values came to all.
func consumers(ctx context.Context, s *settings) (map[string]any, error) {
	var group sync.WaitGroup
	failures := make([]error, s.clients)
	began := time.Now()
	for at := range s.clients {
		group.Go(func() { _, failures[at] = consume(ctx, s) })
	}
	group.Wait()
	for _, err := range failures {
		if err != nil {
			return nil, err
		}
	}
	taken := time.Since(began).Seconds()
	return map[string]any{"mb_s": float64(s.clients*s.records) * float64(s.bytes) / 1e6 / taken}, nil
}
