package reporters

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/test/serversideapply"
)

// apiServer has at most one CustomNodeResource. Managed fields and server-side apply are those of the real one.
type apiServer struct {
	clock    clock.PassiveClock
	server   *httptest.Server
	managers map[string]*managedfields.FieldManager

	mu sync.Mutex
	// down: all requests fail, except watches.
	down    bool
	object  *unstructured.Unstructured
	version int
	// versions are all that the object had.
	versions []version
	// changed is closed and replaced with each version.
	changed chan struct{}
}

// version is what the object was at a time.
type version struct {
	at          time.Time
	annotations map[string]string
	event       []byte
}

func newAPIServer(t *testing.T, c clock.PassiveClock) *apiServer {
	t.Helper()
	a := &apiServer{clock: c, managers: serversideapply.NewManagers(t), changed: make(chan struct{})}
	a.server = httptest.NewServer(a)
	t.Cleanup(a.server.Close)
	return a
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	name, part, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, serversideapply.Collection), "/"), "/")
	a.mu.Lock()
	if r.URL.Query().Get("watch") == "true" {
		a.mu.Unlock()
		a.watch(w, r)
		return
	}
	defer a.mu.Unlock()
	switch {
	case a.down:
		fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "down")
	case name == "":
		respond(w, http.StatusOK, serversideapply.List(a.object, strconv.Itoa(a.version)))
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == string(types.ApplyYAMLPatchType):
		a.apply(w, part, body, r.URL.Query().Get("fieldManager"))
	case a.object == nil:
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "not found")
	case r.Method == http.MethodPatch:
		a.merge(w, body, r.URL.Query().Get("fieldManager"))
	default:
		respond(w, http.StatusOK, a.object.Object)
	}
}

// apply is server-side apply of a part of the object.
func (a *apiServer) apply(w http.ResponseWriter, part string, body []byte, manager string) {
	live := serversideapply.LiveOrNew(a.object)
	given := &unstructured.Unstructured{}
	err := json.Unmarshal(body, &given.Object)
	if err == nil {
		var merged runtime.Object
		if merged, err = a.managers[part].Apply(live, given, manager, true); err == nil {
			a.store(w, merged)
			return
		}
	}
	fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
}

// merge is a merge patch of a version of the object.
func (a *apiServer) merge(w http.ResponseWriter, body []byte, manager string) {
	before, err := a.object.MarshalJSON()
	var after []byte
	if err == nil {
		after, err = jsonpatch.MergePatch(before, body)
	}
	changed := &unstructured.Unstructured{}
	if err == nil {
		err = changed.UnmarshalJSON(after)
	}
	switch {
	case err != nil:
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	case changed.GetResourceVersion() != a.object.GetResourceVersion():
		fail(w, http.StatusConflict, metav1.StatusReasonConflict, "it has been modified")
	default:
		a.store(w, a.managers[""].UpdateNoErrors(a.object.DeepCopy(), changed, manager))
	}
}

// store stores a new version of the object, unless nothing has changed, and responds with it.
func (a *apiServer) store(w http.ResponseWriter, object runtime.Object) {
	stored, event := serversideapply.Stored(object), "MODIFIED"
	if a.object == nil {
		event = "ADDED"
		stored.SetUID("1")
	} else if serversideapply.Same(stored, a.object) {
		respond(w, http.StatusOK, a.object.Object)
		return
	}
	a.version++
	stored.SetResourceVersion(strconv.Itoa(a.version))
	a.object = stored
	a.happened(event)
	respond(w, http.StatusOK, stored.Object)
}

// happened records a version of the object.
func (a *apiServer) happened(event string) {
	data, err := json.Marshal(map[string]any{"type": event, "object": a.object.Object})
	if err != nil {
		panic(err)
	}
	a.versions = append(a.versions, version{a.clock.Now(), a.object.GetAnnotations(), append(data, '\n')})
	close(a.changed)
	a.changed = make(chan struct{})
}

// watch sends what happens after a version. The number of a version is its place in the history.
func (a *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	from, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	for {
		a.mu.Lock()
		news, changed := a.versions[from:], a.changed
		from = len(a.versions)
		a.mu.Unlock()
		for i := range news {
			if _, err := w.Write(news[i].event); err != nil {
				return
			}
		}
		if err := control.Flush(); err != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// setDown sets whether all requests fail, except watches.
func (a *apiServer) setDown(down bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = down
}

// remove deletes the object, as somebody else does.
func (a *apiServer) remove() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	a.object.SetResourceVersion(strconv.Itoa(a.version))
	a.happened("DELETED")
	a.object = nil
}

// get returns the object, nil if there is none.
func (a *apiServer) get() *unstructured.Unstructured {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.object.DeepCopy()
}

// history returns all versions of the object.
func (a *apiServer) history() []version {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.versions
}

func respond(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	respond(w, code, serversideapply.Failure(code, reason, message))
}
