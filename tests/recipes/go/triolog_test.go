package orders

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Triolog is a running server. Kafka and Control are its addresses.
type Triolog struct {
	Kafka, Control string
	stop           func()
}

// Start a server on ports that the system chooses.
func startTriolog() (*Triolog, error) {
	folder, err := os.MkdirTemp("", "triolog-")
	if err != nil {
		return nil, err
	}
	server := exec.Command("triolog", "serve", "--data-dir", folder+"/data", "--durability", "os", "--log-level", "error",
		"--native", "127.0.0.1:0", "--kafka", "127.0.0.1:0", "--control", "127.0.0.1:0", "--ready-file", "-")
	server.Env = append(os.Environ(), "TRIOLOG_GROUP_INITIAL_REBALANCE_DELAY_MS=0")
	server.Stderr = os.Stderr
	ready, err := server.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := server.Start(); err != nil {
		return nil, err
	}
	broker := &Triolog{stop: func() {
		server.Process.Signal(os.Interrupt)
		server.Wait()
		os.RemoveAll(folder)
	}}
	if err := json.NewDecoder(ready).Decode(broker); err != nil {
		broker.stop()
		return nil, fmt.Errorf("triolog did not start, standard error has the reason: %w", err)
	}
	return broker, nil
}

// Call the control port, and return the body of its response.
func (broker *Triolog) call(t *testing.T, method, path, body string) string {
	t.Helper()
	request, err := http.NewRequest(method, "http://"+broker.Control+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(path, response.Status, string(text), err)
	}
	return string(text)
}
