package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// groupSize is how many members a group has.
	groupSize = 50
	// dialling is how many connections are opened at once: a broker's backlog is short.
	dialling = 16
	// classicInterval is the heartbeat.interval.ms of clients; of other groups the broker says it.
	classicInterval = 3 * time.Second
	classicSession  = 45 * time.Second
)

// idleMembers lets members of one kind of group join, each with a connection of its own, and do nothing but tell that they are
// there, and answers which part of a core the broker's process takes for that. Requests are written by hand: a client for each
// member would take more than the broker.
func idleMembers(ctx context.Context, s *settings) (map[string]any, error) {
	join, known := kinds[s.kind]
	if !known {
		return nil, fmt.Errorf("no group is of kind %q", s.kind)
	}
	within, stop := context.WithTimeout(ctx, patience)
	defer stop()
	if err := findCoordinator(within, s); err != nil {
		return nil, err
	}
	crowd := &crowd{joined: make(chan struct{}, s.clients)}
	crowd.changed()
	var running sync.WaitGroup
	leave := make(chan struct{})
	failures := make(chan error, s.clients)
	places := make(chan struct{}, dialling)
	for number := range s.clients {
		running.Go(func() {
			m := &member{crowd: crowd, topic: s.topic, group: fmt.Sprintf("%s-%s-%d", s.group, s.kind, number/groupSize)}
			places <- struct{}{}
			err := m.connect(within, s.address)
			<-places
			if err == nil {
				err = m.live(within, join(m), leave)
				m.connection.Close()
			}
			if err != nil {
				failures <- err
				stop()
			}
		})
	}
	part, err := crowd.watch(within, s)
	close(leave)
	running.Wait()
	select {
	case first := <-failures:
		return nil, first
	default:
	}
	if err != nil {
		return nil, err
	}
	return map[string]any{"core_percent": 100 * part, "beats_s": float64(crowd.beats.Load()) / s.seconds}, nil
}

// crowd is what the members have in common.
type crowd struct {
	joined chan struct{}
	change atomic.Int64
	beats  atomic.Int64
}

func (c *crowd) changed() { c.change.Store(time.Now().UnixNano()) }

// watch waits until all have joined and nothing has changed for as long as is measured, and measures; again, where something
// changed meanwhile: a member may be told of its partitions by a later heartbeat than the one that it rested behind.
func (c *crowd) watch(ctx context.Context, s *settings) (float64, error) {
	for range s.clients {
		select {
		case <-c.joined:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	rest := time.Duration(s.seconds * float64(time.Second))
	for {
		for left := rest; left > 0; left = rest - time.Since(time.Unix(0, c.change.Load())) {
			if err := sleep(ctx, left); err != nil {
				return 0, err
			}
		}
		c.beats.Store(0)
		began, err := cpuSeconds(s.pid)
		if err != nil {
			return 0, err
		}
		if err := sleep(ctx, rest); err != nil {
			return 0, err
		}
		ended, err := cpuSeconds(s.pid)
		if err != nil {
			return 0, err
		}
		if time.Since(time.Unix(0, c.change.Load())) >= rest {
			return max(ended-began, clockTick) / s.seconds, nil
		}
	}
}

func sleep(ctx context.Context, duration time.Duration) error {
	select {
	case <-time.After(duration):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// member is one of a group, with its connection.
type member struct {
	*crowd
	topic, group string
	id           string
	connection   net.Conn
	answers      *bufio.Reader
	requests     int32
}

// protocol is what members of a kind do. beat answers when to beat again; leave ends it.
type protocol struct {
	join  func() (time.Duration, error)
	beat  func() (time.Duration, error)
	leave func() error
}

var kinds = map[string]func(*member) protocol{"classic": classic, "consumer": consumer, "share": sharer, "streams": streams}

func (m *member) connect(ctx context.Context, address string) (err error) {
	var dialer net.Dialer
	if m.connection, err = dialer.DialContext(ctx, "tcp", address); err != nil {
		return err
	}
	end, _ := ctx.Deadline()
	m.answers = bufio.NewReader(m.connection)
	return m.connection.SetDeadline(end)
}

// live joins, and beats until it is told to leave.
func (m *member) live(ctx context.Context, p protocol, leave <-chan struct{}) error {
	interval, err := p.join()
	for isStarting(err) {
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		interval, err = p.join()
	}
	if err != nil {
		return err
	}
	m.joined <- struct{}{}
	wait := time.Duration(rand.Int63n(int64(interval))) // they do not beat at once
	for {
		select {
		case <-leave:
			return p.leave()
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		if wait, err = p.beat(); err != nil {
			return err
		}
		m.beats.Add(1)
	}
}

func (m *member) ask(request kmsg.Request, version int16) (kmsg.Response, error) {
	m.requests++
	request.SetVersion(version)
	framed := kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, request, m.requests)
	if _, err := m.connection.Write(framed); err != nil {
		return nil, err
	}
	var length [4]byte
	if _, err := io.ReadFull(m.answers, length[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(m.answers, frame); err != nil {
		return nil, err
	}
	body := frame[4:] // the correlation id
	if request.IsFlexible() {
		body = body[1:] // no tags
	}
	answer := request.ResponseKind()
	return answer, answer.ReadFrom(body)
}

// findCoordinator has a broker make the topic of its groups, if that is not there.
func findCoordinator(ctx context.Context, s *settings) error {
	client, err := connect(s)
	if err != nil {
		return err
	}
	defer client.Close()
	request := kmsg.NewPtrFindCoordinatorRequest()
	request.CoordinatorKey, request.CoordinatorKeys = s.group, []string{s.group}
	_, err = request.RequestWith(ctx, client)
	return err
}

// isStarting says whether a coordinator has not begun yet.
func isStarting(err error) bool {
	return errors.Is(err, kerr.CoordinatorNotAvailable) || errors.Is(err, kerr.NotCoordinator) ||
		errors.Is(err, kerr.CoordinatorLoadInProgress)
}

func failed(what string, err error, code int16) error {
	if err == nil {
		err = kerr.ErrorForCode(code)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
