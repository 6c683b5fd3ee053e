package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/httplog"
	"k8s.io/klog/v2"
	stockserver "k8s.io/kubernetes/pkg/kubelet/server"
	servermetrics "k8s.io/kubernetes/pkg/kubelet/server/metrics"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
)

// DebugSources returns what the pages of DebugPages show. A source is called once per authorized request, and by
// several requests at the same time.
type DebugSources struct {
	PodWorkers func() debugv1alpha1.PodWorkerList
	// Plugins may be nil: there are none.
	Plugins func() debugv1alpha1.PluginList
	// Pressure may be nil: then there are no pages below /debug/pressure.
	Pressure PressureLog
}

// DebugPage is a page of the secure port below /debug that stock does not have. It answers GET while the debugging
// handlers are enabled.
type DebugPage struct {
	// Path is the whole path. A last segment "{id}" stands for any segment that is not empty. Query parameters are left
	// to Handler.
	Path string
	// Handler is called for authorized requests.
	Handler http.Handler
	// AuthorizeAs is a path of stock. A request is authorized with the attributes of a request for that path, and rejected
	// with the same response.
	AuthorizeAs string
	// Metric is the label "path" of the page in stock's metrics of HTTP requests.
	Metric string
}

// anySegment is the end of the path of a page that has any last segment.
const anySegment = "/{id}"

// DebugPages is the table of our own pages below /debug.
func DebugPages(from DebugSources) []DebugPage {
	pages := []DebugPage{
		// The right to nodes/pods is enough with fine-grained authorization (KEP-2862), else nodes/proxy is needed.
		{Path: "/debug/pods", Handler: show(from.PodWorkers, writePodWorkers), AuthorizeAs: "/pods", Metric: "debug"},
		// Requests and errors of plugins name pods.
		{Path: "/debug/plugins", Handler: show(from.plugins, writePlugins), AuthorizeAs: "/pods", Metric: "debug"},
	}
	if from.Pressure == nil {
		return pages
	}
	// Decisions name pods, their usage and their requests. Metric is the same for all pages: a path has the number of a
	// decision.
	for path, handler := range pressurePages(from.Pressure) {
		pages = append(pages, DebugPage{Path: path, Handler: handler, AuthorizeAs: "/pods", Metric: "debug"})
	}
	slices.SortFunc(pages, func(a, b DebugPage) int { return strings.Compare(a.Path, b.Path) })
	return pages
}

// plugins returns the list that the source returns. In JSON a list without plugins is [], not null.
func (from DebugSources) plugins() debugv1alpha1.PluginList {
	list := debugv1alpha1.PluginList{Time: time.Now()}
	if from.Plugins != nil {
		list = from.Plugins()
	}
	if list.Plugins == nil {
		list.Plugins = []debugv1alpha1.Plugin{}
	}
	return list
}

// show returns the handler of a page that shows a value: as JSON, or as the text that writeText writes. The parameter
// format selects json or text. Without it the first media type of the Accept header does, and JSON is the default.
func show[T any](get func() T, writeText func(io.Writer, T) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var contentType string
		write := writeText
		switch format := requestedFormat(r); format {
		case "json":
			contentType = "application/json"
			write = func(w io.Writer, value T) error { return json.NewEncoder(w).Encode(value) }
		case "text":
			contentType = "text/plain; charset=utf-8"
		default:
			http.Error(w, fmt.Sprintf("format: %q: allowed are json and text", format), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if err := write(w, get()); err != nil {
			klog.FromContext(r.Context()).V(4).Info("Failed to write the response", "path", r.URL.Path, "err", err)
		}
	})
}

func requestedFormat(r *http.Request) string {
	if format := r.URL.Query().Get("format"); format != "" {
		return format
	}
	first, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	first, _, _ = strings.Cut(first, ";")
	if strings.TrimSpace(first) == "text/plain" {
		return "text"
	}
	return "json"
}

// debugPages serves pages, and leaves requests for other paths to next. Handlers cannot be added to the container of
// stock's handler, so that requests are authorized here, by the authenticator and the authorizer of that handler.
type debugPages struct {
	pages   map[string]DebugPage
	auth    stockserver.AuthInterface
	enabled bool // debugging handlers are enabled
	next    http.Handler
}

