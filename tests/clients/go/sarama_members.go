package main

import (
	"context"

	"github.com/IBM/sarama"
)

// saramaSession is what sarama calls while a member holds partitions.
type saramaSession struct {
	member      *member
	cooperative bool
	current     sarama.ConsumerGroupSession
}

func (s *saramaSession) Setup(session sarama.ConsumerGroupSession) error {
	s.member.change(func() {
		s.current = session
		if s.cooperative { // its session goes on while claims come and go
			return
		}
		for _, partitions := range session.Claims() {
			for _, partition := range partitions {
				s.member.owned[partition] = true
			}
		}
	})
	return nil
}

func (s *saramaSession) Cleanup(sarama.ConsumerGroupSession) error {
	s.member.change(func() {
		if s.cooperative {
			return
		}
		s.member.revoked += len(s.member.owned)
		s.member.owned = map[int32]bool{}
	})
	return nil
}

func (s *saramaSession) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	if s.cooperative {
		s.member.change(func() { s.member.owned[claim.Partition()] = true })
		defer s.member.change(func() {
			delete(s.member.owned, claim.Partition())
			s.member.revoked++
		})
	}
	for one := range claim.Messages() {
		s.member.change(func() {
			session.MarkMessage(one, "")
			s.member.records = append(s.member.records, saramaRecord(one))
		})
	}
	return nil
}

func saramaJoin(r *request) (any, error) {
	config, err := saramaConfig(r)
	if err != nil {
		return nil, err
	}
	config.Consumer.Group.InstanceId = r.Instance
	cooperative := r.Assignor == "cooperative"
	if cooperative {
		strategy := sarama.NewBalanceStrategyCooperativeSticky()
		config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
	}
	group, err := sarama.NewConsumerGroup(saramaServers(r), r.Group, config)
	if err != nil {
		return nil, err
	}
	m := newMember()
	session := &saramaSession{member: m, cooperative: cooperative}
	within, stop := context.WithCancel(context.Background())
	m.commit = func() error {
		session.current.Commit()
		return nil
	}
	m.leave = func() error {
		stop()
		<-m.finished
		return group.Close()
	}
	members.Store(r.Name, m)
	go func() {
		for err := range group.Errors() {
			m.change(func() { m.failure = err })
		}
	}()
	go func() {
		defer close(m.finished)
		for within.Err() == nil {
			if err := group.Consume(within, []string{r.Topic}, session); err != nil {
				m.change(func() { m.failure = err })
				return
			}
		}
	}()
	return nil, nil
}
