package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/httplog"
	"k8s.io/klog/v2"
	stockserver "k8s.io/kubernetes/pkg/kubelet/server"
	servermetrics "k8s.io/kubernetes/pkg/kubelet/server/metrics"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
)

// debugPodsPath shows the pod workers. It is ours alone, GET only, and guarded as stock guards reading pods.
const debugPodsPath = "/debug/pods"

// WorkerViews shows the pod workers.
type WorkerViews interface {
	Views() podworkers.Listing
}

// debugPods answers debugPodsPath and leaves everything else to next. Stock's container takes no handlers from outside,
// so the path is guarded here: by the same authenticator and authorizer, asked what stock's filter asks for /pods.
type debugPods struct {
	views   WorkerViews
	auth    stockserver.AuthInterface
	enabled bool // debugging handlers are on
	next    http.Handler
}

// withDebugPods puts the view of the pod workers before the handler of the secure port.
func (s *Servers) withDebugPods(next http.Handler) http.Handler {
	if s.cfg.Workers == nil {
		return next
	}
	return &debugPods{views: s.cfg.Workers, auth: s.cfg.Auth, enabled: s.cfg.Kubelet.EnableDebuggingHandlers, next: next}
}

func (d *debugPods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != debugPodsPath {
		d.next.ServeHTTP(w, r)
		return
	}
	defer count(r.Method)()
	httplog.WithLogging(http.HandlerFunc(d.serve), httplog.DefaultStacktracePred).ServeHTTP(w, r)
}

// countedMethods are those that stock's metrics name; the rest is "other", so that a client cannot make up label
// values.
var countedMethods = sets.New(http.MethodOptions, http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut,
	http.MethodDelete, http.MethodTrace, http.MethodConnect)

// count counts a request among those of stock's handlers below /debug. The returned function is called when it has been
// answered.
func count(method string) func() {
	if !countedMethods.Has(method) {
		method = "other"
	}
	labels := []string{method, "debug", "readwrite", strconv.FormatBool(false)}
	servermetrics.HTTPRequests.WithLabelValues(labels...).Inc()
	servermetrics.HTTPInflightRequests.WithLabelValues(labels...).Inc()
	observe := servermetrics.HTTPRequestsDuration.ObserveSince(time.Now(), labels...)
	return func() {
		servermetrics.HTTPInflightRequests.WithLabelValues(labels...).Dec()
		observe()
	}
}

func (d *debugPods) serve(w http.ResponseWriter, r *http.Request) {
	if status, why := mayReadPods(r.Context(), d.auth, r); status != http.StatusOK {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(why))
		return
	}
	switch {
	case !d.enabled:
		http.Error(w, "Debug endpoints are disabled.", http.StatusMethodNotAllowed)
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "405: Method Not Allowed", http.StatusMethodNotAllowed)
	default:
		d.show(w, r)
	}
}

// show writes the workers as JSON, or as a table for people.
func (d *debugPods) show(w http.ResponseWriter, r *http.Request) {
	var contentType string
	var write func(podworkers.Listing) error
	switch format := wantedFormat(r); format {
	case "json":
		contentType = "application/json"
		write = func(l podworkers.Listing) error { return json.NewEncoder(w).Encode(l) }
	case "text":
		contentType = "text/plain; charset=utf-8"
		write = func(l podworkers.Listing) error { return writeTable(w, l) }
	default:
		http.Error(w, fmt.Sprintf("format: %q: allowed are json and text", format), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if err := write(d.views.Views()); err != nil {
		klog.FromContext(r.Context()).V(4).Info("Pod workers were not shown, the client has gone", "err", err)
	}
}

// wantedFormat is what the parameter says, else what the client prefers, else JSON.
func wantedFormat(r *http.Request) string {
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

// mayReadPods asks whether the sender of r may read this node's pods, and answers 200 or the status and words that
// stock's filter gives on /pods: the right to nodes/pods is enough with fine-grained authorization (KEP-2862), else it
// is nodes/proxy.
func mayReadPods(ctx context.Context, auth stockserver.AuthInterface, r *http.Request) (status int, why string) {
	logger := klog.FromContext(ctx)
	who, known, err := auth.AuthenticateRequest(r)
	if err != nil {
		logger.Error(err, "Unable to authenticate the request due to an error")
	}
	if err != nil || !known {
		return http.StatusUnauthorized, "Unauthorized"
	}
	attributes := auth.GetRequestAttributes(ctx, who.User, asPodsRequest(r))
	var subresources []string
	for _, a := range attributes {
		subresources = append(subresources, a.GetSubresource())
		decision, _, err := auth.Authorize(ctx, a)
		if err != nil {
			why := fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=%s, subresource=%s)",
				a.GetUser().GetName(), a.GetVerb(), a.GetResource(), a.GetSubresource())
			logger.Error(err, why)
			return http.StatusInternalServerError, why
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

// asPodsRequest is the request as it would be for /pods, for the attributes alone.
func asPodsRequest(r *http.Request) *http.Request {
	as, url := *r, *r.URL
	url.Path = "/pods"
	as.URL = &url
	return &as
}