// withDebugPages returns a handler that serves our pages, and leaves other paths to next.
func (s *Servers) withDebugPages(next http.Handler) http.Handler {
	return newDebugPages(DebugPages(s.cfg.Debug), s.cfg.Auth, s.cfg.Kubelet.EnableDebuggingHandlers, next)
}

func newDebugPages(
	pages []DebugPage, auth stockserver.AuthInterface, enabled bool, next http.Handler,
) *debugPages {
	d := &debugPages{pages: map[string]DebugPage{}, auth: auth, enabled: enabled, next: next}
	for _, p := range pages {
		d.pages[p.Path] = p
	}
	return d
}

func (d *debugPages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	page, found := d.page(r.URL.Path)
	if !found {
		d.next.ServeHTTP(w, r)
		return
	}
	defer count(r.Method, page.Metric)()
	serve := func(w http.ResponseWriter, r *http.Request) { d.serve(w, r, page) }
	httplog.WithLogging(http.HandlerFunc(serve), httplog.DefaultStacktracePred).ServeHTTP(w, r)
}

// page returns the page of a path.
func (d *debugPages) page(path string) (DebugPage, bool) {
	if page, found := d.pages[path]; found {
		return page, true
	}
	last := strings.LastIndexByte(path, '/')
	if last < 0 || path[last+1:] == "" {
		return DebugPage{}, false
	}
	page, found := d.pages[path[:last]+anySegment]
	return page, found
}

// countedMethods are the methods that stock's metrics name. Others are counted as "other", so that clients cannot add
// label values.
var countedMethods = sets.New(http.MethodOptions, http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut,
	http.MethodDelete, http.MethodTrace, http.MethodConnect)

// count counts a request in stock's metrics of HTTP requests. The returned function is called after the response.
func count(method, path string) func() {
	if !countedMethods.Has(method) {
		method = "other"
	}
	labels := []string{method, path, "readwrite", strconv.FormatBool(false)}
	servermetrics.HTTPRequests.WithLabelValues(labels...).Inc()
	servermetrics.HTTPInflightRequests.WithLabelValues(labels...).Inc()
	observe := servermetrics.HTTPRequestsDuration.ObserveSince(time.Now(), labels...)
	return func() {
		servermetrics.HTTPInflightRequests.WithLabelValues(labels...).Dec()
		observe()
	}
}

func (d *debugPages) serve(w http.ResponseWriter, r *http.Request, page DebugPage) {
	if status, text := authorize(r.Context(), d.auth, r, page.AuthorizeAs); status != http.StatusOK {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
		return
	}
	switch {
	case !d.enabled:
		http.Error(w, "Debug endpoints are disabled.", http.StatusMethodNotAllowed)
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "405: Method Not Allowed", http.StatusMethodNotAllowed)
	default:
		page.Handler.ServeHTTP(w, r)
	}
}

// authorize authorizes r as a request for a path of stock. It returns 200, or status and text of the response that
// stock's filter sends for that path.
func authorize(
	ctx context.Context, auth stockserver.AuthInterface, r *http.Request, path string,
) (status int, text string) {
	logger := klog.FromContext(ctx)
	who, known, err := auth.AuthenticateRequest(r)
	if err != nil {
		logger.Error(err, "Unable to authenticate the request due to an error")
	}
	if err != nil || !known {
		return http.StatusUnauthorized, "Unauthorized"
	}
	attributes := auth.GetRequestAttributes(ctx, who.User, withPath(r, path))
	var subresources []string
	for _, a := range attributes {
		subresources = append(subresources, a.GetSubresource())
		decision, _, err := auth.Authorize(ctx, a)
		if err != nil {
			text := fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=%s, subresource=%s)",
				a.GetUser().GetName(), a.GetVerb(), a.GetResource(), a.GetSubresource())
			logger.Error(err, text)
			return http.StatusInternalServerError, text
		}
		if decision == authorizer.DecisionAllow {
			return http.StatusOK, ""
		}
	}
	if len(attributes) == 0 {
		return http.StatusForbidden, "Authorization error: could not determine attributes for request"
	}
	a := attributes[0]
	return http.StatusForbidden, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=%s, subresource(s)=%v)\n",
		a.GetUser().GetName(), a.GetVerb(), a.GetResource(), subresources)
}

// withPath returns a copy of r with another path.
func withPath(r *http.Request, path string) *http.Request {
	as, url := *r, *r.URL
	url.Path = path
	as.URL = &url
	return &as
}
