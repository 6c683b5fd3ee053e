package publish

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// agent is a publisher that runs, and its API server.
type agent struct {
	*Publisher
	t      *testing.T
	api    *api
	events *events
	config Config
	stop   func()
}

// events are those that were sent.
type events struct {
	mu   sync.Mutex
	list []string
}

func (e *events) Eventf(_ runtime.Object, eventType, reason, format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, eventType+" "+reason+": "+fmt.Sprintf(format, args...))
}

// sent returns the events since the last call.
func (e *events) sent() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := e.list
	e.list = nil
	return list
}

// bubble runs a test with a publisher in a bubble of virtual time. The publisher has begun to run.
func bubble(t *testing.T, test func(a *agent), change ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := &agent{t: t, api: newAPI(t), events: &events{}, config: configForTest(t)}
		a.config.Client, a.config.Recorder = a.api.client(t), a.events
		for _, c := range change {
			c(&a.config)
		}
		a.start()
		defer func() { a.stop() }()
		test(a)
	})
}

// configForTest is a configuration without client and recorder.
func configForTest(t *testing.T) Config {
	return Config{
		NodeName: "n1", NodeUID: func() (types.UID, bool) { return "node-uid", true },
		Options: Options{Enabled: true, Sustained: 10 * time.Second},
		Record:  filepath.Join(t.TempDir(), "plimsoll", "reporter", "taints.json"),
		Clock:   clock.RealClock{}, Node: &v1.ObjectReference{Kind: "Node", Name: "n1"},
	}
}

// start starts a publisher, as at a start of the agent.
func (a *agent) start() {
	a.t.Helper()
	p, err := New(a.config)
	if err != nil {
		a.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx)
	}()
	a.Publisher = p
	a.stop = func() {
		cancel()
		<-done
	}
}

// restart ends the publisher and starts another one.
func (a *agent) restart() {
	a.t.Helper()
	a.stop()
	a.start()
}

// give calls Set with fields of the CustomNodeResource: path, value, path, value.
func (a *agent) give(pathsAndValues ...string) {
	a.Set(Object{Fields: fieldsOf(pathsAndValues...), Answered: time.Now()})
}

func fieldsOf(pathsAndValues ...string) (fields []merge.Field) {
	for pair := range slices.Chunk(pathsAndValues, 2) {
		fields = append(fields, merge.Field{Kind: "CustomNodeResource", Path: pair[0], JSON: []byte(pair[1])})
	}
	return fields
}

// after waits for a time, and until nothing happens any more.
func (a *agent) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// expect compares a part of the object with JSON; "" for absent.
func (a *agent) expect(path, want string) {
	a.t.Helper()
	object := a.api.get()
	if object == nil {
		a.t.Fatalf("there is no object, want %s: %s", path, want)
	}
	var value any = object.Object
	for name := range strings.SplitSeq(path, ".") {
		members, _ := value.(map[string]any)
		value = members[name]
	}
	got := ""
	if value != nil {
		data, err := json.Marshal(value)
		if err != nil {
			a.t.Fatal(err)
		}
		got = string(data)
	}
	if got != want {
		a.t.Errorf("%s: %s, want %s", path, got, want)
	}
}

// expectSent compares the requests since the last call of it.
func (a *agent) expectSent(want ...string) {
	a.t.Helper()
	if got := a.api.sent(); !slices.Equal(got, want) {
		a.t.Errorf("sent %q, want %q", got, want)
	}
}

// expectEvents compares the events since the last call of it: each must have the text.
func (a *agent) expectEvents(want ...string) {
	a.t.Helper()
	got := a.events.sent()
	if len(got) != len(want) {
		a.t.Fatalf("events %q, want %q", got, want)
	}
	for i := range got {
		if !strings.Contains(got[i], want[i]) {
			a.t.Errorf("event %q, want %q", got[i], want[i])
		}
	}
}

const (
	applyMain   = "PATCH /n1 apply-patch"
	applyStatus = "PATCH /n1/status apply-patch"
	patchTaints = "PATCH /n1 patch+json"
	takesOver   = "PATCH /n1 json-patch+json"
)
