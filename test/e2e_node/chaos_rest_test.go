//go:build e2e

package e2enode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubetypes "k8s.io/kubelet/pkg/types"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/e2e_node/chaos"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

// progressInterval is the time between two log lines about what the test waits for.
const progressInterval = 20 * time.Second

// rest waits until check returns nil, and records its last error if it never does.
func (r *chaosRun) rest(what string, check func(context.Context) error) {
	began := time.Now()
	logged := began
	err := kit.Poll(r.s.ctx, restTimeout, func(ctx context.Context) error {
		r.supervise()
		err := check(ctx)
		if err != nil && time.Since(logged) > progressInterval {
			logged = time.Now()
			r.s.t.Logf("%9v not yet: %v", r.since(), err)
		}
		return err
	})
	if err != nil {
		r.problem("%s: %v", what, err)
		return
	}
	r.s.t.Logf("%9v %s, after %v", r.since(), what, time.Since(began).Round(100*time.Millisecond))
}

// settled is nil if every pod is as requested and nothing else is left on the node.
func (r *chaosRun) settled(ctx context.Context) error {
	list, err := r.pods().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	byName := map[string]*v1.Pod{}
	wanted := chaos.Wanted{Active: map[string]bool{}, Known: map[string]bool{}, Runs: map[string]string{}}
	for i := range list.Items {
		pod := &list.Items[i]
		byName[pod.Name] = pod
		uid := string(uidOf(pod))
		wanted.Known[uid] = true
		wanted.Active[uid] = pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed
	}
	var errs []error
	outages := chaos.Widened(r.ledger.Outages(), chaos.OutageMargin*cluster.TimeFactor())
	for _, asked := range r.ledger.Expected() {
		errs = append(errs, plain(chaos.Judge(asked, byName[asked.Name], outages)))
		if !asked.Deleted && !asked.Filled && wanted.Active[asked.UID] {
			wanted.Runs[asked.UID] = asked.Shape.Runs()
		}
	}
	for _, manifest := range r.ledger.Manifests() {
		mirror := byName[mirrorName(manifest.Name)]
		errs = append(errs, plain(chaos.JudgeStatic(manifest, mirror)))
		if manifest.Present && mirror != nil {
			wanted.Runs[string(uidOf(mirror))] = chaos.MainContainer
		}
	}
	found, err := r.found(ctx)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, wrong := range append(chaos.Leftovers(found, wanted), chaos.Missing(found, wanted)...) {
		errs = append(errs, errors.New(wrong))
	}
	return errors.Join(errs...)
}

// plain returns the error without the mark of kit.Hopeless, so that it can be joined with those of other pods.
func plain(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(err.Error())
}

// found lists everything that pods have on the node.
func (r *chaosRun) found(ctx context.Context) (chaos.Found, error) {
	var found chaos.Found
	var errs [5]error
	found.Running, found.Strays, errs[0] = running(ctx)
	found.Cgroups, errs[1] = cgroups()
	found.Mounts, errs[2] = mounts()
	found.Folders, errs[3] = folders()
	found.Workers, errs[4] = workers(ctx)
	return found, errors.Join(errs[:]...)
}

// running lists what runs according to the CRI, and the tasks of containerd that the CRI does not know.
func running(ctx context.Context) (byPod map[string][]string, strays []string, err error) {
	runtime, err := node.Runtime(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer runtime.Close(ctx)
	strays, err = node.RunningTasks(ctx)
	if err != nil {
		return nil, nil, err
	}
	containers, err := runtime.ListContainers(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	sandboxes, err := runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	byPod = map[string][]string{}
	var known []string
	for _, container := range containers {
		known = append(known, container.Id)
		if container.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			uid := container.Labels[kubetypes.KubernetesPodUIDLabel]
			byPod[uid] = append(byPod[uid], container.Labels[kubetypes.KubernetesContainerNameLabel]+" "+container.Id)
		}
	}
	for _, sandbox := range sandboxes {
		known = append(known, sandbox.Id)
		if uid := sandbox.Labels[kubetypes.KubernetesPodUIDLabel]; sandbox.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			byPod[uid] = append(byPod[uid], "sandbox "+sandbox.Id)
		}
	}
	strays = slices.DeleteFunc(strays, func(id string) bool { return slices.Contains(known, id) })
	return byPod, strays, nil
}

func cgroups() (map[string][]string, error) {
	groups, err := node.PodCgroups()
	if err != nil {
		return nil, err
	}
	byPod := map[string][]string{}
	for name, dirs := range groups {
		byPod[chaos.UIDOfCgroup(name)] = dirs
	}
	return byPod, nil
}

func mounts() (map[string][]string, error) {
	points, err := node.KubeletMounts()
	if err != nil {
		return nil, err
	}
	byPod := map[string][]string{}
	for _, point := range points {
		// The root directory itself is a mount that belongs to no pod.
		if uid := chaos.UIDOfPath(node.Layout().KubeletRoot(), point); uid != "" {
			byPod[uid] = append(byPod[uid], point)
		}
	}
	return byPod, nil
}

func folders() (map[string][]string, error) {
	dirs, err := filepath.Glob(filepath.Join(node.Layout().KubeletRoot(), "pods", "*"))
	if err != nil {
		return nil, err
	}
	byPod := map[string][]string{}
	for _, dir := range dirs {
		if _, err := os.Lstat(dir); err == nil {
			byPod[filepath.Base(dir)] = []string{dir}
		}
	}
	return byPod, nil
}

// workers lists the pod workers of the kubelet.
func workers(ctx context.Context) (map[string][]string, error) {
	code, body, err := node.KubeletGet(ctx, "/debug/pods", true)
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK {
		return nil, fmt.Errorf("get the pod workers: code %d: %.200s", code, body)
	}
	var listing struct {
		Workers []struct{ Namespace, Name, UID, Phase, WaitsFor string }
		Omitted int
	}
	if err := json.Unmarshal(body, &listing); err != nil {
		return nil, fmt.Errorf("decode pod workers: %w", err)
	}
	if listing.Omitted > 0 {
		return nil, fmt.Errorf("the kubelet omits %d pod workers", listing.Omitted)
	}
	byPod := map[string][]string{}
	for _, w := range listing.Workers {
		text := fmt.Sprintf("%s/%s %s, waits for %q", w.Namespace, w.Name, w.Phase, w.WaitsFor)
		byPod[w.UID] = append(byPod[w.UID], text)
	}
	return byPod, nil
}
