package pluginhost

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"k8s.io/component-base/metrics/testutil"

	"github.com/plimsoll-project/plimsoll/test/await"
)

func refusalsOf(t *testing.T, r reason) float64 {
	t.Helper()
	value, err := testutil.GetCounterMetricValue(refusals.WithLabelValues(pluginType, string(r)))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// Each refusal has its reason, is counted, and is one event however often the plugin manager tries again. Not parallel:
// it reads counters of the process.
func TestRefusals(t *testing.T) {
	outside := filepath.Join(directory(t), "outside.sock")
	serve(t, outside, "outside", "")
	for _, tc := range []struct {
		title, name string
		versions    []string
		prepare     func(t *testing.T, h *testHost) (endpoint string)
		want        reason
	}{
		{title: "no version", want: unsupportedVersion, versions: []string{}},
		{title: "other versions", want: unsupportedVersion, versions: []string{"v1", "v1alpha10"}},
		{title: "long name", name: strings.Repeat("n", 64), want: invalidName},
		{title: "very long name", name: strings.Repeat("n", 1<<20), want: invalidName},
		{title: "name with a space", name: "a b", want: invalidName},
		{title: "name with two slashes", name: "a/b/c", want: invalidName},
		{title: "name in the tree", name: "memory-growth", want: nameInTree},
		{title: "not enabled", want: notEnabled, prepare: func(_ *testing.T, h *testHost) string {
			h.disabled.Store(true)
			return h.socket("p")
		}},
		{title: "relative endpoint", want: invalidEndpoint, prepare: func(*testing.T, *testHost) string { return "p.sock" }},
		{title: "no file", want: invalidEndpoint, prepare: func(_ *testing.T, h *testHost) string { return h.socket("q") }},
		{title: "directory itself", want: invalidEndpoint, prepare: func(_ *testing.T, h *testHost) string { return h.dir }},
		{title: "file", want: invalidEndpoint, prepare: func(t *testing.T, h *testHost) string {
			must(t, os.WriteFile(h.socket("q"), nil, 0o600))
			return h.socket("q")
		}},
		{title: "nobody listens", want: invalidEndpoint, prepare: func(t *testing.T, h *testHost) string {
			serve(t, h.socket("q"), "q", "").die()
			return h.socket("q")
		}},
		{title: "outside", want: invalidEndpoint, prepare: func(*testing.T, *testHost) string { return outside }},
		{title: "outside by ..", want: invalidEndpoint, prepare: func(_ *testing.T, h *testHost) string {
			return h.dir + "/../" + filepath.Base(filepath.Dir(outside)) + "/outside.sock"
		}},
		{title: "link to outside", want: invalidEndpoint, prepare: func(t *testing.T, h *testHost) string {
			must(t, os.Symlink(outside, h.socket("q")))
			return h.socket("q")
		}},
		{title: "link to a directory outside", want: invalidEndpoint, prepare: func(t *testing.T, h *testHost) string {
			must(t, os.Symlink(filepath.Dir(outside), filepath.Join(h.dir, "q")))
			return filepath.Join(h.dir, "q", "outside.sock")
		}},
		{title: "foreign owner", want: foreignOwner, prepare: func(_ *testing.T, h *testHost) string {
			h.cfg.Owner++
			return h.socket("p")
		}},
		{title: "33rd plugin", want: tooMany, prepare: func(t *testing.T, h *testHost) string {
			for i := range 32 {
				h.register(t, fmt.Sprint("p", i), h.socket("p"))
			}
			return h.socket("p")
		}},
	} {
		t.Run(tc.title, func(t *testing.T) {
			h := newHost(t)
			serve(t, h.socket("p"), "p", "")
			name, endpoint, versions := tc.name, h.socket("p"), tc.versions
			if name == "" {
				name = "p"
			}
			if tc.prepare != nil {
				endpoint = tc.prepare(t, h)
			}
			if versions == nil {
				versions = []string{"v1alpha0", "v1alpha1"}
			}
			registered, before := len(h.registrations), refusalsOf(t, tc.want)
			for range 3 {
				err := h.ValidatePlugin(name, endpoint, versions)
				if refused := (*refusal)(nil); !errors.As(err, &refused) || refused.reason != tc.want {
					t.Errorf("got %v, want %s", err, tc.want)
				}
			}
			if counted := refusalsOf(t, tc.want) - before; counted != 3 {
				t.Errorf("%v refusals are counted, want 3", counted)
			}
			if len(h.events) != 1 {
				t.Fatalf("%d events, want 1", len(h.events))
			}
			if event := <-h.events; len(event) > 1024 || !strings.HasPrefix(event, "Warning PluginRefused EvictionPlugin") {
				t.Errorf("got the event %s", event)
			}
			if len(h.registrations) != registered {
				t.Errorf("%d plugins are registered, want %d", len(h.registrations), registered)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A validation does not wait for a process that does not accept connections.
func TestValidationDoesNotWaitForAccept(t *testing.T) {
	h := newHost(t)
	listening, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer func() { _ = unix.Close(listening) }()
	must(t, unix.Bind(listening, &unix.SockaddrUnix{Name: h.socket("p")}))
	must(t, unix.Listen(listening, 0))
	first, err := net.Dial("unix", h.socket("p")) // takes the only place
	must(t, err)
	defer func() { _ = first.Close() }()
	refused := h.validate(t.Context(), key{"p", h.socket("p")}, []string{"v1alpha1"})
	if refused == nil || refused.reason != invalidEndpoint {
		t.Errorf("got %v", refused)
	}
}

func TestSocketsBelowDirectoryAreAccepted(t *testing.T) {
	h := newHost(t)
	must(t, os.Mkdir(filepath.Join(h.dir, "sub"), 0o750))
	serve(t, filepath.Join(h.dir, "sub", "p.sock"), "p", "")
	must(t, os.Symlink("sub/p.sock", h.socket("link")))
	h.register(t, "p", filepath.Join(h.dir, "sub", "p.sock"))
	h.register(t, "q", h.socket("link"))
	link := filepath.Join(directory(t), "link")
	must(t, os.Symlink(h.dir, link))
	h.cfg.Directories = []string{link}
	h.register(t, "r", filepath.Join(link, "sub", "p.sock"))
}

// Validations at the same time may accept more than there is place for; the registration refuses the 33rd.
func TestRegistrationOfThe33rdPluginIsRefused(t *testing.T) {
	h := newHost(t)
	socket := h.socket("p")
	serve(t, socket, "p", "")
	for i := range 32 {
		h.register(t, fmt.Sprint("p", i), socket)
	}
	if err := h.RegisterPlugin("p32", socket, nil, nil); err == nil || len(h.Endpoints()) != 32 {
		t.Errorf("got %v and %d endpoints", err, len(h.Endpoints()))
	}
	h.register(t, "p31", socket)
	h.DeRegisterPlugin("p0", socket)
	h.register(t, "p32", socket)
	if endpoints := h.Endpoints(); len(endpoints) != 32 || !slices.IsSortedFunc(endpoints, func(a, b *Endpoint) int {
		return strings.Compare(a.Name(), b.Name())
	}) {
		t.Errorf("%d endpoints, or not in the order of their names", len(endpoints))
	}
}

// A registration is an event of its own again after the plugin was registered.
func TestRefusalAfterRegistrationIsAnEvent(t *testing.T) {
	h := newHost(t)
	serve(t, h.socket("p"), "p", "")
	for range 2 {
		h.disabled.Store(true)
		for range 2 {
			if err := h.ValidatePlugin("p", h.socket("p"), []string{"v1alpha1"}); err == nil {
				t.Error("accepted")
			}
		}
		if got := h.Refusals(); len(got) != 1 || got[0].Name != "p" || got[0].Message == "" || got[0].Time.IsZero() {
			t.Errorf("refusals %+v", got)
		}
		h.disabled.Store(false)
		h.register(t, "p", h.socket("p"))
		if got := h.Refusals(); len(got) != 0 {
			t.Errorf("refusals of a registered plugin %+v", got)
		}
	}
	if len(h.events) != 2 {
		t.Errorf("%d events, want 2", len(h.events))
	}
}

// The last refusals are kept, each plugin once and the newest last, however many plugins there are.
func TestRefusalsAreBounded(t *testing.T) {
	h := newHost(t)
	h.disabled.Store(true)
	refuse := func(i int) {
		if err := h.ValidatePlugin(fmt.Sprintf("p%d", i), h.socket("p"), []string{"v1alpha1"}); err == nil {
			t.Error("accepted")
		}
		select {
		case <-h.events: // the recorder waits when its channel is full
		default:
		}
	}
	for i := range maxRefusals + 10 {
		refuse(i)
	}
	refuse(20)
	got := h.Refusals()
	if len(got) != maxRefusals || got[0].Name != "p10" || got[maxRefusals-1].Name != "p20" {
		t.Errorf("%d refusals from %v to %v", len(got), got[0], got[len(got)-1])
	}
}

// A reload removes endpoints and makes new ones, without a registration in between.
func TestRecheck(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := serve(t, h.socket("p"), "p", "t")
	e := h.register(t, "p", h.socket("p"))
	<-h.Changed()
	h.Recheck()
	<-h.Changed()
	if got := h.Endpoints(); len(got) != 1 || got[0] != e {
		t.Error("a reload that changes nothing makes another endpoint")
	}

	h.disabled.Store(true)
	h.Recheck()
	<-h.Changed()
	if got := h.Endpoints(); len(got) != 0 {
		t.Errorf("%d endpoints of a plugin that is not enabled", len(got))
	}
	if _, err := getToken(t.Context(), e, time.Minute); !errors.Is(err, ErrRemoved) {
		t.Errorf("got %v, want ErrRemoved", err)
	}
	h.disabled.Store(false)
	h.Recheck()
	<-h.Changed()
	if tokens := h.tokens(t); !slices.Equal(tokens, []string{"t"}) || p.calls.Load() != 1 {
		t.Errorf("got %q after %d calls", tokens, p.calls.Load())
	}

	h.disabled.Store(true)
	h.Recheck()
	h.DeRegisterPlugin("p", h.socket("p"))
	h.disabled.Store(false)
	h.Recheck()
	if got := h.Endpoints(); len(got) != 0 {
		t.Errorf("%d endpoints of a plugin that was deregistered", len(got))
	}
}

// A plugin that was refused as not enabled is registered after a reload that enables it, without a restart.
func TestRefusedPluginIsRegisteredAfterReload(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.disabled.Store(true)
	h.watch(t)
	p := serve(t, h.socket("p"), "p", "t")
	if status := <-p.statuses; status.PluginRegistered || !strings.Contains(status.Error, "is not enabled") {
		t.Fatalf("got %v, want a refusal", status)
	}
	h.disabled.Store(false)
	h.Recheck()
	await.True(t, "registration", func() bool { return slices.Equal(h.tokens(t), []string{"t"}) })
}

// The plugin manager may not report the end of a socket that was created anew; then the new one replaces it.
func TestNewSocketReplacesRegistrationsAtTheOldOne(t *testing.T) {
	h := newHost(t)
	p := serve(t, h.socket("p"), "old", "old")
	e := h.register(t, "old", h.socket("p"))
	h.register(t, "alias", h.socket("p"))
	p.stop()
	serve(t, h.socket("p"), "new", "new")
	h.register(t, "new", h.socket("p"))
	if tokens := h.tokens(t); !slices.Equal(tokens, []string{"new"}) {
		t.Errorf("got %q", tokens)
	}
	if _, err := getToken(t.Context(), e, time.Minute); !errors.Is(err, ErrRemoved) {
		t.Errorf("got %v, want ErrRemoved", err)
	}
}

// Two processes that register at sockets of their own and name the same endpoint replace each other as in a rolling
// update: the new one creates the endpoint anew and registers, then the old one ends.
func TestEndpointIsTakenOverInAnUpdate(t *testing.T) {
	h := newHost(t)
	p := serve(t, h.socket("p"), "p", "old")
	h.register(t, "p", h.socket("p"))
	for range 3 {
		p.stop()
		p = serve(t, h.socket("p"), "p", "new")
		e := h.register(t, "p", h.socket("p"))
		h.DeRegisterPlugin("p", h.socket("p")) // of the old process
		if endpoints := h.Endpoints(); len(endpoints) != 1 || endpoints[0] != e {
			t.Fatalf("%d endpoints", len(endpoints))
		}
	}
	h.DeRegisterPlugin("p", h.socket("p"))
	if endpoints := h.Endpoints(); len(endpoints) != 0 {
		t.Errorf("%d endpoints after the end of the last process", len(endpoints))
	}
}

// A host that has only refused plugins has no goroutines.
func TestNoGoroutinesWithoutPlugins(t *testing.T) {
	current := goleak.IgnoreCurrent()
	h := newHost(t)
	h.disabled.Store(true)
	for i := range 100 {
		if err := h.ValidatePlugin(fmt.Sprint("p", i), h.socket("p"), []string{"v1alpha1"}); err == nil {
			t.Error("accepted")
		}
	}
	h.Recheck()
	goleak.VerifyNone(t, current)
}

func TestCloseEndsEverything(t *testing.T) {
	h := newHost(t)
	serve(t, h.socket("p"), "p", "t")
	e := h.register(t, "p", h.socket("p"))
	h.Close()
	if _, err := getToken(t.Context(), e, time.Minute); !errors.Is(err, ErrRemoved) || len(h.Endpoints()) != 0 {
		t.Errorf("got %v and %d endpoints", err, len(h.Endpoints()))
	}
	if err := h.RegisterPlugin("p", h.socket("p"), nil, nil); err == nil || len(h.events) != 0 {
		t.Errorf("got %v and %d events", err, len(h.events))
	}
}
