package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes/fake"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	clocktesting "k8s.io/utils/clock/testing"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog/simulate"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/server"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// hostile is a name of a pod that no API server accepts; texts of plugins may be like it.
const hostile = "\x1b[2J\u202e<b>"

// decided returns the log of a node on which a leak was evicted, for a hard threshold of 4Gi.
func decided(t testing.TB) *decisionlog.Log {
	t.Helper()
	lines, err := simulate.Scenario("leak")
	if err != nil {
		t.Fatal(err)
	}
	now := clocktesting.NewFakePassiveClock(lines[0].Input.Snapshot.WallTime)
	log := decisionlog.New(decisionlog.Config{Node: "n1", Clock: now, LimitBytes: 8 << 20})
	rules := *lines[0].Input.Rules
	rules.Thresholds = []policy.Threshold{{Signal: snapshot.MemoryAvailable,
		Value: evictionapi.ThresholdValue{Quantity: new(resource.MustParse("4Gi"))}}}
	state := policy.State{}
	for i := range lines {
		s := lines[i].Input.Snapshot
		now.SetTime(s.WallTime)
		all := log.Recorded(s)
		r := &eviction.Round{Trigger: eviction.TriggerTimer, Snapshot: s, Rules: &rules, State: new(state),
			AllPods: all || !policy.Calm(s, &rules)}
		r.Decision, state = policy.Decide(s, &rules, state)
		if log.NeedsRound(r) {
			log.Round(t.Context(), r)
		}
		for j := range r.Decision.Victims {
			result := eviction.Result{Decision: r.Decision.Number, At: s.Taken, Evicted: true,
				Victim: &r.Decision.Victims[j], Answer: podkill.Begun, Kind: eviction.KillAccepted}
			log.Result(t.Context(), new(result))
			result.Kind = eviction.PodStopped
			log.Result(t.Context(), new(result))
			result.Kind, result.Released = eviction.PodReleased, snapshot.Release{Memory: 1 << 30}
			log.Result(t.Context(), new(result))
		}
		if len(r.Decision.Victims) > 0 {
			break
		}
	}
	log.Admission(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "scenario", Name: "late", UID: "l"}},
		decisionlog.Rejected, "Evicted", "The node had condition: [MemoryPressure]. "+hostile)
	return log
}

// httpAsker asks HTTP servers, by the name of the node.
type httpAsker map[string]string

func (a httpAsker) open(
	ctx context.Context, n *nodeInfo, page string, parameters map[string]string,
) (io.ReadCloser, error) {
	base, ok := a[n.Name]
	if !ok {
		return nil, errNoPage
	}
	query := url.Values{}
	for name, value := range parameters {
		query.Set(name, value)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/debug/pressure/"+page+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("%s", response.Status)
	}
	return response.Body, nil
}

// pages serves the pages of a log as a node does, to everybody.
func pages(log server.PressureLog) http.Handler {
	mux := http.NewServeMux()
	for _, p := range server.DebugPages(server.DebugSources{Pressure: log}) {
		if strings.HasPrefix(p.Path, "/debug/pressure/") {
			mux.Handle("GET "+p.Path, p.Handler)
		}
	}
	return mux
}

func node(name string, conditions ...v1.NodeConditionType) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, c := range conditions {
		n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: c, Status: v1.ConditionTrue})
	}
	return n
}

// world is a cluster with a node of ours and a stock node.
type world struct {
	cluster *cluster
	asker   httpAsker
	log     *decisionlog.Log
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{log: decided(t)}
	ours := httptest.NewServer(pages(w.log))
	t.Cleanup(ours.Close)
	w.asker = httpAsker{"n1": ours.URL}
	client := fake.NewClientset(node("n1", v1.NodeReady, v1.NodeMemoryPressure), node("stock", v1.NodeDiskPressure),
		&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "scenario", Name: "pod-01"}, Spec: v1.PodSpec{NodeName: "n1"}})
	w.cluster = &cluster{Interface: client, ask: w.asker}
	return w
}

// run runs a command. It returns its output, its messages and its exit code.
func (w *world) run(t *testing.T, args ...string) (out, messages string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	o := &options{
		Streams: Streams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr},
		config:  genericclioptions.NewConfigFlags(false),
		connect: func(*options) (*cluster, error) { return w.cluster, nil },
	}
	c := o.command()
	if args[0] != "__complete" {
		args = append(args, "--namespace", "scenario")
	}
	c.SetArgs(args)
	code = exitCode(c.ExecuteContext(t.Context()), &stderr)
	return stdout.String(), stderr.String(), code
}

func expect(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
	if strings.ContainsAny(text, "\x1b\u202e") {
		t.Errorf("a text can change the terminal:\n%q", text)
	}
}

// listed returns all decisions of a log.
func listed(log *decisionlog.Log) (list debugv1alpha1.PressureDecisionList, err error) {
	var text bytes.Buffer
	if err := log.WriteDecisions(&text, &decisionlog.Query{}); err != nil {
		return list, err
	}
	err = json.Unmarshal(text.Bytes(), &list)
	return list, err
}
