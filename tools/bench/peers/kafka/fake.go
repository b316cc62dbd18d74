package main

import (
	"encoding/json"
	"io"
	"os"

	"github.com/twmb/franz-go/pkg/kfake"
)

// serveFake runs one node of kfake until its input ends; its address is the first line.
func serveFake(_ *settings) error {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DefaultNumPartitions(1))
	if err != nil {
		return err
	}
	defer cluster.Close()
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{"address": cluster.ListenAddrs()[0]}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
