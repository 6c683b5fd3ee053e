package reporters

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/utils/clock"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/publish"
)

const collection = "/apis/node.katalyst.kubewharf.io/v1alpha1/customnoderesources"

// objectSchema says that labels and annotations are maps, and owners a list by UID. All else is atomic.
const objectSchema = `{"CustomNodeResource": {"type": "object",
	"x-kubernetes-group-version-kind": [
		{"group": "node.katalyst.kubewharf.io", "version": "v1alpha1", "kind": "CustomNodeResource"}],
	"properties": {
		"apiVersion": {"type": "string"}, "kind": {"type": "string"},
		"metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
			"name": {"type": "string"},
			"labels": {"type": "object", "additionalProperties": {"type": "string"}},
			"annotations": {"type": "object", "additionalProperties": {"type": "string"}},
			"ownerReferences": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
				"items": {"type": "object", "properties": {"uid": {"type": "string"}, "name": {"type": "string"},
					"kind": {"type": "string"}, "apiVersion": {"type": "string"}}}}}},
		"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
		"status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}`

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
	schemas := map[string]*spec.Schema{}
	if err := json.Unmarshal([]byte(objectSchema), &schemas); err != nil {
		t.Fatal(err)
	}
	converter, err := managedfields.NewTypeConverter(schemas, false)
	if err != nil {
		t.Fatal(err)
	}
	a := &apiServer{clock: c, managers: map[string]*managedfields.FieldManager{}, changed: make(chan struct{})}
	for part, reset := range map[string]*fieldpath.Set{
		"":       fieldpath.NewSet(fieldpath.MakePathOrDie("status")),
		"status": fieldpath.NewSet(fieldpath.MakePathOrDie("metadata"), fieldpath.MakePathOrDie("spec")),
	} {
		kind := node.GroupVersionKind
		a.managers[part], err = managedfields.NewDefaultCRDFieldManager(converter, objects{}, objects{}, objects{}, kind,
			kind.GroupVersion(), part, map[fieldpath.APIVersion]fieldpath.Filter{
				fieldpath.APIVersion(kind.GroupVersion().String()): fieldpath.NewExcludeSetFilter(reset),
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	a.server = httptest.NewServer(a)
	t.Cleanup(a.server.Close)
	return a
}

// objects converts and creates objects of the one kind and version.
type objects struct{}

func (objects) Convert(_, _, _ any) error { return errors.New("no conversion") }

func (objects) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

func (objects) ConvertFieldLabel(schema.GroupVersionKind, string, string) (string, string, error) {
	return "", "", errors.New("no conversion")
}

func (objects) Default(runtime.Object) {}

func (objects) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u, nil
}

func (a *apiServer) client(t *testing.T) dynamic.Interface {
	t.Helper()
	client, err := publish.NewClient(&rest.Config{Host: a.server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	name, part, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, collection), "/"), "/")
	a.mu.Lock()
	if r.URL.Query().Get("watch") == "true" {
		a.mu.Unlock()
		a.watch(w, r)
		return
	}
	defer a.mu.Unlock()
	switch {
	case a.down:
		respond(w, http.StatusServiceUnavailable,
			failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "down"))
	case name == "":
		list := map[string]any{
			"apiVersion": node.GroupVersionKind.GroupVersion().String(), "kind": "CustomNodeResourceList", "items": []any{},
			"metadata": map[string]any{"resourceVersion": strconv.Itoa(a.version)},
		}
		if a.object != nil {
			list["items"] = []any{a.object.Object}
		}
		respond(w, http.StatusOK, list)
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == string(types.ApplyYAMLPatchType):
		a.apply(w, part, body, r.URL.Query().Get("fieldManager"))
	case a.object == nil:
		respond(w, http.StatusNotFound, failure(http.StatusNotFound, metav1.StatusReasonNotFound, "not found"))
	case r.Method == http.MethodPatch:
		a.merge(w, body, r.URL.Query().Get("fieldManager"))
	default:
		respond(w, http.StatusOK, a.object.Object)
	}
}

// apply is server-side apply of a part of the object.
func (a *apiServer) apply(w http.ResponseWriter, part string, body []byte, manager string) {
	live := a.object.DeepCopy()
	if live == nil {
		live = &unstructured.Unstructured{}
		live.SetGroupVersionKind(node.GroupVersionKind)
	}
	given := &unstructured.Unstructured{}
	err := json.Unmarshal(body, &given.Object)
	if err == nil {
		var merged runtime.Object
		if merged, err = a.managers[part].Apply(live, given, manager, true); err == nil {
			a.store(w, merged)
			return
		}
	}
	respond(w, http.StatusBadRequest, failure(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error()))
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
		respond(w, http.StatusBadRequest, failure(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error()))
	case changed.GetResourceVersion() != a.object.GetResourceVersion():
		respond(w, http.StatusConflict, failure(http.StatusConflict, metav1.StatusReasonConflict, "it has been modified"))
	default:
		a.store(w, a.managers[""].UpdateNoErrors(a.object.DeepCopy(), changed, manager))
	}
}

// store stores a new version of the object, unless nothing has changed, and responds with it.
func (a *apiServer) store(w http.ResponseWriter, object runtime.Object) {
	data, err := json.Marshal(object)
	stored, event := &unstructured.Unstructured{}, "MODIFIED"
	if err == nil {
		err = stored.UnmarshalJSON(data)
	}
	if err != nil {
		respond(w, http.StatusBadRequest, failure(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error()))
		return
	}
	if a.object == nil {
		event = "ADDED"
		stored.SetUID("1")
	} else if reflect.DeepEqual(withoutTimes(stored), withoutTimes(a.object)) {
		respond(w, http.StatusOK, a.object.Object)
		return
	}
	a.version++
	stored.SetResourceVersion(strconv.Itoa(a.version))
	a.object = stored
	a.happened(event)
	respond(w, http.StatusOK, stored.Object)
}

// withoutTimes returns an object without what the API server alone changes.
func withoutTimes(object *unstructured.Unstructured) map[string]any {
	c := object.DeepCopy()
	c.SetResourceVersion("")
	entries := c.GetManagedFields()
	for i := range entries {
		entries[i].Time = nil
	}
	c.SetManagedFields(entries)
	return c.Object
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
		respond(w, http.StatusBadRequest, failure(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error()))
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

func failure(code int32, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code,
		Reason: reason, Message: message,
	}
}
