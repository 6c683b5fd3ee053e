package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog"
)

// PressureLog has what the pages below /debug/pressure show: a *decisionlog.Log. Its methods are called at the same
// time by several requests.
type PressureLog interface {
	Status(ranked bool) debugv1alpha1.PressureStatus
	WriteDecisions(io.Writer, *decisionlog.Query) error
	Decision(number uint64) (d debugv1alpha1.PressureDecision, ok bool, err error)
	WriteTrace(io.Writer, *decisionlog.Query) error
	Watch() (*decisionlog.Watcher, error)
	Unwatch(*decisionlog.Watcher)
}

const (
	// defaultDecisions and maxDecisions are how many decisions a list has without the parameter limit, and at most.
	defaultDecisions, maxDecisions = 100, 10000
	// maxPodParameter is the longest value of the parameter pod: a namespace, a slash, and a name.
	maxPodParameter = 63 + 1 + 253
	// streamWrite is how long writing a piece of a page may take, which has at most streamPiece bytes.
	streamWrite = 10 * time.Second
	streamPiece = 64 << 10
	// watchComment is the time between two comments, by which a lost connection is detected.
	watchComment = 15 * time.Second
)

// pressurePages returns the handlers of the pages below /debug/pressure, by their path.
func pressurePages(log PressureLog) map[string]http.Handler {
	p := &pressure{log}
	return map[string]http.Handler{
		"/debug/pressure/status":                 http.HandlerFunc(p.status),
		"/debug/pressure/decisions":              http.HandlerFunc(p.decisions),
		"/debug/pressure/decisions" + anySegment: http.HandlerFunc(p.decision),
		"/debug/pressure/watch":                  http.HandlerFunc(p.watch),
	}
}

type pressure struct{ log PressureLog }

// parameters are the query parameters of a request. The first error is kept.
type parameters struct {
	values url.Values
	err    error
}

// parametersOf reads the query parameters. Each must be among the allowed ones, and may be given once.
func parametersOf(r *http.Request, allowed ...string) *parameters {
	values, err := url.ParseQuery(r.URL.RawQuery)
	p := &parameters{values: values, err: err}
	for name, list := range values {
		switch {
		case p.err != nil:
		case !slices.Contains(allowed, name):
			p.err = fmt.Errorf("parameter %.64q: allowed are %s", name, strings.Join(allowed, ", "))
		case len(list) > 1:
			p.err = fmt.Errorf("parameter %s: must be given at most once", name)
		}
	}
	return p
}

func (p *parameters) fail(name, allowed string) {
	if p.err == nil {
		p.err = fmt.Errorf("parameter %s: %.320q: must be %s", name, p.values.Get(name), allowed)
	}
}

func (p *parameters) boolean(name string) bool {
	switch p.values.Get(name) {
	case "", "false":
		return false
	case "true":
		return true
	}
	p.fail(name, "true or false")
	return false
}

func (p *parameters) query(now time.Time) *decisionlog.Query {
	q := &decisionlog.Query{Limit: defaultDecisions}
	if text := p.values.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxDecisions {
			p.fail("limit", fmt.Sprintf("a whole number from 1 to %d", maxDecisions))
		}
		q.Limit = n
	}
	if text := p.values.Get("since"); text != "" {
		if age, err := time.ParseDuration(text); err == nil && age >= 0 {
			q.Since = now.Add(-age)
		} else if q.Since, err = time.Parse(time.RFC3339, text); err != nil {
			p.fail("since", `a duration like "10m", or a time in RFC 3339`)
		}
	}
	if text := p.values.Get("pod"); text != "" {
		namespace, name, full := strings.Cut(text, "/")
		switch {
		case len(text) > maxPodParameter || (full && (namespace == "" || name == "" || strings.Contains(name, "/"))):
			p.fail("pod", "a UID, a name, or a namespace, a slash and a name")
		case full:
			q.Pod = &decisionlog.PodQuery{Namespace: namespace, Name: name}
		default:
			q.Pod = &decisionlog.PodQuery{UID: types.UID(text), Name: text}
		}
	}
	return q
}

// respond writes a value as JSON.
func respond(w http.ResponseWriter, r *http.Request, value any) {
	// It is encoded as a whole first, so that an error has a status of its own and no part of the value before it.
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(value); err != nil {
		failed(w, r, "Failed to encode the response", err)
		return
	}
	plainHeaders(w, "application/json")
	if _, err := newStream(w).Write(text.Bytes()); err != nil {
		klog.FromContext(r.Context()).V(4).Info("Failed to write the response", "path", r.URL.Path, "err", err)
	}
}

// failed logs an error of the agent and responds with its message.
func failed(w http.ResponseWriter, r *http.Request, message string, err error) {
	klog.FromContext(r.Context()).Error(err, message, "path", r.URL.Path)
	http.Error(w, message+".", http.StatusInternalServerError)
}

