package reporters

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/apis/reporterplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// hostility are plugins that hang, crash and lie.
type hostility struct {
	dir     string
	servers []*server
	silent  []net.Listener
	end     chan struct{}
	running sync.WaitGroup
}

// misbehave starts hostile plugins with sockets in a directory: five that hang, five that lie, and five that crash.
func misbehave(dir string) (stop func(), err error) {
	h := &hostility{dir: dir, end: make(chan struct{})}
	if err := errors.Join(h.hang(), h.lie()); err != nil {
		h.stop()
		return nil, err
	}
	for i := range 5 {
		h.running.Go(func() { h.crash(i) })
	}
	return h.stop, nil
}

func (h *hostility) stop() {
	close(h.end)
	h.running.Wait()
	for _, s := range h.servers {
		s.stop()
	}
	for _, l := range h.silent {
		_ = l.Close()
	}
}

func (h *hostility) serve(name string, service v1alpha1.ReporterPluginServer) error {
	s, err := newServer(socketOf(h.dir, name), name, "v1alpha1", service)
	if err == nil {
		h.servers = append(h.servers, s)
	}
	return err
}

// hang starts five plugins that hang: two sockets at which nobody answers, one that answers no call, one whose polls
// hang after the first, one whose stream sends nothing after the first message.
func (h *hostility) hang() error {
	for i := range 2 {
		silent, err := net.Listen("unix", socketOf(h.dir, fmt.Sprint("silent", i)))
		if err != nil {
			return err
		}
		h.silent = append(h.silent, silent)
	}
	return errors.Join(h.serve("hang0", hanging{}), h.serve("hang1", &service{plugin: &hangsLater{script: streamed()}}),
		h.serve("hang2", &service{plugin: streamed([]merge.Content{}...)}))
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
func (h *hostility) lie() error {
	var errs []error
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
		errs = append(errs, h.serve(fmt.Sprint("lie", i), &service{plugin: &script{poll: answer, message: answer}}))
	}
	return errors.Join(errs...)
}

// crash runs a plugin that dies again and again, and is started again at the same path, until the end.
func (h *hostility) crash(i int) {
	name := fmt.Sprint("crash", i)
	for {
		s, err := newServer(socketOf(h.dir, name), name, "v1alpha1", &service{plugin: polled(says(name, "1"))})
		if err != nil {
			panic(err) // no other program uses the path
		}
		select {
		case <-time.After(time.Duration(100+30*i) * time.Millisecond): // the real time between two crashes
		case <-h.end:
			s.stop()
			return
		}
		s.crash()
		_ = os.Remove(socketOf(h.dir, name))
	}
}
