package parity

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"
	"time"
	"unsafe"

	"github.com/emicklei/go-restful/v3"
	oteltrace "go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apiserver/pkg/server/healthz"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	stockserver "k8s.io/kubernetes/pkg/kubelet/server"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/server"
)

// gatesOfEndpoints enable every endpoint.
var gatesOfEndpoints = map[string]bool{
	"ComponentFlagz": true, "ComponentStatusz": true, "ContainerCheckpoint": true, "NodeLogQuery": true,
}

func endpointSection(ctx context.Context, t *tree) (*section, error) {
	s := newSection("Endpoints",
		"Every path and method of stock's HTTP handlers, with every gate and switch of endpoints on. Each is asked of "+
			"both programs' handlers over the same fake node, and the status codes are compared. The gRPC services are those "+
			"that are registered on the local sockets.")
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(gatesOfEndpoints); err != nil {
		return nil, fmt.Errorf("feature gates of endpoints: %w", err)
	}
	if err := s.compareHTTP(ctx, nil); err != nil {
		return nil, err
	}
	return s, s.compareServices(t)
}

// port is one HTTP port: what stock serves there, and the address at which our program does.
type port struct {
	name    string
	handler http.Handler
	address string
	routes  []string
}

// compareHTTP compares the handlers; change is applied to our configuration.
func (s *section) compareHTTP(ctx context.Context, change func(*kubeletconfig.KubeletConfiguration)) error {
	config, err := serverConfig()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	ports := stockPorts(ctx, config)
	config = config.DeepCopy()
	if change != nil {
		change(config)
	}
	go func() {
		served <- server.NewServers(server.Config{
			Kubelet: config, Host: fakeHost{}, Analyzer: fakeAnalyzer{}, Flagz: fakeFlags{}, Auth: allowAll{},
			Debug:  fakeDebugSources(),
			Tracer: oteltrace.NewTracerProvider(),
		}).Run(ctx)
	}()
	defer func() {
		stop()
		<-served //nolint:errcheck // they were stopped
	}()
	for _, p := range ports {
		if err := waitFor(ctx, p.address); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if err := s.comparePort(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if err := s.addDebugPages(ctx, ports[0]); err != nil {
		return fmt.Errorf("pages below /debug: %w", err)
	}
	return nil
}

// debugPages are the paths below /debug that only we serve, each with the page that describes it.
var debugPages = map[string]string{
	"/debug/pods":                    "the pod workers, see [pod-lifecycle.md](pod-lifecycle.md)",
	"/debug/plugins":                 "eviction plugins, see [operations.md](operations.md#eviction-plugins)",
	"/debug/pressure/status":         "how far the node is from its thresholds, see [decisions.md](decisions.md)",
	"/debug/pressure/decisions":      "decisions about pressure, see [decisions.md](decisions.md)",
	"/debug/pressure/decisions/{id}": "one of them, see [decisions.md](decisions.md)",
	"/debug/pressure/watch":          "the same as they are made, see [decisions.md](decisions.md)",
}

// addDebugPages requests our own pages below /debug. Stock must not have them.
func (s *section) addDebugPages(ctx context.Context, p port) error {
	stock := httptest.NewServer(p.handler)
	defer stock.Close()
	for _, page := range server.DebugPages(fakeDebugSources()) {
		path := strings.ReplaceAll(page.Path, "{id}", "1")
		if status, found, err := ask(ctx, "GET", stock.URL+path); err != nil || found {
			return fmt.Errorf("%s is said to be our own, and stock answers %s %w", page.Path, status, err)
		}
		status, found, err := ask(ctx, "GET", "http://"+p.address+path)
		if err != nil {
			return fmt.Errorf("our own %s: %w", page.Path, err)
		}
		name := p.name + ": GET " + page.Path
		s.ours.add(name, p.name)
		if why, described := debugPages[page.Path]; described {
			s.own[name] = why
		}
		if !found || status != "200" {
			s.differs[name] = "it is ours alone, and we answer " + status
		}
	}
	return nil
}

func stockPorts(ctx context.Context, config *kubeletconfig.KubeletConfiguration) []port {
	secure := stockserver.NewServer(ctx, fakeHost{}, fakeAnalyzer{}, nil, fakeFlags{}, allowAll{}, config)
	readOnly := stockserver.NewServer(ctx, fakeHost{}, fakeAnalyzer{}, nil, nil, nil, nil)
	health := http.NewServeMux() // as stock's command makes it, in the middle of a long function
	healthz.InstallHandler(health)
	at := func(p int32) string { return fmt.Sprintf("127.0.0.1:%d", p) }
	return []port{
		{"kubelet API", &secure, at(config.Port), routes(&secure)},
		{"read-only port", &readOnly, at(config.ReadOnlyPort), routes(&readOnly)},
		{"health port", health, at(config.HealthzPort), []string{"GET /healthz", "GET /healthz/ping"}},
	}
}

// routes returns the routes of stock's handler, which does not export its container.
func routes(s *stockserver.Server) []string {
	field := reflect.ValueOf(s).Elem().FieldByName("restfulCont")
	container := reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Interface().(interface {
		RegisteredWebServices() []*restful.WebService
		RegisteredHandlePaths() []string
	})
	var all []string
	for _, service := range container.RegisteredWebServices() {
		for _, route := range service.Routes() {
			all = append(all, route.Method+" "+route.Path)
		}
	}
	for _, path := range container.RegisteredHandlePaths() {
		all = append(all, "GET "+path)
	}
	return all
}

var variable = regexp.MustCompile(`\{(\w+)(:\*)?\}`)

func (s *section) comparePort(ctx context.Context, p port) error {
	stock := httptest.NewServer(p.handler)
	defer stock.Close()
	// Neither serves this path; otherwise the comparison would be meaningless.
	for _, url := range []string{stock.URL, "http://" + p.address} {
		if status, found, err := ask(ctx, "GET", url+"/no-such-path"); err != nil || found {
			return fmt.Errorf("a path that does not exist is answered: %s %w", status, err)
		}
	}
	for _, route := range p.routes {
		name := p.name + ": " + route
		method, path, _ := strings.Cut(route, " ")
		path = variable.ReplaceAllString(path, "x")
		path = strings.Replace(path, "/pprof/x", "/pprof/cmdline", 1)
		theirs, found, err := ask(ctx, method, stock.URL+path)
		if err != nil {
			return fmt.Errorf("stock's %s: %w", name, err)
		}
		if !found {
			return fmt.Errorf("stock's own %s is not found: %s", name, theirs)
		}
		s.stock.add(name, p.name)
		ours, found, err := ask(ctx, method, "http://"+p.address+path)
		if err != nil {
			return fmt.Errorf("our %s: %w", name, err)
		}
		if found {
			s.ours.add(name, p.name)
		}
		if found && ours != theirs {
			s.differs[name] = fmt.Sprintf("stock answers %s, we answer %s", theirs, ours)
		}
		s.details[name] = theirs
	}
	return nil
}

// ask returns the status of a response, and whether a handler sent it: a handler that does not find an object returns
// another text than a multiplexer without a handler.
func ask(ctx context.Context, method, url string) (status string, found bool, err error) {
	if !strings.Contains(url, "/debug/") {
		url += "?output=1" // an exec needs a stream
	}
	request, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return "", false, err
	}
	client := &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       time.Minute, Transport: &http.Transport{DisableKeepAlives: true},
	}
	response, err := client.Do(request)
	if err != nil {
		return "", false, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 200))
	if err != nil {
		return "", false, err
	}
	said := strings.ToLower(string(body))
	missing := response.StatusCode == http.StatusNotFound && strings.Contains(said, "page not found") ||
		response.StatusCode == http.StatusMethodNotAllowed && strings.Contains(said, "method not allowed")
	return fmt.Sprint(response.StatusCode), !missing, nil
}

func serverConfig() (*kubeletconfig.KubeletConfiguration, error) {
	config := &kubeletconfig.KubeletConfiguration{
		EnableServer: true, Address: "127.0.0.1", HealthzBindAddress: "127.0.0.1",
		EnableDebuggingHandlers: true, EnableSystemLogHandler: true, EnableSystemLogQuery: true,
		EnableProfilingHandler: true, EnableDebugFlagsHandler: true,
	}
	for _, port := range []*int32{&config.Port, &config.ReadOnlyPort, &config.HealthzPort} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer listener.Close()
		*port = int32(listener.Addr().(*net.TCPAddr).Port)
	}
	return config, nil
}

// waitFor dials until a connection is accepted.
func waitFor(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			return connection.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nobody listens on %s: %w", address, err)
		case <-tick.C:
		}
	}
}
