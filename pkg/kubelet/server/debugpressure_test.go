package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// hostileNames are names of pods that no API server accepts; texts of plugins and of the runtime may be like these.
var hostileNames = []string{
	"<script>alert(1)</script>", "\u202etxt.exe", strings.Repeat("n", 253), "a\nevent: forged\ndata: {}\n\n", "\x1b[2J",
}

// decided is a log with one decision and an admission of each hostile name.
func decided(t testing.TB) *decisionlog.Log {
	t.Helper()
	log := decisionlog.New(decisionlog.Config{Node: "n1", Clock: clock.RealClock{}, LimitBytes: 1 << 20})
	now := time.Now()
	s := &snapshot.Snapshot{Taken: now, WallTime: now, Signals: snapshot.Unobserved()}
	s.Signals[snapshot.MemoryAvailable] = snapshot.Observation{Available: 1, Capacity: 2, At: now}
	r := &eviction.Round{Trigger: eviction.TriggerTimer, Snapshot: s, Rules: &policy.Rules{}, State: &policy.State{}}
	r.Decision, _ = policy.Decide(s, r.Rules, *r.State)
	log.Recorded(s)
	if !log.NeedsRound(r) {
		t.Fatal("the first round is not kept")
	}
	log.Round(t.Context(), r)
	for i, name := range hostileNames {
		log.Admission(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
			UID: types.UID(fmt.Sprint("u", i))}}, decisionlog.Rejected, name, name)
	}
	return log
}

// endingLog ends clients that watch at once.
type endingLog struct{ *decisionlog.Log }

func (l endingLog) Watch() (*decisionlog.Watcher, error) {
	w, err := l.Log.Watch()
	if err == nil {
		l.Unwatch(w)
	}
	return w, err
}

func pressureHandler(t testing.TB, log PressureLog) http.Handler {
	t.Helper()
	return newDebugPages(DebugPages(DebugSources{Pressure: log}), newAuth(everything), true, http.NotFoundHandler())
}

func getPage(t *testing.T, handler http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	return request(t, handler, endpoint{"GET", path}, "reader")
}

func TestPressurePages(t *testing.T) {
	handler := pressureHandler(t, endingLog{decided(t)})
	for path, kind := range map[string]string{
		"/debug/pressure/status": "PressureStatus", "/debug/pressure/status?rank=true": "PressureStatus",
		"/debug/pressure/decisions":                             "PressureDecisionList",
		"/debug/pressure/decisions?since=10m&limit=5&pod=ns/po": "PressureDecisionList",
		"/debug/pressure/decisions?since=2026-01-02T03:04:05Z":  "PressureDecisionList",
		"/debug/pressure/decisions/1":                           "PressureDecision",
		"/debug/pressure/decisions?trace=true&limit=1":          "PressureTrace",
	} {
		answer := getPage(t, handler, path)
		var document metav1.TypeMeta
		first, _, _ := strings.Cut(answer.Body.String(), "\n")
		if err := json.Unmarshal([]byte(first), &document); err != nil || answer.Code != http.StatusOK ||
			document.Kind != kind || document.APIVersion != debugv1alpha1.PressureAPIVersion {
			t.Errorf("%s: %d %+v %v", path, answer.Code, document, err)
		}
		if h := answer.Header(); h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: headers %v", path, h)
		}
	}
	for path, want := range map[string]int{
		"/debug/pressure/decisions/2": http.StatusNotFound, "/debug/pressure/decisions/-1": http.StatusBadRequest,
		"/debug/pressure/decisions/": http.StatusNotFound, "/debug/pressure/decisions/1/2": http.StatusNotFound,
		"/debug/pressure/decisions/1?pod=x": http.StatusBadRequest, "/debug/pressure": http.StatusNotFound,
		"/debug/pressure/status?rank=yes":                           http.StatusBadRequest,
		"/debug/pressure/status?rank=true&rank=true":                http.StatusBadRequest,
		"/debug/pressure/watch?since=1m":                            http.StatusBadRequest,
		"/debug/pressure/decisions?limit=0":                         http.StatusBadRequest,
		"/debug/pressure/decisions?limit=10001":                     http.StatusBadRequest,
		"/debug/pressure/decisions?since=-1m":                       http.StatusBadRequest,
		"/debug/pressure/decisions?since=now":                       http.StatusBadRequest,
		"/debug/pressure/decisions?pod=a/b/c":                       http.StatusBadRequest,
		"/debug/pressure/decisions?pod=/b":                          http.StatusBadRequest,
		"/debug/pressure/decisions?trace=1":                         http.StatusBadRequest,
		"/debug/pressure/decisions?%zz":                             http.StatusBadRequest,
		"/debug/pressure/decisions?pod=" + strings.Repeat("x", 318): http.StatusBadRequest,
	} {
		if got := getPage(t, handler, path).Code; got != want {
			t.Errorf("%.80s: %d, want %d", path, got, want)
		}
	}
}

