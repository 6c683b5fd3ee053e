package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"pgregory.net/rapid"
)

const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// choice is one setting in all its forms; empty ones do not exist.
type choice struct {
	flags []string
	yaml  []string
}

var choices = []choice{
	{[]string{"--max-pods=7", "--max-pods=0"}, []string{"maxPods: 11", "maxPods: 0"}},
	{
		[]string{"--cluster-dns=10.0.0.1", "--cluster-dns=10.0.0.1,10.0.0.2"},
		[]string{"clusterDNS: [10.9.9.9]", "clusterDNS: []"},
	},
	{
		[]string{"--eviction-hard=memory.available<7Mi", "--eviction-hard="},
		[]string{
			"evictionHard: {memory.available: 9Mi}", "evictionHard: {}",
			"evictionHard: {nodefs.available: 3%}\nmergeDefaultEvictionSettings: true",
		},
	},
	{
		[]string{"--eviction-soft=memory.available<1Gi", ""},
		[]string{"evictionSoft: {nodefs.available: 20%}\nevictionSoftGracePeriod: {nodefs.available: 1m}"},
	},
	{[]string{"--kube-reserved=cpu=100m", "--kube-reserved=cpu=1,memory=1Gi"}, []string{"kubeReserved: {memory: 5Mi}"}},
	{
		[]string{"--anonymous-auth=false", "--anonymous-auth"},
		[]string{
			"authentication: {anonymous: {enabled: true}}",
			"authentication: {anonymous: {enabled: false}, webhook: {enabled: false}}",
		},
	},
	{
		[]string{"--authorization-mode=Webhook", "--authorization-mode=AlwaysAllow"},
		[]string{"authorization: {mode: AlwaysAllow}"},
	},
	{[]string{"--read-only-port=10255", "--read-only-port=0"}, []string{"readOnlyPort: 1234"}},
	{
		[]string{"--register-with-taints=a=b:NoSchedule", "--register-with-taints=c=d:NoExecute,e=f:NoSchedule"},
		[]string{"registerWithTaints: [{key: x, effect: NoExecute}]"},
	},
	{
		[]string{"--feature-gates=EventedPLEG=true", "--feature-gates=EventedPLEG=false,PodsAPI=true"},
		[]string{"featureGates: {EventedPLEG: true}", "featureGates: {PodsAPI: false, CRIListStreaming: true}"},
	},
	{
		[]string{"--node-status-update-frequency=3s"},
		[]string{"nodeStatusUpdateFrequency: 7s", "nodeStatusUpdateFrequency: 0s"},
	},
	{[]string{"--tls-cert-file=/a/b"}, []string{"tlsCertFile: relative/cert", "tlsCertFile: /abs/cert"}},
	{[]string{"--pod-manifest-path=/x"}, []string{"staticPodPath: manifests"}},
	{
		[]string{"--v=4", "-v=2", "--vmodule=a=1"},
		[]string{"logging: {verbosity: 3}", "logging: {vmodule: [{filePattern: b, verbosity: 2}]}"},
	},
	{[]string{"--reserved-memory=0:memory=1Gi"}, []string{"reservedMemory: [{numaNode: 0, limits: {memory: 2Gi}}]"}},
	{[]string{"--housekeeping-interval=5s", "--hostname-override=n", "--node-labels=a=b"}, nil},
	{
		[]string{"--enforce-node-allocatable=none", "--enforce-node-allocatable=pods,kube-reserved"},
		[]string{"enforceNodeAllocatable: [pods]", "enforceNodeAllocatable: [none]"},
	},
	{
		nil, []string{
			"crashLoopBackOff: {maxContainerRestartPeriod: 10s}", "shutdownGracePeriod: 30s",
			"memorySwap: {swapBehavior: NoSwap}",
		},
	},
}

// scenario is a directory with files, and a command line.
type scenario struct {
	file    string
	dropIns map[string]string
	args    []string
}

func (s scenario) write(t testing.TB, dir string) []string {
	t.Helper()
	args := s.args
	if s.file != "" {
		writeFile(t, filepath.Join(dir, "config.yaml"), s.file)
		args = append(args, "--config="+filepath.Join(dir, "config.yaml"))
	}
	if s.dropIns != nil {
		dropIns := filepath.Join(dir, "config.d")
		if err := os.MkdirAll(dropIns, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, content := range s.dropIns {
			writeFile(t, filepath.Join(dropIns, name), content)
		}
		args = append(args, "--config-dir="+dropIns)
	}
	return args
}

func writeFile(t testing.TB, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Random files, drop-ins and flags: the merged settings equal stock's.
func TestSettingsEqualStock(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawScenario(rt)
		dir, err := os.MkdirTemp(t.TempDir(), "case")
		if err != nil {
			rt.Fatal(err)
		}
		args := s.write(t, dir)
		compareWithStock(t, rt, args)
	})
}

func drawScenario(rt *rapid.T) scenario {
	var s scenario
	if rapid.Bool().Draw(rt, "file") {
		s.file = drawYAML(rt, "file")
	}
	if rapid.Bool().Draw(rt, "dir") {
		s.dropIns = map[string]string{"README": "not read"}
		for i := range rapid.IntRange(0, 3).Draw(rt, "files") {
			s.dropIns[fmt.Sprintf("%d/%02d.conf", i%2, 10-i)] = drawYAML(rt, "drop-in")
		}
	}
	for _, c := range choices {
		if len(c.flags) > 0 && rapid.IntRange(0, 2).Draw(rt, "flag") == 0 {
			if flag := rapid.SampledFrom(c.flags).Draw(rt, "value"); flag != "" {
				s.args = append(s.args, flag)
			}
		}
	}
	return s
}

func drawYAML(rt *rapid.T, label string) string {
	var b strings.Builder
	b.WriteString(header)
	for _, c := range choices {
		if len(c.yaml) > 0 && rapid.IntRange(0, 2).Draw(rt, label) == 0 {
			b.WriteString(rapid.SampledFrom(c.yaml).Draw(rt, "yaml") + "\n")
		}
	}
	return b.String()
}

func compareWithStock(t *testing.T, rt rapid.TB, args []string) {
	rt.Helper()
	keep := gatesOfProcess(t)
	line, err := parseCommandLine(args)
	if err != nil {
		rt.Fatal(err)
	}
	ours, err := line.settings(t.Context(), utilfeature.DefaultMutableFeatureGate)
	if err != nil {
		rt.Fatal(err)
	}
	keep()
	config, flags, err := stockSettings(t.Context(), args)
	if err != nil {
		rt.Fatal(err)
	}
	keep()
	if diff := cmp.Diff(config, ours.Config); diff != "" {
		rt.Errorf("configuration (-stock +ours):\n%s", diff)
	}
	if diff := cmp.Diff(flags, ours.Flags); diff != "" {
		rt.Errorf("flags (-stock +ours):\n%s", diff)
	}
}