// plainHeaders sets headers by which browsers neither interpret nor store the response.
func plainHeaders(w http.ResponseWriter, contentType string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
}

// refused responds with the error of the parameters, and returns false if there is none.
func refused(w http.ResponseWriter, p *parameters) bool {
	if p.err == nil {
		return false
	}
	http.Error(w, p.err.Error(), http.StatusBadRequest)
	return true
}

func (p *pressure) status(w http.ResponseWriter, r *http.Request) {
	q := parametersOf(r, "rank")
	ranked := q.boolean("rank")
	if !refused(w, q) {
		respond(w, r, p.log.Status(ranked))
	}
}

// decisions lists decisions, or writes a trace of them.
func (p *pressure) decisions(w http.ResponseWriter, r *http.Request) {
	q := parametersOf(r, "since", "pod", "limit", "trace")
	query, asTrace := q.query(time.Now()), q.boolean("trace")
	if asTrace && !q.values.Has("limit") {
		query.Limit = 0
	}
	if refused(w, q) {
		return
	}
	contentType, write := "application/json", p.log.WriteDecisions
	if asTrace {
		contentType, write = "application/jsonl", p.log.WriteTrace
	}
	plainHeaders(w, contentType)
	s := newStream(w)
	err := write(s, query)
	switch {
	case err == nil:
		return
	case s.err != nil:
		klog.FromContext(r.Context()).V(4).Info("Failed to write decisions", "trace", asTrace, "err", err)
	case !s.begun:
		failed(w, r, "Failed to read the decisions", err)
		return
	default:
		klog.FromContext(r.Context()).Error(err, "Failed to read the decisions", "path", r.URL.Path)
	}
	panic(http.ErrAbortHandler) // Otherwise the response would look complete to the client.
}

func (p *pressure) decision(w http.ResponseWriter, r *http.Request) {
	q := parametersOf(r)
	number, err := strconv.ParseUint(path.Base(r.URL.Path), 10, 64)
	if err != nil && q.err == nil {
		q.err = fmt.Errorf("decision %.64q: must be the number of a decision", path.Base(r.URL.Path))
	}
	if refused(w, q) {
		return
	}
	d, ok, err := p.log.Decision(number)
	switch {
	case err != nil:
		failed(w, r, "Failed to read the decision", err)
	case !ok:
		http.Error(w, fmt.Sprintf("There is no record of decision %d.", number), http.StatusNotFound)
	default:
		respond(w, r, d)
	}
}

// watch sends records as server-sent events as they are made, until the client disconnects or is too slow.
func (p *pressure) watch(w http.ResponseWriter, r *http.Request) {
	if refused(w, parametersOf(r)) {
		return
	}
	watcher, err := p.log.Watch()
	if err != nil {
		http.Error(w, err.Error(), http.StatusTooManyRequests)
		return
	}
	defer p.log.Unwatch(watcher)
	plainHeaders(w, "text/event-stream")
	s := newStream(w)
	comments := time.NewTicker(watchComment)
	defer comments.Stop()
	s.send(": decisions of the eviction manager\n\n")
	for s.err == nil {
		select {
		case <-r.Context().Done():
			return
		case <-comments.C:
			s.send(":\n\n")
		case e, open := <-watcher.Events():
			if !open {
				return
			}
			s.send(eventText(e))
		}
	}
}

func eventText(e decisionlog.Event) string {
	id := ""
	if e.ID != 0 {
		id = fmt.Sprintf("id: %d\n", e.ID)
	}
	return fmt.Sprintf("event: %s\n%sdata: %s\n\n", e.Name, id, e.Data)
}

// stream writes to a client that may be slow, or may never read: each piece has to be written in time, so that what is
// not written does not stay in memory for as long as the connection may last.
type stream struct {
	to      io.Writer
	control *http.ResponseController
	// begun: something was written. err is the last error of a write.
	begun bool
	err   error
}

func newStream(w http.ResponseWriter) *stream {
	return &stream{to: w, control: http.NewResponseController(w)}
}

// Write implements io.Writer.
func (s *stream) Write(text []byte) (written int, err error) {
	for piece := range slices.Chunk(text, streamPiece) {
		// A writer without deadlines is one of a test: those of the servers have them.
		_ = s.control.SetWriteDeadline(time.Now().Add(streamWrite))
		s.begun = true
		n, err := s.to.Write(piece)
		if written += n; err != nil {
			s.err = err
			return written, err
		}
	}
	return written, nil
}

// send writes an event at once.
func (s *stream) send(text string) {
	if _, s.err = s.Write([]byte(text)); s.err == nil {
		s.err = s.control.Flush()
	}
}