// failingLog has records that cannot be read.
type failingLog struct{ *decisionlog.Log }

var errBroken = errors.New("broken record")

func (failingLog) WriteDecisions(io.Writer, *decisionlog.Query) error { return errBroken }

func (failingLog) Decision(uint64) (d debugv1alpha1.PressureDecision, ok bool, err error) {
	return d, true, errBroken
}

// breakingLog has a list and a trace that break off after some MiB, or go on for as long as the client reads.
type breakingLog struct {
	*decisionlog.Log
	endless bool
	// ended has the error of each write.
	ended chan error
}

func (l breakingLog) WriteDecisions(to io.Writer, _ *decisionlog.Query) error { return l.write(to) }
func (l breakingLog) WriteTrace(to io.Writer, _ *decisionlog.Query) error     { return l.write(to) }

func (l breakingLog) write(to io.Writer) (err error) {
	defer func() { l.ended <- err }()
	piece := []byte(strings.Repeat("[", 100<<10))
	for i := 0; l.endless || i < 40; i++ {
		if _, err := to.Write(piece); err != nil {
			return err
		}
	}
	return errBroken
}

// A response that breaks off does not look complete to the client, and what reads the log ends when the client goes
// away in the middle. Only what is a fault of the agent is logged as an error.
func TestResponsesThatBreakOff(t *testing.T) {
	for _, page := range []string{"decisions", "decisions?since=1h&limit=7", "decisions?trace=true"} {
		for _, endless := range []bool{false, true} {
			log := breakingLog{decided(t), endless, make(chan error, 1)}
			var mu sync.Mutex
			var faults []string
			logger := funcr.New(func(_, line string) {
				mu.Lock()
				defer mu.Unlock()
				if !strings.HasPrefix(line, `"level"=`) {
					faults = append(faults, line)
				}
			}, funcr.Options{Verbosity: 9})
			handler, returned := pressureHandler(t, log), make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(returned)
				handler.ServeHTTP(w, r.WithContext(klog.NewContext(r.Context(), logger)))
			}))
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/debug/pressure/"+page, nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Authorization", "Bearer reader")
			response, err := server.Client().Do(request)
			if err != nil {
				t.Fatal(err)
			}
			want := 1
			if endless {
				want = 0
				if _, err := io.ReadFull(response.Body, make([]byte, 1000)); err != nil {
					t.Error(err)
				}
				_ = response.Body.Close()
			} else if n, err := io.Copy(io.Discard, response.Body); err == nil || n == 0 {
				t.Errorf("%s: %d bytes, and the response looks complete", page, n)
			}
			if err := <-log.ended; err == nil || errors.Is(err, errBroken) == endless {
				t.Errorf("%s: ended with %v", page, err)
			}
			<-returned
			server.Close()
			mu.Lock()
			if len(faults) != want {
				t.Errorf("%s, endless %v: logged %q", page, endless, faults)
			}
			mu.Unlock()
		}
	}
}

