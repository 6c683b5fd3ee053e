package nodestatus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodestatus/taints"
)

var errLost = errors.New("connection lost")

// taintServer is an API server with one Node, its lister, and the kubeconfig files of a TaintWriter.
type taintServer struct {
	mu      sync.Mutex
	node    *v1.Node
	listed  *v1.Node
	lagging bool
	version int
	// reads and patches count requests; writes are the patches that were carried out.
	reads, patches, writes int
	// failures are the errors of the next requests, nil for none. Of those in lost the patch is carried out nevertheless.
	failures []error
	lost     bool
	// onPatch is called before a patch is carried out.
	onPatch func()
	// broken is the error of the kubeconfig file, whose version is the number of its changes.
	broken               error
	kubeconfig, seenFile int
	path, seenPath       string
}

func newTaintServer(list ...v1.Taint) *taintServer {
	s := &taintServer{path: "/kubeconfig", version: 100}
	s.create("uid-1", list...)
	return s
}

// create replaces the Node by another one.
func (s *taintServer) create(uid types.UID, list ...v1.Taint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storeLocked(&v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: testNode, UID: uid}, Spec: v1.NodeSpec{Taints: list, PodCIDR: "10.0.0.0/24"},
	})
}

func (s *taintServer) storeLocked(node *v1.Node) {
	s.version++
	node.ResourceVersion = strconv.Itoa(s.version)
	s.node = node
	if !s.lagging {
		s.listed = node
	}
}

// set is a write by somebody else.
func (s *taintServer) set(list ...v1.Taint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	node := s.node.DeepCopy()
	node.Spec.Taints = list
	s.storeLocked(node)
}

func (s *taintServer) change(f func(*taintServer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

// Get implements NodeLister.
func (s *taintServer) Get(string) (*v1.Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listed == nil {
		return nil, apierrors.NewNotFound(v1.Resource("nodes"), testNode)
	}
	return s.listed, nil
}

func (s *taintServer) client(path string) (taintAPI, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seenFile, s.seenPath = s.kubeconfig, path
	if path == "" {
		return nil, errNoKubeconfig
	}
	return s, s.broken
}

func (s *taintServer) differ(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seenFile != s.kubeconfig || s.seenPath != path
}

func (s *taintServer) failureLocked() (err error) {
	if len(s.failures) > 0 {
		err, s.failures = s.failures[0], s.failures[1:]
	}
	return err
}

func (s *taintServer) read(context.Context) (*v1.Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if err := s.failureLocked(); err != nil {
		return nil, err
	}
	return s.node, nil
}

func (s *taintServer) patch(_ context.Context, body []byte) (*v1.Node, error) {
	s.mu.Lock()
	hook := s.onPatch
	s.mu.Unlock()
	if hook != nil {
		hook()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patches++
	err := s.failureLocked()
	if err != nil && !s.lost {
		return nil, err
	}
	patch := struct {
		Metadata struct {
			ResourceVersion string    `json:"resourceVersion"`
			UID             types.UID `json:"uid"`
		} `json:"metadata"`
		Spec struct {
			Taints []v1.Taint `json:"taints"`
		} `json:"spec"`
	}{}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields() // nothing but taints is changed
	if err := decoder.Decode(&patch); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if patch.Metadata.ResourceVersion != s.node.ResourceVersion || patch.Metadata.UID != s.node.UID {
		return nil, apierrors.NewConflict(v1.Resource("nodes"), testNode, errors.New("the object has been modified"))
	}
	node := s.node.DeepCopy()
	node.Spec.Taints = patch.Spec.Taints
	s.storeLocked(node)
	s.writes++
	return node, err
}

// now returns the taints of the Node without the prefix.
func (s *taintServer) now() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var words []string
	for i := range s.node.Spec.Taints {
		words = append(words, strings.TrimPrefix(s.node.Spec.Taints[i].ToString(), arbiter.ConditionPrefix))
	}
	return strings.Join(words, " ")
}

// requests returns the numbers of reads, of patches and of those that were carried out.
func (s *taintServer) requests() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.reads, s.patches, s.writes)
}

// taintRig is a TaintWriter with what it works on, in a bubble.
type taintRig struct {
	*TaintWriter
	t      *testing.T
	server *taintServer
	world  *world
	stop   func()

	mu         sync.Mutex
	conditions []taints.Condition
	known      bool
}

// withTaints runs f in a bubble with a writer that has not been started.
func withTaints(t *testing.T, s *taintServer, f func(r *taintRig)) {
	file := filepath.Join(t.TempDir(), "own", "taints.json")
	synctest.Test(t, func(t *testing.T) {
		r := &taintRig{t: t, server: s, world: newWorld(), known: true}
		r.create(file)
		defer func() {
			if r.stop != nil {
				r.stop()
			}
		}()
		f(r)
	})
}

func (r *taintRig) create(file string) {
	r.TaintWriter = NewTaintWriter(TaintWriterConfig{
		View: NewView(ViewConfig{Name: testNode, Lister: r.server, Client: fake.NewClientset()}), File: file,
		Kubeconfig: func() string {
			r.server.mu.Lock()
			defer r.server.mu.Unlock()
			return r.server.path
		},
		PluginTaints: func() ([]taints.Condition, bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return slices.Clone(r.conditions), r.known
		},
		Recorder: r.world,
	})
	r.clients = r.server
}

// run starts the writer, and returns when it compares at once after each call of Changed.
func (r *taintRig) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	r.stop = func() { cancel(); running.Wait(); r.stop = nil }
	r.pass(soon)
}

// pass lets time pass, and returns when all that is due has been done.
func (r *taintRig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// restart starts a new writer, as after a crash. The conditions are unknown for the time being.
func (r *taintRig) restart() {
	r.stop()
	r.conditions, r.known = nil, false
	r.create(r.config.File)
	r.run()
}

// report sets the conditions that are True, and calls Changed.
func (r *taintRig) report(list ...taints.Condition) {
	r.mu.Lock()
	r.conditions, r.known = list, true
	r.mu.Unlock()
	r.Changed()
	synctest.Wait()
}

func (r *taintRig) expect(what, got, want string) {
	r.t.Helper()
	if got != want {
		r.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// onDisk returns the taints of the record on disk without the prefix, "none" without a record.
func (r *taintRig) onDisk() string {
	r.t.Helper()
	record, err := r.file().Load()
	if err != nil {
		r.t.Fatal(err)
	}
	if record.NodeUID == "" {
		return "none"
	}
	var words []string
	for _, t := range record.Taints {
		words = append(words, strings.TrimPrefix(t.Key, arbiter.ConditionPrefix)+":"+string(t.Effect))
	}
	return strings.Join(words, " ")
}

func hot(effects ...v1.TaintEffect) taints.Condition {
	return taints.Condition{Name: "Hot", Effects: effects}
}

func restoredHot() taints.Condition {
	return taints.Condition{Name: "Hot", Effects: []v1.TaintEffect{v1.TaintEffectNoSchedule}, Restored: true}
}

func hotTaint(effect v1.TaintEffect) v1.Taint {
	return v1.Taint{Key: arbiter.ConditionPrefix + "Hot", Effect: effect}
}
