package reporters

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/publish"
)

// maxChange is how long 99 of 100 changes of one value may take to the object, when nothing else is to be written.
const maxChange = 2500 * time.Millisecond

// TestOneChange: a plugin in the agent changes one value 200 times, at random times, while nothing else is written. All
// of it is in virtual time, and the answers of the API server take none.
func TestOneChange(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	synctest.Test(t, func(t *testing.T) {
		r.api.changed = make(chan struct{}) // one of the bubble
		p := streamed(says("p", "0"))
		stop := r.inBubble(t, p)
		defer stop()
		random := rand.New(rand.NewPCG(1, 2))
		var times []time.Duration
		for n := range 201 {
			begun := time.Now()
			if n > 0 {
				p.set(func(s *script) { s.message = []merge.Content{says("p", strconv.Itoa(n))} })
			}
			for !r.has("p", strconv.Itoa(n)) {
				if time.Since(begun) > time.Minute {
					t.Fatalf("change %d is not in the object after a minute", n)
				}
				time.Sleep(10 * time.Millisecond)
			}
			if n > 0 {
				times = append(times, time.Since(begun))
			}
			time.Sleep(sustained + time.Duration(random.Int64N(int64(sustained))))
		}
		slices.Sort(times)
		t.Logf("p50 %v, p99 %v, max %v", percentile(times, 50), percentile(times, 99), percentile(times, 100))
		if p99 := percentile(times, 99); p99 > maxChange {
			t.Errorf("99 of 100 changes of one value are in the object after %v at most, want %v", p99, maxChange)
		}
	})
}

// has reports whether the object has a value in the annotation of a plugin.
func (r *rig) has(name, value string) bool {
	object := r.api.get()
	return object != nil && object.GetAnnotations()["example.com/"+name] == value
}

// inBubble runs driver, merger and publisher with one plugin in the agent, in a bubble of virtual time.
func (r *rig) inBubble(t *testing.T, p reporter.Plugin) (stop func()) {
	t.Helper()
	client, err := publish.NewClient(&rest.Config{Host: r.api.server.URL, Transport: direct{r.api}})
	if err != nil {
		t.Fatal(err)
	}
	c := r.config.Load()
	driver, err := reporter.New(reporter.Config{
		Options: reporter.OptionsFrom(c), InTree: map[string]reporter.Plugin{"p": p},
		Remote: func() []reporter.Remote { return nil }, RemoteChanged: make(chan struct{}), Clock: clock.RealClock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	options := publishOptions(c)
	options.Sustained = sustained
	publisher, err := publish.New(publish.Config{
		Client: client, NodeName: "n1", NodeUID: func() (types.UID, bool) { return "node", true }, Options: options,
		Record: filepath.Join(r.state, "taints.json"), Clock: clock.RealClock{},
		Recorder: record.NewFakeRecorder(100), Node: &v1.ObjectReference{Kind: "Node", Name: "n1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	merger := reporter.NewMerger(reporter.MergerConfig{
		Driver: driver, Options: reporter.MergeOptionsFrom(c), Clock: clock.RealClock{},
		Sinks: []func(reporter.Merged){func(m reporter.Merged) { publisher.Set(publish.ObjectOf(&m)) }},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, part := range []func(context.Context){driver.Run, merger.Run, publisher.Run} {
		running.Go(func() { part(ctx) })
	}
	return func() { cancel(); running.Wait() }
}

// direct calls a handler without a network, which virtual time could not pass.
type direct struct{ handler http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	body, w := io.Pipe()
	answer := &directAnswer{header: http.Header{}, body: w, begun: make(chan struct{})}
	context.AfterFunc(r.Context(), func() { _ = w.CloseWithError(r.Context().Err()) })
	go func() {
		d.handler.ServeHTTP(answer, r)
		answer.WriteHeader(http.StatusOK)
		_ = w.Close()
	}()
	<-answer.begun
	return &http.Response{
		Status: fmt.Sprint(answer.code, " ", http.StatusText(answer.code)), StatusCode: answer.code, Proto: "HTTP/1.1",
		ProtoMajor: 1, ProtoMinor: 1, Header: answer.header, Body: body, ContentLength: -1, Request: r,
	}, nil
}

// directAnswer is the answer of a handler, as it is written.
type directAnswer struct {
	header http.Header
	body   *io.PipeWriter
	once   sync.Once
	code   int
	begun  chan struct{}
}

func (a *directAnswer) Header() http.Header { return a.header }

func (a *directAnswer) WriteHeader(code int) {
	a.once.Do(func() {
		a.code = code
		close(a.begun)
	})
}

func (a *directAnswer) Write(data []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(data)
}

// Flush implements http.Flusher: nothing is buffered.
func (*directAnswer) Flush() {}