// Errors of the agent are logged with the path; the client gets none of their text.
func TestErrorsOfTheDecisionLogAreLogged(t *testing.T) {
	handler := pressureHandler(t, failingLog{decided(t)})
	for path, want := range map[string]string{
		"/debug/pressure/decisions":   "Failed to read the decisions",
		"/debug/pressure/decisions/1": "Failed to read the decision",
	} {
		var logged []string
		logger := funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{})
		answer := getPage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handler.ServeHTTP(w, r.WithContext(klog.NewContext(r.Context(), logger)))
		}), path)
		if answer.Code != http.StatusInternalServerError || answer.Body.String() != want+".\n" {
			t.Errorf("%s: %d %q", path, answer.Code, answer.Body)
		}
		if len(logged) != 1 || !strings.Contains(logged[0], `"msg"="`+want+`" "error"="broken record" "path"="`+path+`"`) {
			t.Errorf("%s: logged %q", path, logged)
		}
	}
}

// Names and texts are data of JSON, whatever they have in them.
func TestHostileNamesAreText(t *testing.T) {
	handler := pressureHandler(t, decided(t))
	for i, name := range hostileNames {
		answer := getPage(t, handler, fmt.Sprintf("/debug/pressure/decisions?pod=u%d", i))
		var list debugv1alpha1.PressureDecisionList
		if err := json.Unmarshal(answer.Body.Bytes(), &list); err != nil || len(list.Admissions) != 1 {
			t.Errorf("name %d: %d %v", i, answer.Code, err)
			continue
		}
		if list.Admissions[0].Name != name {
			t.Errorf("name %q, is %q", list.Admissions[0].Name, name)
		}
		if body := answer.Body.String(); strings.Contains(body, "<script") || strings.Count(body, "\n") != 1 {
			t.Errorf("name %d: %q", i, body)
		}
	}
}

// watching starts a server and watches; the returned function reads the next event.
func watching(t *testing.T, log PressureLog) (next func() (name, data string)) {
	t.Helper()
	server := httptest.NewServer(pressureHandler(t, log))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/debug/pressure/watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer reader")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", answer.StatusCode, answer.Header)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	return func() (name, data string) {
		for lines.Scan() {
			switch line := lines.Text(); {
			case strings.HasPrefix(line, "event: "):
				name = line[7:]
			case strings.HasPrefix(line, "data: "):
				data = line[6:]
			case line == "" && name != "":
				return name, data
			}
		}
		return "", ""
	}
}

func TestWatchSendsEvents(t *testing.T) {
	log := decided(t)
	next := watching(t, log)
	for _, name := range hostileNames {
		log.Admission(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}, decisionlog.Waiting, "r", name)
		event, data := next()
		var a debugv1alpha1.PressureAdmission
		if err := json.Unmarshal([]byte(data), &a); err != nil || event != "admission" || a.Name != name {
			t.Errorf("event %q, %q: %v", event, data, err)
		}
	}
}

// A client that is dropped since it was too slow gets the end of the stream.
func TestWatchEnds(t *testing.T) {
	if name, _ := watching(t, endingLog{decided(t)})(); name != "" {
		t.Errorf("event %q", name)
	}
}

func TestTooManyClientsWatch(t *testing.T) {
	log := decided(t)
	for {
		if _, err := log.Watch(); err != nil {
			break
		}
	}
	if got := getPage(t, pressureHandler(t, log), "/debug/pressure/watch").Code; got != http.StatusTooManyRequests {
		t.Error(got)
	}
}

func FuzzPressureParameters(f *testing.F) {
	for _, query := range []string{
		"since=10m&limit=5&pod=ns/po", "trace=true", "rank=true", "limit=-1", "pod=%00", "since=292277026596y", "&&==", "%",
		"since=0001-01-01T00:00:00Z", "since=9999999h", "limit=1&limit=2",
	} {
		f.Add("decisions", query)
	}
	f.Add("decisions/18446744073709551616", "")
	f.Add("status", "rank=\u202e")
	handler := pressureHandler(f, endingLog{decided(f)})
	f.Fuzz(func(t *testing.T, page, query string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.Path, r.URL.RawQuery = "/debug/pressure/"+page, query
		r.Header.Set("Authorization", "Bearer reader")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		switch w.Code {
		case http.StatusOK, http.StatusBadRequest, http.StatusNotFound:
		default:
			t.Errorf("%q?%q: %d", page, query, w.Code)
		}
		if w.Body.Len() > 1<<16 {
			t.Errorf("%q?%q: %d bytes", page, query, w.Body.Len())
		}
	})
}
