// Command soak is franz-go in a soak run: it does what its only argument says, in JSON, and notes what it did and was told.
// On standard input it is told "quiet" (send nothing more) and "over" (end). At the end of the input its driver is gone.
package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	mostPending     = 400
	sessionTimeout  = 8 * time.Second
	transactionTime = 15 * time.Second
)

type role struct {
	Role            string `json:"role"`
	TransactionalID string `json:"transactional_id"`
	Group           string `json:"group"`
	Protocol        string `json:"protocol"`
	Topic           string `json:"topic"`
	Committed       bool   `json:"committed"`
}

type task struct {
	Name    string           `json:"name"`
	Life    int              `json:"life"`
	Seed    string           `json:"seed"`
	Kafka   string           `json:"kafka"`
	History string           `json:"history"`
	Rate    float64          `json:"rate"`
	Topics  map[string]int32 `json:"topics"`
	Roles   []role           `json:"roles"`
}

// work is one role: who notes what, and what is left to chance. quiet ends before over.
type work struct {
	task         task
	role         role
	who          string
	random       *rand.Rand
	quiet, over  context.Context
	sent         int
	transactions int
	producers    int
}

var (
	writing sync.Mutex
	file    *os.File
)

// monotonic is CLOCK_MONOTONIC in ns, which all processes of the machine share.
func monotonic() int64 {
	var now syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&now)), 0)
	if errno != 0 {
		panic(errno)
	}
	return now.Nano()
}

// note writes one line by one system call; the lines of the file ascend by time.
func (w *work) note(do string, told map[string]any) {
	writing.Lock()
	defer writing.Unlock()
	if told == nil {
		told = map[string]any{}
	}
	told["at"], told["who"], told["do"] = monotonic(), w.who, do
	line, err := json.Marshal(told)
	if err != nil {
		panic(err)
	}
	if _, err = file.Write(append(line, '\n')); err != nil {
		panic(err)
	}
}

func (w *work) producerName() string {
	w.producers++
	return fmt.Sprintf("%s/%d", w.who, w.producers)
}

func (w *work) transactionName() string {
	w.transactions++
	return fmt.Sprintf("%s transaction %d", w.who, w.transactions)
}

// pause waits until the next records are due, or until nothing more is to be sent.
func (w *work) pause(count int, share float64) {
	seconds := min(5, w.random.ExpFloat64()*float64(count)/(w.task.Rate*share))
	select {
	case <-time.After(time.Duration(seconds * float64(time.Second))):
	case <-w.quiet.Done():
	}
}

func (w *work) records(topic string, count int) []*kgo.Record {
	partition := w.random.Int31n(w.task.Topics[topic])
	made := []*kgo.Record{}
	for range count {
		identity := fmt.Sprintf("%s:%d", w.who, w.sent)
		w.sent++
		padding := make([]byte, w.random.Intn(150))
		w.random.Read(padding)
		stamp := time.Now().UnixMilli()
		if w.random.Float64() < 0.3 {
			stamp -= w.random.Int63n(3000)
		}
		one := &kgo.Record{
			Topic: topic, Partition: partition, Timestamp: time.UnixMilli(stamp),
			Value: []byte(identity + "\n" + hex.EncodeToString(padding)),
		}
		if topic == "compacted" {
			one.Key = fmt.Appendf(nil, "key-%d", w.random.Intn(40))
		}
		made = append(made, one)
	}
	return made
}

func id(record *kgo.Record) string {
	before, _, _ := strings.Cut(string(record.Value), "\n")
	return before
}

func place(record *kgo.Record) []any {
	return []any{record.Topic, record.Partition}
}

func (w *work) noteSends(producer, transaction string, records []*kgo.Record) {
	noted := [][]any{}
	for _, one := range records {
		about := []any{id(one), one.Timestamp.UnixMilli()}
		if one.Key != nil {
			about = append(about, string(one.Key))
		}
		noted = append(noted, about)
	}
	w.note("sends", map[string]any{
		"to": place(records[0]), "producer": producer, "records": noted, "transaction": transaction,
	})
}

func (w *work) noteDelivery(record *kgo.Record, err error) {
	if err != nil {
		w.note("given up", map[string]any{"ids": []string{id(record)}, "error": err.Error()})
	} else {
		w.note("acknowledged", map[string]any{"to": place(record), "ids": []string{id(record)}, "offset": record.Offset})
	}
}

func (w *work) client(options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(w.task.Kafka), kgo.ClientID(strings.ReplaceAll(w.who, "/", "-")),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
		kgo.RetryTimeout(4 * time.Minute), kgo.RequestTimeoutOverhead(10 * time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.DialTimeout(3 * time.Second),
	}, options...)...)
	if err != nil {
		panic(err)
	}
	return client
}

func main() {
	var told task
	if err := json.Unmarshal([]byte(os.Args[1]), &told); err != nil {
		panic(err)
	}
	var err error
	if file, err = os.OpenFile(told.History, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644); err != nil {
		panic(err)
	}
	over, end := context.WithCancel(context.Background())
	quiet, calm := context.WithCancel(over)
	go func() {
		orders := bufio.NewScanner(os.Stdin)
		for orders.Scan() {
			if orders.Text() == "quiet" {
				calm()
			} else if orders.Text() == "over" {
				end()
				return
			}
		}
		os.Exit(1)
	}()
	parts := map[string]func(*work){"feed": feed, "move": move, "member": read}
	var all sync.WaitGroup
	for number, one := range told.Roles {
		who := fmt.Sprintf("%s/%d/%s%d", told.Name, told.Life, one.Role, number)
		seed := fnv.New64a()
		fmt.Fprintf(seed, "%s/%s", told.Seed, who)
		played := &work{
			task: told, role: one, who: who, quiet: quiet, over: over, random: rand.New(rand.NewSource(int64(seed.Sum64()))),
		}
		all.Go(func() {
			played.note("begins", nil)
			parts[played.role.Role](played)
			played.note("is done", nil)
		})
	}
	all.Wait()
	calm()
}
