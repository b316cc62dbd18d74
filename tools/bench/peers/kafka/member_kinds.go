package main

import (
	"crypto/rand"
	"encoding/base64"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// classic members hold JoinGroup 3, which gives an id at once, SyncGroup 3 and Heartbeat 3. The leader assigns nothing.
func classic(m *member) protocol {
	var generation int32
	join := func() (time.Duration, error) {
		for {
			m.changed()
			joining := kmsg.NewPtrJoinGroupRequest()
			joining.Group, joining.MemberID, joining.ProtocolType = m.group, m.id, "consumer"
			joining.SessionTimeoutMillis = int32(classicSession.Milliseconds())
			joining.RebalanceTimeoutMillis = int32(classicSession.Milliseconds())
			spread := kmsg.NewJoinGroupRequestProtocol()
			spread.Name = "range"
			joining.Protocols = append(joining.Protocols, spread)
			answer, err := m.ask(joining, 3)
			if err != nil {
				return 0, failed("join", err, 0)
			}
			joined := answer.(*kmsg.JoinGroupResponse)
			if err := failed("join", nil, joined.ErrorCode); err != nil {
				return 0, err
			}
			m.id, generation = joined.MemberID, joined.Generation
			syncing := kmsg.NewPtrSyncGroupRequest()
			syncing.Group, syncing.MemberID, syncing.Generation = m.group, m.id, generation
			if answer, err = m.ask(syncing, 3); err != nil {
				return 0, failed("sync", err, 0)
			}
			code := answer.(*kmsg.SyncGroupResponse).ErrorCode
			if code != kerr.RebalanceInProgress.Code {
				m.changed()
				return classicInterval, failed("sync", nil, code)
			}
		}
	}
	beat := func() (time.Duration, error) {
		beating := kmsg.NewPtrHeartbeatRequest()
		beating.Group, beating.MemberID, beating.Generation = m.group, m.id, generation
		answer, err := m.ask(beating, 3)
		if err != nil {
			return 0, failed("heartbeat", err, 0)
		}
		code := answer.(*kmsg.HeartbeatResponse).ErrorCode
		if code == kerr.RebalanceInProgress.Code {
			return join()
		}
		return classicInterval, failed("heartbeat", nil, code)
	}
	leave := func() error {
		leaving := kmsg.NewPtrLeaveGroupRequest()
		leaving.Group, leaving.MemberID = m.group, m.id
		answer, err := m.ask(leaving, 2)
		if err != nil {
			return failed("leave", err, 0)
		}
		return failed("leave", nil, answer.(*kmsg.LeaveGroupResponse).ErrorCode)
	}
	return protocol{join, beat, leave}
}

// consumer members hold ConsumerGroupHeartbeat 1 and say of an assignment at once that they have it.
func consumer(m *member) protocol {
	m.id = newID()
	var epoch int32
	send := func(fill func(*kmsg.ConsumerGroupHeartbeatRequest)) (time.Duration, error) {
		for {
			beating := kmsg.NewPtrConsumerGroupHeartbeatRequest()
			beating.Group, beating.MemberID, beating.MemberEpoch = m.group, m.id, epoch
			fill(beating)
			answer, err := m.ask(beating, 1)
			if err != nil {
				return 0, failed("heartbeat", err, 0)
			}
			told := answer.(*kmsg.ConsumerGroupHeartbeatResponse)
			if err := failed("heartbeat", nil, told.ErrorCode); err != nil {
				return 0, err
			}
			if told.MemberEpoch != epoch {
				m.changed()
			}
			epoch = told.MemberEpoch
			interval := time.Duration(told.HeartbeatIntervalMillis) * time.Millisecond
			if told.Assignment == nil || epoch < 0 {
				return interval, nil
			}
			m.changed()
			fill = func(next *kmsg.ConsumerGroupHeartbeatRequest) {
				next.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
				for _, given := range told.Assignment.Topics {
					has := kmsg.NewConsumerGroupHeartbeatRequestTopic()
					has.TopicID, has.Partitions = given.TopicID, given.Partitions
					next.Topics = append(next.Topics, has)
				}
			}
		}
	}
	return protocol{
		join: func() (time.Duration, error) {
			return send(func(joining *kmsg.ConsumerGroupHeartbeatRequest) {
				joining.RebalanceTimeoutMillis = int32(classicSession.Milliseconds())
				joining.SubscribedTopicNames = []string{m.topic}
				joining.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
			})
		},
		beat: func() (time.Duration, error) { return send(func(*kmsg.ConsumerGroupHeartbeatRequest) {}) },
		leave: func() error {
			epoch = -1
			_, err := send(func(*kmsg.ConsumerGroupHeartbeatRequest) {})
			return err
		},
	}
}

// sharer members hold ShareGroupHeartbeat 1.
func sharer(m *member) protocol {
	m.id = newID()
	var epoch int32
	send := func(topics []string) (time.Duration, error) {
		beating := kmsg.NewPtrShareGroupHeartbeatRequest()
		beating.GroupID, beating.MemberID, beating.MemberEpoch = m.group, m.id, epoch
		beating.SubscribedTopicNames = topics
		answer, err := m.ask(beating, 1)
		if err != nil {
			return 0, failed("heartbeat", err, 0)
		}
		told := answer.(*kmsg.ShareGroupHeartbeatResponse)
		if told.MemberEpoch != epoch || told.Assignment != nil {
			m.changed()
		}
		epoch = told.MemberEpoch
		return time.Duration(told.HeartbeatIntervalMillis) * time.Millisecond, failed("heartbeat", nil, told.ErrorCode)
	}
	return protocol{
		join: func() (time.Duration, error) { return send([]string{m.topic}) },
		beat: func() (time.Duration, error) { return send(nil) },
		leave: func() error {
			epoch = -1
			_, err := send(nil)
			return err
		},
	}
}

// streams members hold StreamsGroupHeartbeat 0 for an application that only reads, and say of tasks at once that they have them.
func streams(m *member) protocol {
	m.id = newID()
	process := newID()
	var epoch int32
	send := func(fill func(*kmsg.StreamsGroupHeartbeatRequest)) (time.Duration, error) {
		for {
			beating := kmsg.NewPtrStreamsGroupHeartbeatRequest()
			beating.Group, beating.MemberID, beating.MemberEpoch = m.group, m.id, epoch
			fill(beating)
			answer, err := m.ask(beating, 0)
			if err != nil {
				return 0, failed("heartbeat", err, 0)
			}
			told := answer.(*kmsg.StreamsGroupHeartbeatResponse)
			if err := failed("heartbeat", nil, told.ErrorCode); err != nil {
				return 0, err
			}
			if told.MemberEpoch != epoch {
				m.changed()
			}
			epoch = told.MemberEpoch
			interval := time.Duration(told.HeartbeatIntervalMillis) * time.Millisecond
			if told.ActiveTasks == nil || epoch < 0 {
				return interval, nil
			}
			m.changed()
			fill = func(next *kmsg.StreamsGroupHeartbeatRequest) {
				next.ActiveTasks, next.StandbyTasks, next.WarmupTasks = told.ActiveTasks, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
			}
		}
	}
	return protocol{
		join: func() (time.Duration, error) {
			return send(func(joining *kmsg.StreamsGroupHeartbeatRequest) {
				reads := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
				reads.SubtopologyID, reads.SourceTopics = "0", []string{m.topic}
				topology := kmsg.NewStreamsGroupHeartbeatRequestTopology()
				topology.Subtopologies = append(topology.Subtopologies, reads)
				joining.Topology, joining.ProcessID = &topology, &process
				joining.RebalanceTimeoutMillis = int32(classicSession.Milliseconds())
				joining.ActiveTasks, joining.StandbyTasks, joining.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
			})
		},
		beat: func() (time.Duration, error) { return send(func(*kmsg.StreamsGroupHeartbeatRequest) {}) },
		leave: func() error {
			epoch = -1
			_, err := send(func(*kmsg.StreamsGroupHeartbeatRequest) {})
			return err
		},
	}
}

// newID is a random id in the form of Kafka's Uuid.
func newID() string {
	var bytes [16]byte
	rand.Read(bytes[:])
	return base64.RawURLEncoding.EncodeToString(bytes[:])
}
