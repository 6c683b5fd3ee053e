package publish

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-project/plimsoll/test/serversideapply"
)

const collection = serversideapply.Collection

// api is an API server with at most one CustomNodeResource, without sockets, so that it works in bubbles of
// testing/synctest. Managed fields and server-side apply are those of the real one.
type api struct {
	managers map[string]*managedfields.FieldManager

	mu      sync.Mutex
	version int
	created int
	object  *unstructured.Unstructured
	watches map[*stream]bool
	// fault answers a request instead, unless it returns nil. It is called with the lock held.
	fault func(r *request) *http.Response
	// requests are all that came, without reads and watches.
	requests []request
	reads    int
}

// request is a request that was sent.
type request struct {
	method, path, contentType, manager, body string
	force                                    bool
}

// String is the method, the path below the collection, and the kind of a patch.
func (r *request) String() string {
	kind := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(r.contentType, "application/"), "merge-"), "+yaml")
	return strings.TrimSpace(r.method + " " + strings.TrimPrefix(r.path, collection) + " " + kind)
}

func newAPI(t *testing.T) *api {
	t.Helper()
	return &api{managers: serversideapply.NewManagers(t), watches: map[*stream]bool{}, version: 100}
}

// client returns a client of the API server, as NewClient makes it.
func (a *api) client(t *testing.T) dynamic.Interface {
	t.Helper()
	client, err := NewClient(&rest.Config{Host: "http://api.test", Transport: a})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// RoundTrip answers a request.
func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	query := r.URL.Query()
	got := &request{r.Method, r.URL.Path, r.Header.Get("Content-Type"), query.Get("fieldManager"), string(body),
		query.Get("force") == "true"}
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Method == http.MethodGet {
		got.contentType = ""
		a.reads++
	} else {
		a.requests = append(a.requests, *got)
	}
	if a.fault != nil {
		if response := a.fault(got); response != nil {
			if response.StatusCode == 0 {
				return nil, io.ErrUnexpectedEOF
			}
			return response, nil
		}
	}
	if r.Method == http.MethodGet && query.Get("watch") == "true" {
		return a.watch(r, query.Get("resourceVersion")), nil
	}
	if r.Method == http.MethodGet && r.URL.Path == collection {
		return answer(http.StatusOK, serversideapply.List(a.object, strconv.Itoa(a.version))), nil
	}
	return a.single(got), nil
}

// single answers a request about the object.
func (a *api) single(r *request) *http.Response {
	name, part, _ := strings.Cut(strings.TrimPrefix(r.path, collection+"/"), "/")
	switch {
	case name != "n1":
		return status(http.StatusForbidden, metav1.StatusReasonForbidden, "not its own object", 0)
	case r.method == http.MethodGet && a.object != nil:
		return answer(http.StatusOK, a.object.Object)
	case r.method == http.MethodPatch && (a.object != nil || r.contentType == string(types.ApplyYAMLPatchType) &&
		part == mainPart):
		return a.patch(r, part)
	}
	return status(http.StatusNotFound, metav1.StatusReasonNotFound, "not found", 0)
}

func (a *api) patch(r *request, part string) *http.Response {
	live := serversideapply.LiveOrNew(a.object)
	if r.contentType == string(types.ApplyYAMLPatchType) {
		given := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(r.body), &given.Object); err != nil {
			return status(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error(), 0)
		}
		object, err := a.managers[part].Apply(live, given, r.manager, r.force)
		if err != nil {
			return status(http.StatusConflict, metav1.StatusReasonConflict, err.Error(), 0)
		}
		return a.store(object.(*unstructured.Unstructured), part)
	}
	changed := live.DeepCopy()
	if r.contentType == string(types.JSONPatchType) {
		var operations []struct {
			Op, Path string
			Value    any
		}
		if err := json.Unmarshal([]byte(r.body), &operations); err != nil || len(operations) != 2 ||
			operations[0].Path != "/metadata/managedFields" || operations[1].Path != "/metadata/resourceVersion" {
			return status(http.StatusBadRequest, metav1.StatusReasonBadRequest, "what is this?", 0)
		}
		metadata, _ := changed.Object["metadata"].(map[string]any)
		metadata["managedFields"], metadata["resourceVersion"] = operations[0].Value, operations[1].Value
	} else {
		var patch map[string]any
		if err := json.Unmarshal([]byte(r.body), &patch); err != nil {
			return status(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error(), 0)
		}
		changed.Object = mergePatch(changed.Object, patch).(map[string]any)
	}
	if changed.GetResourceVersion() != live.GetResourceVersion() || changed.GetUID() != live.GetUID() {
		return status(http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified", 0)
	}
	return a.store(a.updated(live, changed, part, r.manager), part)
}

