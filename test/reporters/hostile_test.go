package reporters

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// hostility are plugins that hang, crash and lie, until the end of the test.
type hostility struct {
	*rig
	end     chan struct{}
	running sync.WaitGroup
}

// hang starts five plugins that hang: two sockets at which nobody answers, one that answers no call, one whose polls
// hang after the first, one whose stream sends nothing after the first message.
func (h *hostility) hang() {
	h.t.Helper()
	for i := range 2 {
		silent, err := net.Listen("unix", h.socket(fmt.Sprint("silent", i)))
		if err != nil {
			h.t.Fatal(err)
		}
		h.t.Cleanup(func() { _ = silent.Close() })
	}
	serve(h.t, h.socket("hang0"), "hang0", "v1alpha1", hanging{})
	serve(h.t, h.socket("hang1"), "hang1", "v1alpha1", &service{plugin: &hangsLater{script: streamed()}})
	serve(h.t, h.socket("hang2"), "hang2", "v1alpha1", &service{plugin: streamed([]merge.Content{}...)})
}

// hangsLater answers the first poll only.
type hangsLater struct {
	*script
	once sync.Once
}

func (p *hangsLater) GetReportContent(ctx context.Context) (contents []merge.Content, err error) {
	p.once.Do(func() { contents = []merge.Content{} })
	if contents == nil {
		<-ctx.Done()
	}
	return contents, ctx.Err()
}

// lie starts five plugins that lie. None of their fields is valid.
func (h *hostility) lie() {
	h.t.Helper()
	for i, answer := range [][]merge.Content{
		{content(big(10 << 20))},
		{content(slices.Repeat([]merge.ReportField{field(merge.Status, "TopologyZone", `[]`)}, 100_000)...)},
		{content(field(merge.Metadata, "Finalizers", `["example.com/lie"]`), field(merge.Metadata, "Name", `"other"`),
			field(merge.Metadata, "Labels", `{"node-restriction.kubernetes.io/lie":"1"}`)),
			nodeContent(field(merge.Metadata, "Labels", `{"node-restriction.kubernetes.io/lie":"1","other.org/lie":"1"}`),
				field(merge.Status, "Capacity", `{"cpu":"1000"}`))},
		{content(field(merge.Status, "Resources", `{"capacity":{"cpu":NaN}}`),
			field(merge.Metadata, "Annotations", `{"example.com/lie":NaN}`))},
		{content(field(merge.Status, "TopologyZone", strings.Repeat(`[{"type":"Socket","name":"lie","children":`, 5000)))},
	} {
		name := fmt.Sprint("lie", i)
		plugin := &script{poll: answer, message: answer}
		h.serve(name, name, plugin)
	}
}

// crash starts five plugins that die again and again, and are started again at the same path.
func (h *hostility) crash() {
	h.t.Helper()
	for i := range 5 {
		name := fmt.Sprint("crash", i)
		h.running.Go(func() {
			for {
				s, err := newServer(h.socket(name), name, "v1alpha1", &service{plugin: polled(says(name, "1"))})
				if err != nil {
					h.t.Error(err)
					return
				}
				select {
				case <-time.After(time.Duration(100+30*i) * time.Millisecond): // the real time between two crashes
				case <-h.end:
					s.stop()
					return
				}
				s.crash()
				_ = os.Remove(h.socket(name))
			}
		})
	}
	h.t.Cleanup(func() { close(h.end); h.running.Wait() })
}
