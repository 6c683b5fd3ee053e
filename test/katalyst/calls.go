package main

import (
	"encoding/json"
	"os"
	"sync"
	"time"
)

// call is one line of the file of calls.
type call struct {
	Time time.Time `json:"time"`
	// Call is the name of the gRPC method.
	Call string `json:"call"`
	// Pods are the active pods of the request, as namespace/name; none for reporter plugins.
	Pods []string `json:"pods"`
	// TopN and Scope are those of GetTopEvictionPods.
	TopN  uint64 `json:"topN,omitempty"`
	Scope string `json:"scope,omitempty"`
}

// callFile is the file to which calls are appended.
type callFile struct {
	name string

	mu sync.Mutex
}

func (f *callFile) add(c call) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	file, err := os.OpenFile(f.name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}