// updated is an object after an update of a part of it.
func (a *api) updated(live, changed *unstructured.Unstructured, part, manager string) *unstructured.Unstructured {
	if part == statusPart {
		whole := live.DeepCopy()
		whole.Object["status"] = changed.Object["status"]
		whole.SetManagedFields(changed.GetManagedFields())
		changed = whole
	} else if s, ok := live.Object["status"]; ok {
		changed.Object["status"] = s
	} else {
		delete(changed.Object, "status")
	}
	return a.managers[part].UpdateNoErrors(live.DeepCopy(), changed, manager).(*unstructured.Unstructured)
}

func mergePatch(target, patch any) any {
	members, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	object, _ := target.(map[string]any)
	if object == nil {
		object = map[string]any{}
	}
	for name, member := range members {
		if member == nil {
			delete(object, name)
		} else {
			object[name] = mergePatch(object[name], member)
		}
	}
	return object
}

// store stores an object of an answer, unless nothing has changed.
func (a *api) store(object *unstructured.Unstructured, part string) *http.Response {
	event := "MODIFIED"
	switch {
	case a.object == nil:
		event = "ADDED"
		a.created++
		object.SetUID(types.UID(fmt.Sprintf("uid-%d", a.created)))
		delete(object.Object, "status")
	case part == mainPart:
		if s, ok := a.object.Object["status"]; ok {
			object.Object["status"] = s
		}
	}
	object = serversideapply.Stored(object)
	if a.object != nil && serversideapply.Same(a.object, object) {
		return answer(http.StatusOK, a.object.Object)
	}
	a.version++
	object.SetResourceVersion(strconv.Itoa(a.version))
	a.object = object
	a.send(event, object)
	return answer(http.StatusOK, object.Object)
}

// change changes the object as another writer does, by updates.
func (a *api) change(part, manager string, change func(object map[string]any)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changeLocked(part, manager, change)
}

// changeLocked is change for a fault.
func (a *api) changeLocked(part, manager string, change func(object map[string]any)) {
	live := serversideapply.LiveOrNew(a.object)
	live.SetName("n1")
	changed := live.DeepCopy()
	change(changed.Object)
	a.store(a.updated(live, changed, part, manager), part)
}

// remove deletes the object.
func (a *api) remove() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	gone := a.object.DeepCopy()
	gone.SetResourceVersion(strconv.Itoa(a.version))
	a.object = nil
	a.send("DELETED", gone)
}

// get returns the object, nil if there is none.
func (a *api) get() *unstructured.Unstructured {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.object.DeepCopy()
}

// sent returns the requests since the last call, without reads.
func (a *api) sent() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []string
	for i := range a.requests {
		list = append(list, a.requests[i].String())
	}
	a.requests = nil
	return list
}

// setFault replaces the fault.
func (a *api) setFault(fault func(r *request) *http.Response) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fault = fault
}

func answer(code int, body any) *http.Response {
	data, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(data)),
	}
}

func status(code int, reason metav1.StatusReason, message string, retryAfter int) *http.Response {
	s := serversideapply.Failure(code, reason, message)
	// The API server has the time in both places.
	s.Details = &metav1.StatusDetails{
		Kind: "customnoderesources", Name: "n1", RetryAfterSeconds: int32(retryAfter),
	}
	response := answer(code, s)
	if retryAfter > 0 {
		response.Header.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	return response
}

// text is an answer that is no Status: that of an API server without the kind, and of one that has too much to do.
func text(code int, body string, retryAfter int) *http.Response {
	response := &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
		Body: io.NopCloser(strings.NewReader(body)),
	}
	if retryAfter > 0 {
		response.Header.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	return response
}

// unreachable makes a request fail without an answer.
func unreachable(*request) *http.Response { return &http.Response{} }

// stream is the body of a watch.
type stream struct {
	mu     sync.Mutex
	wake   *sync.Cond
	buffer bytes.Buffer
	closed bool
}

func (s *stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.buffer.Len() == 0 {
		if s.closed {
			return 0, io.EOF
		}
		s.wake.Wait()
	}
	return s.buffer.Read(p)
}

func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.wake.Broadcast()
	return nil
}

func (s *stream) write(data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buffer.Write(data)
	s.wake.Broadcast()
}

// watch answers a watch. No events are lost, since it begins at the version of a list that came before it, or is
// expired.
func (a *api) watch(r *http.Request, version string) *http.Response {
	if version != strconv.Itoa(a.version) {
		return status(http.StatusGone, metav1.StatusReasonExpired, "too old resource version", 0)
	}
	s := &stream{}
	s.wake = sync.NewCond(&s.mu)
	a.watches[s] = true
	go func() {
		<-r.Context().Done()
		_ = s.Close()
	}()
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: s,
	}
}

// send sends an event to all watches.
func (a *api) send(event string, object *unstructured.Unstructured) {
	data, err := json.Marshal(map[string]any{"type": event, "object": object.Object})
	if err != nil {
		panic(err)
	}
	for s := range a.watches {
		s.write(append(data, '\n'))
	}
}

// endWatches ends all watches.
func (a *api) endWatches() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := range a.watches {
		_ = s.Close()
		delete(a.watches, s)
	}
}
