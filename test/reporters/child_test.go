package reporters

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// childVariable has the role of a process that has plugins, the directory of their sockets, and their names.
const childVariable = "PLIMSOLL_REPORTER_CHILD"

// Roles of processes that have plugins.
const (
	talkRole    = "talk"
	hostileRole = "hostile"
)

// startChild starts a process that has plugins, until stop is called or the test ends. Afterwards messages returns how
// many messages the plugins have sent.
func (r *rig) startChild(role string, names ...string) (stop func(), messages func() int) {
	r.t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childVariable+"="+strings.Join(append([]string{role, r.sockets}, names...), " "))
	var output bytes.Buffer
	child.Stdout, child.Stderr = &output, os.Stderr
	stdin, err := child.StdinPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		if err := errors.Join(stdin.Close(), child.Wait()); err != nil {
			r.t.Errorf("process of plugins %s: %v", role, err)
		}
	})
	r.t.Cleanup(stop)
	return stop, func() int {
		r.t.Helper()
		n, err := strconv.Atoi(output.String())
		if err != nil {
			r.t.Errorf("process of plugins %s: %v", role, err)
		}
		return n
	}
}

// runChild has the plugins of a role until standard input ends. Those that talk print how many messages they have sent.
func runChild(text string) error {
	words := strings.Fields(text)
	role, dir, names := words[0], words[1], words[2:]
	var stop func()
	var err error
	switch role {
	case talkRole:
		var sent func() int
		stop, sent, err = talk(dir, time.Now, names...)
		defer func() { fmt.Print(sent()) }()
	case hostileRole:
		// Hostile plugins get little CPU time when there is not enough, so that a test does not measure how they compete for
		// it with honest ones. The process is its group: PRIO_PROCESS is for one thread, see setpriority(2).
		if err = errors.Join(unix.Setpgid(0, 0), unix.Setpriority(unix.PRIO_PGRP, 0, 19)); err == nil {
			stop, err = misbehave(dir)
		}
	default:
		err = fmt.Errorf("unknown role %q", role)
	}
	if err != nil {
		return err
	}
	defer stop()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// talk starts plugins with sockets in a directory. Each sends a message every messagePeriod, which has the time. sent
// returns how many they have sent.
func talk(dir string, now func() time.Time, names ...string) (stop func(), sent func() int, err error) {
	end, ended := make(chan struct{}), &sync.WaitGroup{}
	var servers []*server
	var plugins []*script
	sent = func() (sum int) {
		for _, p := range plugins {
			sum += p.sent()
		}
		return sum
	}
	stop = sync.OnceFunc(func() {
		close(end)
		ended.Wait()
		for _, s := range servers {
			s.stop()
		}
	})
	message := func(name string) merge.Content { return says(name, strconv.FormatInt(now().UnixNano(), 10)) }
	for _, name := range names {
		plugin := streamed(message(name))
		s, err := newServer(socketOf(dir, name), name, "v1alpha1", &service{plugin: plugin})
		if err != nil {
			stop()
			return nil, nil, err
		}
		servers, plugins = append(servers, s), append(plugins, plugin)
		ended.Go(func() {
			ticker := time.NewTicker(messagePeriod)
			defer ticker.Stop()
			for {
				select {
				case <-ticker.C:
					plugin.set(func(s *script) { s.message = []merge.Content{message(name)} })
				case <-end:
					return
				}
			}
		})
	}
	return stop, sent, nil
}
