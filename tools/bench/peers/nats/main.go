// Publishes messages to a file-backed JetStream stream, many in flight, and prints how fast that went as one JSON line.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats.go"
)

func main() {
	address := flag.String("address", "", "of the server")
	stream := flag.String("stream", "bench", "made anew for each run")
	messages := flag.Int("messages", 100_000, "to publish")
	size := flag.Int("bytes", 1000, "in a message")
	inFlight := flag.Int("in-flight", 1000, "publishes that wait for their acknowledgement")
	flag.Parse()
	rate, err := publish(*address, *stream, *messages, *size, *inFlight)
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]float64{"rate": rate}); err != nil {
		log.Fatal(err)
	}
}

// publish answers acknowledged messages per second; any message that is refused or lost is an error.
func publish(address, stream string, messages, size, inFlight int) (float64, error) {
	connection, err := nats.Connect(address)
	if err != nil {
		return 0, err
	}
	defer connection.Close()
	failures := make(chan error, 1)
	jetStream, err := connection.JetStream(
		nats.PublishAsyncMaxPending(inFlight),
		nats.PublishAsyncErrHandler(func(_ nats.JetStream, _ *nats.Msg, err error) {
			select {
			case failures <- err:
			default:
			}
		}),
	)
	if err != nil {
		return 0, err
	}
	config := &nats.StreamConfig{Name: stream, Subjects: []string{stream}, Storage: nats.FileStorage, Replicas: 1}
	if _, err := jetStream.AddStream(config); err != nil {
		return 0, err
	}
	defer jetStream.DeleteStream(stream)
	payload := make([]byte, size)
	started := time.Now()
	for range messages {
		if _, err := jetStream.PublishAsync(stream, payload); err != nil {
			return 0, err
		}
	}
	select {
	case <-jetStream.PublishAsyncComplete():
	case <-time.After(time.Minute):
		return 0, fmt.Errorf("%d of %d messages were not acknowledged", jetStream.PublishAsyncPending(), messages)
	}
	seconds := time.Since(started).Seconds()
	select {
	case err := <-failures:
		return 0, err
	default:
	}
	info, err := jetStream.StreamInfo(stream)
	if err != nil {
		return 0, err
	}
	if info.State.Msgs != uint64(messages) {
		return 0, fmt.Errorf("the stream holds %d of %d messages", info.State.Msgs, messages)
	}
	return float64(messages) / seconds, nil
}
