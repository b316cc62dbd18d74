package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// clockTick is what the kernel counts processor time in.
const clockTick = 0.01

// cpuSeconds is what a process has had of the processors so far, by all its threads, in itself and in the kernel.
func cpuSeconds(pid int) (float64, error) {
	read, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	text := string(read)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]) // its name may hold anything
	ticks := 0
	for _, field := range fields[11:13] { // utime, stime
		each, err := strconv.Atoi(field)
		if err != nil {
			return 0, err
		}
		ticks += each
	}
	return float64(ticks) * clockTick, nil
}
