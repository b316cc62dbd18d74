// Command clients drives franz-go, kafka-go or sarama for tests: a request is a line of JSON on standard input, its answer a line on
// standard output. Requests run at the same time; an answer names its request. End of input ends the process.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

const patience = 30 * time.Second

type header struct {
	Key   string  `json:"key"`
	Value *[]byte `json:"value"`
}

// record is one on its way in or out. Bytes are Base64 in JSON, nil is null.
type record struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"`
	Key       *[]byte  `json:"key"`
	Value     *[]byte  `json:"value"`
	Headers   []header `json:"headers"`
}

type request struct {
	ID              int               `json:"id"`
	Op              string            `json:"op"`
	Servers         string            `json:"servers"`
	Topic           string            `json:"topic"`
	Target          string            `json:"target"`
	Records         []record          `json:"records"`
	Acks            string            `json:"acks"`
	Codec           string            `json:"codec"`
	Idempotent      bool              `json:"idempotent"`
	Offsets         map[int32]int64   `json:"offsets"`
	Partition       int32             `json:"partition"`
	Partitions      int32             `json:"partitions"`
	Timestamp       int64             `json:"timestamp"`
	Count           int               `json:"count"`
	Committed       bool              `json:"committed"`
	Group           string            `json:"group"`
	Name            string            `json:"name"`
	Instance        string            `json:"instance"`
	Assignor        string            `json:"assignor"`
	TransactionalID string            `json:"transactional_id"`
	Configs         map[string]string `json:"configs"`
	MaxBytes        int32             `json:"max_bytes"`
	Said            [][]any           `json:"said"`
	Access          access            `json:"access"`
}

type operation func(*request) (any, error)

type answer struct {
	ID     int    `json:"id"`
	Result any    `json:"result"`
	Error  string `json:"error,omitempty"`
}

func main() {
	var operations map[string]operation
	switch os.Args[1] {
	case "franz-go":
		operations = franzOperations()
	case "kafka-go":
		operations = kafkaGoOperations()
	case "sarama":
		operations = saramaOperations()
	default:
		panic("no client " + os.Args[1])
	}
	var writing sync.Mutex
	answers := json.NewEncoder(os.Stdout)
	requests := bufio.NewScanner(os.Stdin)
	requests.Buffer(nil, 1<<28)
	for requests.Scan() {
		var asked request
		if err := json.Unmarshal(requests.Bytes(), &asked); err != nil {
			panic(err)
		}
		go func() {
			told := run(operations, &asked)
			writing.Lock()
			defer writing.Unlock()
			if err := answers.Encode(told); err != nil {
				panic(err)
			}
		}()
	}
}

func run(operations map[string]operation, asked *request) answer {
	done, known := operations[asked.Op]
	if !known {
		return answer{ID: asked.ID, Error: "no operation " + asked.Op}
	}
	result, err := done(asked)
	if err != nil {
		return answer{ID: asked.ID, Error: err.Error()}
	}
	return answer{ID: asked.ID, Result: result}
}

func pointer(data []byte) *[]byte {
	if data == nil {
		return nil
	}
	return &data
}

func bytesOf(data *[]byte) []byte {
	if data == nil {
		return nil
	}
	if *data == nil {
		return []byte{}
	}
	return *data
}

// members are the consumers of groups by name, with what each holds and has received.
type member struct {
	mutex    sync.Mutex
	changed  chan struct{}
	owned    map[int32]bool
	records  []record
	revoked  int
	failure  error
	commit   func() error
	leave    func() error
	finished chan struct{}
}

func newMember() *member {
	return &member{changed: make(chan struct{}), owned: map[int32]bool{}, finished: make(chan struct{})}
}

// change does something to the state and wakes who waits for it.
func (m *member) change(do func()) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	do()
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *member) until(reached func() bool) error {
	deadline := time.After(patience)
	for {
		m.mutex.Lock()
		done, failure, changed := reached(), m.failure, m.changed
		m.mutex.Unlock()
		if done {
			return nil
		}
		if failure != nil {
			return failure
		}
		select {
		case <-changed:
		case <-deadline:
			return fmt.Errorf("not reached in time: %d partitions held, %d records received", len(m.owned), len(m.records))
		}
	}
}

var members sync.Map

func memberOf(r *request) *member {
	found, _ := members.Load(r.Name)
	return found.(*member)
}

// groupOperations are those that every client answers from a member's state.
func groupOperations() map[string]operation {
	return map[string]operation{
		"assigned": func(r *request) (any, error) {
			m := memberOf(r)
			if err := m.until(func() bool { return len(m.owned) == r.Count }); err != nil {
				return nil, err
			}
			m.mutex.Lock()
			defer m.mutex.Unlock()
			held := []int32{}
			for partition := range m.owned {
				held = append(held, partition)
			}
			return map[string]any{"partitions": held, "revoked": m.revoked}, nil
		},
		"received": func(r *request) (any, error) {
			m := memberOf(r)
			if err := m.until(func() bool { return len(m.records) >= r.Count }); err != nil {
				return nil, err
			}
			m.mutex.Lock()
			defer m.mutex.Unlock()
			return append([]record{}, m.records...), nil
		},
		"commit": func(r *request) (any, error) { return nil, memberOf(r).commit() },
		"leave": func(r *request) (any, error) {
			m := memberOf(r)
			members.Delete(r.Name)
			return nil, m.leave()
		},
	}
}
