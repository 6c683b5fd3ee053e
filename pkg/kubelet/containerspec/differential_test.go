package containerspec_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/containerspec"
)

// outcome is every visible effect of one call.
type outcome struct {
	Options  *kubecontainer.RunContainerOptions
	Error    string
	Hosts    string
	Subpaths []string
	Made     []string
}

// TestSameAsStock compares both kubelets on random pods: options, error texts, hosts file, sub-path calls and
// directories are the same.
func TestSameAsStock(t *testing.T) { compareRandomPods(t) }

// TestSameAsStockWithoutFeatures compares with every relevant gate off. Some gates are locked; an older version is
// emulated.
func TestSameAsStockWithoutFeatures(t *testing.T) {
	gate := utilfeature.DefaultFeatureGate
	featuregatetesting.SetFeatureGateEmulationVersionDuringTest(t, gate, version.MustParse("1.32"))
	featuregatetesting.SetFeatureGateDuringTest(t, gate, features.RecursiveReadOnlyMounts, false)
	if got := containerspec.FeaturesFrom(gate); got != (containerspec.Features{}) {
		t.Fatalf("still on: %+v", got)
	}
	compareRandomPods(t)
}

// compareRandomPods compares with and without what makes containers fail, so that both are frequent.
func compareRandomPods(t *testing.T) {
	for name, faults := range map[string]bool{"anything": true, "mostly valid": false} {
		t.Run(name, func(t *testing.T) {
			var tried, started int
			rapid.Check(t, func(rt *rapid.T) {
				tried++
				if compareOnce(t, rt, faults) {
					started++
				}
			})
			t.Logf("%d of %d containers could be started", started, tried)
			if !faults && started*4 < tried {
				t.Errorf("only %d of %d containers could be started, too few for the comparison", started, tried)
			}
		})
	}
}

// compareOnce returns whether the container could be started.
func compareOnce(t *testing.T, rt *rapid.T, faults bool) bool {
	w := richWorld(t)
	w.nodeIPs = drawNodeIPs(rt)
	w.synced = !rarely(rt, "unsynced")
	pod, podIPs, images := drawPod(rt), drawPodIPs(rt), drawImages(rt)
	if !faults {
		w.synced = true
		makeStartable(pod)
	}

	stock := newOracle(t, w)
	want := w.observe(t, func() (*kubecontainer.RunContainerOptions, error) {
		return stock.options(pod.DeepCopy(), podIPs, images)
	})
	ours := w.helper(t)
	got := w.observe(t, func() (*kubecontainer.RunContainerOptions, error) {
		pod := pod.DeepCopy()
		opts, _, err := ours.GenerateRunContainerOptions(context.Background(), pod, &pod.Spec.Containers[0], first(podIPs),
			podIPs, images)
		return opts, err
	})
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmp.Comparer(sameImage)); diff != "" {
		rt.Fatalf("differs from stock (-stock +ours):\n%s", diff)
	}
	return want.Error == ""
}

// sameImage compares pointers, because images are passed through.
func sameImage(a, b *runtimeapi.ImageSpec) bool { return a == b }

// observe makes one call with a new pod directory and new volumes, and returns its outcome.
func (w *world) observe(t testing.TB, call func() (*kubecontainer.RunContainerOptions, error)) outcome {
	t.Helper()
	if err := os.RemoveAll(w.layout().Pod(podUID)); err != nil {
		t.Fatal(err)
	}
	w.makePodDir(t)
	w.subpaths.calls = nil
	opts, err := call()
	result := outcome{Options: opts}
	if err != nil {
		result.Error = err.Error()
	}
	// After an error ours cleans up itself; stock leaves that to a caller that does not do it.
	for _, line := range w.subpaths.calls {
		if !strings.HasPrefix(line, "clean up") {
			result.Subpaths = append(result.Subpaths, line)
		}
	}
	hosts, err := os.ReadFile(w.layout().EtcHosts(podUID))
	if err == nil {
		result.Hosts = string(hosts)
	}
	result.Made = takeNewDirs(t, w)
	normalize(opts)
	return result
}

// normalize removes what is not determined in stock: the order of variables, and the sub-path of an image in mounts
// that are not images.
func normalize(opts *kubecontainer.RunContainerOptions) {
	if opts == nil {
		return
	}
	slices.SortStableFunc(opts.Envs, func(a, b kubecontainer.EnvVar) int { return strings.Compare(a.Name, b.Name) })
	for i := range opts.Mounts {
		if opts.Mounts[i].Image == nil {
			opts.Mounts[i].ImageSubPath = ""
		}
	}
}

// takeNewDirs lists the directories that were created in volumes and the pod's directory, with their modes, and removes
// the former.
func takeNewDirs(t testing.TB, w *world) []string {
	t.Helper()
	var made []string
	for _, top := range []string{"volumes", "pods"} {
		err := filepath.WalkDir(filepath.Join(w.root, top), func(path string, entry os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			made = append(made, info.Mode().String()+" "+path)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	entries, _ := filepath.Glob(filepath.Join(w.root, "volumes", "*", "*"))
	for _, entry := range entries {
		switch filepath.Base(entry) {
		case "there", "env", "broken":
		default:
			if err := os.RemoveAll(entry); err != nil {
				t.Fatal(err)
			}
		}
	}
	return made
}

// TestSameHostnamesAsStock compares host name and domain over odd names.
func TestSameHostnamesAsStock(t *testing.T) {
	w := newWorld(t)
	stock, ours := newOracle(t, w), w.helper(t)
	label := rapid.StringMatching(`[a-z0-9A-Z.-]{0,70}`)
	rapid.Check(t, func(rt *rapid.T) {
		pod := basicPod()
		pod.Name = rapid.StringMatching(`[a-z0-9.-]{1,80}`).Draw(rt, "name")
		pod.Spec.Hostname = label.Draw(rt, "hostname")
		pod.Spec.Subdomain = label.Draw(rt, "subdomain")
		pod.Spec.HostnameOverride = maybe(rt, "override", label.Draw(rt, "overrideName"))
		want := hostnameOf(stock.kubelet, pod)
		if got := hostnameOf(ours, pod); got != want {
			rt.Fatalf("got %+v, stock %+v", got, want)
		}
	})
}

type hostname struct{ name, domain, err string }

func hostnameOf(helper hostnameGenerator, pod *v1.Pod) hostname {
	name, domain, err := helper.GeneratePodHostNameAndDomain(testLogger, pod)
	result := hostname{name: name, domain: domain}
	if err != nil {
		result.err = err.Error()
	}
	return result
}
