package pressureconfig

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	example = "../../../config/pressure.yaml"
	schema  = "../../../config/pressure.schema.json"
	// rootDirectory is the root directory of the agent.
	rootDirectory = "/var/lib/kubelet"

	header = "apiVersion: nodepressure.plimsoll.dev/v1alpha1\nkind: NodePressureConfiguration\n"
)

// withAPI is an agent with an API server, standalone one without.
var (
	withAPI    = v1alpha1.Kubelet{RootDirectory: rootDirectory, Kubeconfig: "/etc/kubernetes/kubelet.conf"}
	standalone = v1alpha1.Kubelet{RootDirectory: rootDirectory}
)

// invalidFiles are invalid texts after the header, and parts of the error. The schema also rejects those with bySchema;
// a schema cannot express the rules that the others break.
var invalidFiles = []struct {
	text     string
	bySchema bool
	says     []string
}{
	{"monitorPeriod: 5s\n", true, []string{"monitorPeriod", "line 3", "no such field"}},
	{"protection:\n  namespace: [a]\n", true, []string{"protection.namespace", "line 4", "no such field"}},
	{"dryRun:\n- signal: pid.available\n  sort: Hard\n", true, []string{"dryRun[0].sort", "line 5"}},
	{
		"eviction:\n  killTime: 3s\n  patience: 1m\n  killTime: 4s\n", false,
		[]string{"eviction.killTime", "line 6", "twice"},
	},
	{"kind: NodePressureConfiguration\n", false, []string{"kind", "line 3", "twice"}},
	{"monitoringPeriod: 10\n", true, []string{"monitoringPeriod", `"10"`, "line 3", `a duration like "10s"`}},
	{"monitoringPeriod: ten\n", true, []string{"monitoringPeriod", `"ten"`}},
	{"monitoringPeriod: 1h\n", false, []string{"monitoringPeriod", `"1h0m0s"`, "must be from 1s to 5m0s"}},
	{"memory: {countSwap: maybe}\n", true, []string{"memory.countSwap", `"maybe"`, "true or false"}},
	{"memory: {worstGrowthPerSecond: fast}\n", true, []string{"memory.worstGrowthPerSecond", `"fast"`, "a quantity"}},
	{"memory: {worstGrowthPerSecond: 1Mi}\n", false, []string{"memory.worstGrowthPerSecond", `"1Mi"`, "16Mi to 1Ti"}},
	{"memory: {available: Free}\n", true, []string{"memory.available", `"Free"`, `"WorkingSet"`}},
	{"memory: [a]\n", true, []string{"memory", `"[...]"`, "an object"}},
	{"protection: {maxProtectedPods: 1.5}\n", true, []string{"protection.maxProtectedPods", `"1.5"`, "a whole number"}},
	{"protection: {maxProtectedPods: 99999999999}\n", true, []string{"protection.maxProtectedPods", "a whole number"}},
	{"protection: {maxProtectedPods: {}}\n", true, []string{"protection.maxProtectedPods", `"{...}"`, "a whole number"}},
	{"protection: {namespaces: all}\n", true, []string{"protection.namespaces", `"all"`, "a list"}},
	{"protection: {namespaces: [a, [b]]}\n", true, []string{"protection.namespaces[1]", "a string"}},
	{"dryRun: [memory.available]\n", true, []string{"dryRun[0]", "an object"}},
	{"dryRun:\n- {kind: Hard}\n", true, []string{"dryRun[0].signal", "Required"}},
	{"plugins: {eviction: {remotes: [a]}}\n", true, []string{"plugins.eviction.remotes", "line 3", "no such field"}},
	{"plugins: {eviction: {forcedKiller: Worker}}\n", true, []string{"forcedKiller", `"Worker"`, `"PodWorker", "Ev`}},
	{"plugins: {eviction: {forcedKiller: [PodWorker]}}\n", true, []string{"forcedKiller", `"[...]"`, "a string"}},
	{"plugins: {eviction: {softKiller: Pod}}\n", true, []string{"softKiller", `"Pod"`, `"EvictionAPI", "DeleteAPI"`}},
	{"plugins: {eviction: {killerByQoSLevel: [a]}}\n", true, []string{"killerByQoSLevel", `"[...]"`, "an object"}},
	{"plugins: {eviction: {killerByQoSLevel: {a: b}}}\n", true, []string{"killerByQoSLevel[a]", `"b"`, `"DeleteAPI"`}},
	{"plugins: {eviction: {killerByQoSLevel: {a: }}}\n", true, []string{"killerByQoSLevel[a]", `""`, `"DeleteAPI"`}},
	{"plugins: {eviction: {killerByQoSLevel: {a: {}}}}\n", true, []string{"killerByQoSLevel[a]", `"{...}"`, "a string"}},
	{
		"plugins:\n  eviction:\n    killerByQoSLevel:\n      a: PodWorker\n      a: DeleteAPI\n", false,
		[]string{"killerByQoSLevel[a]", "line 7", "twice"},
	},
	{
		"plugins: {eviction: {killerByQoSLevel: {\"\": PodWorker}}}\n", false,
		[]string{"killerByQoSLevel[]", `""`, "at most 63 letters"},
	},
	{
		"plugins: {eviction: {killerByQoSLevel: {system_cores: PodWorker}}}\n", false,
		[]string{"killerByQoSLevel[system_cores]", "must be another level"},
	},
	{"plugins: {eviction: {taints: {effect: []}}}\n", true, []string{"taints.effect", "no such field"}},
	{"plugins: {eviction: {taints: {effects: Any}}}\n", true, []string{"taints.effects", `"Any"`, "a list"}},
	{"plugins: {eviction: {taints: {effects: [Any]}}}\n", true, []string{"effects[0]", `"Any"`, `"NoExecute"`}},
	{
		"plugins: {eviction: {taints: {effects: [NoExecute, NoExecute]}}}\n", false,
		[]string{"plugins.eviction.taints.effects[1]", "Duplicate", "NoExecute"},
	},
	{"plugins: {eviction: {taints: {kubeconfig: a}}}\n", false, []string{"taints.kubeconfig", `"a"`, "absolute path"}},
	{
		"plugins: {eviction: {taints: {kubeconfig: /etc/kubernetes/kubelet.conf}}}\n", false,
		[]string{"taints.kubeconfig", `"/etc/kubernetes/kubelet.conf"`, "that of another identity"},
	},
	{"plugins: {eviction: {softNoticeDirectory: a}}\n", false, []string{"softNoticeDirectory", `"a"`, "absolute path"}},
	{"plugins: {eviction: {softNoticeDirectory: /}}\n", false, []string{"softNoticeDirectory", `"/"`, "file system"}},
	{
		"plugins: {eviction: {softNoticeDirectory: /var/lib/kubelet/n}}\n", false,
		[]string{"softNoticeDirectory", `"/var/lib/kubelet/n"`, "be inside " + rootDirectory},
	},
	{
		"plugins: {directories: [/a], eviction: {softNoticeDirectory: /a}}\n", false,
		[]string{"softNoticeDirectory", `"/a"`, "one of plugins.directories"},
	},
	{
		"plugins: {eviction: {settings: {numa: {}}}}\n", true,
		[]string{"plugins.eviction.settings.numa", "no such field"},
	},
	{"plugins: {eviction: {burst: many}}\n", true, []string{"plugins.eviction.burst", `"many"`, "a whole number"}},
	{"plugins: {eviction: {burst: 0}}\n", false, []string{"plugins.eviction.burst", "0", "1 to 100, or -1"}},
	{"plugins: {eviction: {period: 5}}\n", true, []string{"plugins.eviction.period", `"5"`, "a duration"}},
	{"plugins: {eviction: {authentication: Cert}}\n", true, []string{"Cert", `"SocketOwner", "Token", "None"`}},
	{"plugins: {eviction: {remote: memory}}\n", true, []string{"plugins.eviction.remote", `"memory"`, "a list"}},
	{"plugins: {eviction: {inTree: [numa]}}\n", false, []string{"plugins.eviction.inTree[0]", `"numa"`, "memory-growth"}},
	{"plugins: {directories: [/var/lib/kubelet/a]}\n", false, []string{"plugins.directories[0]", rootDirectory}},
	{"monitoringPeriod: &p 5s\nadmission: {waitForRoom: *p}\n", false, []string{"admission.waitForRoom", "aliases"}},
}

func TestFaultsAreNamed(t *testing.T) {
	for _, tc := range invalidFiles {
		expectFault(t, tc.text, withAPI, tc.says...)
	}
}

// expectFault fails the test if the text after the header is accepted, or the error does not have all parts.
func expectFault(t *testing.T, text string, kubelet v1alpha1.Kubelet, says ...string) {
	t.Helper()
	_, err := parse([]byte(header+text), kubelet)
	if err == nil {
		t.Errorf("%q is accepted", text)
		return
	}
	for _, want := range says {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
}

// needAPI are settings of eviction plugins that need an API server, and parts of the error in standalone mode.
var needAPI = map[string][]string{
	"forcedKiller: EvictionAPI": {"plugins.eviction.forcedKiller", `"EvictionAPI"`, "must be PodWorker"},
	"softKiller: EvictionAPI":   {"plugins.eviction.softKiller", `"EvictionAPI"`, "must be PodWorker"},
	"softKiller: DeleteAPI":     {"plugins.eviction.softKiller", `"DeleteAPI"`, "must be PodWorker"},
	"killerByQoSLevel: {a: DeleteAPI}": {"plugins.eviction.killerByQoSLevel[a]", `"DeleteAPI"`,
		"must be PodWorker"},
	"authentication: Token":      {"plugins.eviction.authentication", `"Token"`, "must be SocketOwner or None"},
	"taints: {kubeconfig: /t}":   {"plugins.eviction.taints.kubeconfig", `"/t"`, "must be absent"},
	"taints: {kubeconfig: /a/b}": {"plugins.eviction.taints.kubeconfig", `"/a/b"`, "must be absent"},
}

func TestStandaloneRefusesWhatNeedsAnAPIServer(t *testing.T) {
	for setting, says := range needAPI {
		text := "plugins: {eviction: {" + setting + "}}\n"
		expectFault(t, text, standalone, append(says, "there is no API server (standalone)")...)
		if _, err := parse([]byte(header+text), withAPI); err != nil {
			t.Errorf("with an API server: %v", err)
		}
	}
	if _, err := parse([]byte(header+"plugins: {eviction: {softKiller: PodWorker}}\n"), standalone); err != nil {
		t.Error(err)
	}
}

func TestInvalidFiles(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "empty",
		"# nothing\n":             "empty",
		"- a\n":                   "an object",
		"{":                       "line 1",
		header + "---\n" + header: "more than one document",
		"kind: NodePressureConfiguration\n": `apiVersion: Unsupported value: "": ` +
			`supported values: "nodepressure.plimsoll.dev/v1alpha1"`,
		"apiVersion: nodepressure.plimsoll.dev/v1\nkind: KubeletConfiguration\n": `kind: ` +
			`Unsupported value: "KubeletConfiguration"`,
		"apiVersion: nodepressure.plimsoll.dev/v2\nkind: NodePressureConfiguration\n": `"nodepressure.plimsoll.dev/v2"`,
	} {
		if _, err := parse([]byte(text), withAPI); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestAllErrorsAtOnce(t *testing.T) {
	_, err := parse([]byte(header+"a: 1\nb: 2\nmonitoringPeriod: x\n"), withAPI)
	for _, want := range []string{"a:", "b:", "monitoringPeriod:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

// A file with very many errors is rejected quickly and with a bounded error.
func TestErrorsAreBounded(t *testing.T) {
	for _, text := range []string{header + strings.Repeat("x: 1\n", 20000),
		header + "dryRun: [" + strings.Repeat("x,", 20000) + "]\n",
		header + "dryRun: [" + strings.Repeat("{signal: x},", 20000) + "]\n"} {
		_, err := parse([]byte(text), withAPI)
		if err == nil || !strings.HasSuffix(err.Error(), "; and more") || len(err.Error()) > 10000 {
			t.Errorf("%.300v", err)
		}
	}
}

func TestDefaultsWithHeaderOnly(t *testing.T) {
	for _, text := range []string{
		header, header + "memory:\ndryRun:\nmonitoringPeriod: null\n",
		`{"apiVersion": "nodepressure.plimsoll.dev/v1alpha1", "kind": "NodePressureConfiguration"}`,
	} {
		c, err := parse([]byte(text), withAPI)
		if err != nil || !equality.Semantic.DeepEqual(c, v1alpha1.Default()) {
			t.Errorf("%q: %v, %+v", text, err, c)
		}
	}
}

func TestExampleHasDefaults(t *testing.T) {
	path, err := filepath.Abs(example)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Load(path, withAPI)
	if err != nil {
		t.Fatal(err)
	}
	got, want := settings.OptionsFrom(l.Config), settings.DefaultOptions()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the example says %+v, the defaults are %+v", got, want)
	}
	config := l.Config.DeepCopy()
	// The example has empty lists for the sake of the reader.
	config.DryRun, config.Protection.Namespaces, config.Plugins.Directories = nil, nil, nil
	e := &config.Plugins.Eviction
	e.Remote, e.InTree, e.DryRun = nil, nil, nil
	e.SkipAnnotationKeys, e.SkipLabelKeys, e.SkipOwnerKinds, e.KillerByQoSLevel = nil, nil, nil, nil
	// The default of softKiller depends on the mode; the example has that with an API server.
	if e.SoftKiller != v1alpha1.EvictionAPI {
		t.Errorf("the example says softKiller %q", e.SoftKiller)
	}
	e.SoftKiller = ""
	if !equality.Semantic.DeepEqual(config, v1alpha1.Default()) {
		t.Errorf("the example says %+v, the defaults are %+v", config, v1alpha1.Default())
	}
}

func readSchema(t *testing.T) *spec.Schema {
	t.Helper()
	data, err := os.ReadFile(schema)
	if err != nil {
		t.Fatal(err)
	}
	s := &spec.Schema{}
	if err := json.Unmarshal(data, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// accepts returns whether the schema accepts the text. The YAML decoder is another one than ours.
func accepts(t *testing.T, s *spec.Schema, text string) bool {
	t.Helper()
	var document any
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	return validate.NewSchemaValidator(s, nil, "", strfmt.Default).Validate(document).IsValid()
}

func TestSchemaAgrees(t *testing.T) {
	s := readSchema(t)
	text, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	if !accepts(t, s, string(text)) || !accepts(t, s, header) || !accepts(t, s, header+full) {
		t.Error("the schema refuses what is right")
	}
	for _, tc := range invalidFiles {
		if strings.Contains(tc.says[len(tc.says)-1], "twice") {
			continue // the other decoder uses the last one
		}
		if got := accepts(t, s, header+tc.text); got == tc.bySchema {
			t.Errorf("%q: accepted by the schema: %v", tc.text, got)
		}
	}
}

// The example shows every field.
func TestExampleIsComplete(t *testing.T) {
	text, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	checkComplete(t, "", readSchema(t), document)
}

func checkComplete(t *testing.T, path string, s *spec.Schema, document map[string]any) {
	for name := range s.Properties {
		value, ok := document[name]
		if !ok {
			t.Errorf("the example does not show %s%s", path, name)
		}
		if inner, ok := value.(map[string]any); ok {
			property := s.Properties[name]
			checkComplete(t, path+name+".", &property, inner)
		}
	}
}

const full = `
monitoringPeriod: 2s
memory: {available: Reclaimable, countSwap: true, countHugepages: true, worstGrowthPerSecond: 4Gi}
eviction: {killTime: 5s, settling: 0s, patience: 1m, localStorageLimits: "DryRun", fence: "Off"}
admission: {waitForRoom: 0s}
dryRun:
- signal: memory.available
  kind: Soft
- signal: nodefs.available
  kind: Hard
- signal: pid.available
protection:
  namespaces: [kube-system, "team-*"]
  maxProtectedPods: 3
  maxProtectedMemory: 1Gi
  maxDelay: 1m
plugins:
  directories: [/var/lib/node-plugins]
  eviction:
    remote: ["*", -numa-memory]
    inTree: [memory-growth]
    dryRun: [example.com/rss]
    period: 2s
    callTimeout: 1s
    conditionTransitionPeriod: 0s
    burst: -1
    maxInFlight: 20
    maxGracePeriod: 90s
    skipAnnotationKeys: [example.com/keep]
    skipLabelKeys: [keep]
    skipOwnerKinds: [DaemonSet]
    qosLevel:
      label: tier
      labelValues: {batch: reclaimed_cores}
      priorityClasses: {low: reclaimed_cores}
    forcedKiller: DeleteAPI
    softKiller: PodWorker
    killerByQoSLevel: {reclaimed_cores: DeleteAPI, shared_cores: EvictionAPI}
    authentication: Token
    taints: {effects: [NoExecute], kubeconfig: /etc/kubernetes/taints.conf}
    softNoticeDirectory: /run/notices
    settings: {memory-growth: {horizon: 30s}}
`

func TestEveryFieldOfPluginsIsInOptions(t *testing.T) {
	c, err := parse([]byte(header+full), withAPI)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Plugins.Directories; !reflect.DeepEqual(got, []string{"/var/lib/node-plugins"}) {
		t.Errorf("directories %q", got)
	}
	settings := v1alpha1.Default().Plugins.Eviction.Settings
	settings.MemoryGrowth.Horizon = &metav1.Duration{Duration: 30 * time.Second}
	want := plugin.Options{
		Remote: plugin.Selector{"*", "-numa-memory"}, InTree: plugin.Selector{"memory-growth"},
		DryRun: plugin.Selector{"example.com/rss"}, Period: 2 * time.Second, CallTimeout: time.Second,
		Rules: arbiter.Rules{Burst: -1, MaxInFlight: 20, MaxGracePeriodSeconds: 90, Killers: arbiter.Killers{
			Forced: snapshot.DeleteAPI, Soft: snapshot.PodWorker, ByQoSLevel: map[string]snapshot.Killer{
				"reclaimed_cores": snapshot.DeleteAPI, "shared_cores": snapshot.EvictionAPI,
			},
		}},
		Skip: arbiter.Skip{
			AnnotationKeys: []string{"example.com/keep"}, LabelKeys: []string{"keep"}, OwnerKinds: []string{"DaemonSet"},
			Levels: arbiter.Levels{
				Label: "tier", LabelValues: map[string]string{"batch": "reclaimed_cores"},
				PriorityClasses: map[string]string{"low": "reclaimed_cores"},
			},
		},
		Authentication: v1alpha1.TokenAuthentication, SoftNoticeDirectory: "/run/notices", Settings: settings,
	}
	got := plugin.OptionsFrom(c, false)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("options\n%+v, want\n%+v", got, want)
	}
	byDefault := plugin.OptionsFrom(v1alpha1.Default(), false)
	for _, pair := range [][2]any{{got, byDefault}, {got.Rules, byDefault.Rules}, {got.Skip, byDefault.Skip}} {
		v, d := reflect.ValueOf(pair[0]), reflect.ValueOf(pair[1])
		for i := range v.NumField() {
			if reflect.DeepEqual(v.Field(i).Interface(), d.Field(i).Interface()) {
				t.Errorf("%s.%s is at its default here", v.Type(), v.Type().Field(i).Name)
			}
		}
	}
}

// What is written as JSON is read as the same configuration, with lists that are empty on purpose.
func TestRoundTrip(t *testing.T) {
	for _, text := range []string{full, "plugins: {eviction: {taints: {effects: []}}}\n", ""} {
		c, err := parse([]byte(header+text), withAPI)
		if err != nil {
			t.Fatal(err)
		}
		written, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parse(written, withAPI)
		if err != nil || !reflect.DeepEqual(again.Plugins, c.Plugins) || !equality.Semantic.DeepEqual(again, c) {
			t.Errorf("%s: %v, %+v, want %+v", written, err, again, c)
		}
	}
}

func TestSettingsOfKillersAndTaints(t *testing.T) {
	c, err := parse([]byte(header+full), withAPI)
	if err != nil {
		t.Fatal(err)
	}
	e := c.Plugins.Eviction
	got := v1alpha1.EvictionPluginsConfiguration{ForcedKiller: e.ForcedKiller, SoftKiller: e.SoftKiller,
		KillerByQoSLevel: e.KillerByQoSLevel, Taints: e.Taints, SoftNoticeDirectory: e.SoftNoticeDirectory}
	want := v1alpha1.EvictionPluginsConfiguration{
		ForcedKiller: v1alpha1.DeleteAPI, SoftKiller: v1alpha1.PodWorker,
		KillerByQoSLevel: map[string]v1alpha1.Killer{
			"reclaimed_cores": v1alpha1.DeleteAPI, "shared_cores": v1alpha1.EvictionAPI,
		},
		Taints: v1alpha1.PluginTaints{
			Effects: []v1alpha1.TaintEffect{v1alpha1.NoExecute}, Kubeconfig: "/etc/kubernetes/taints.conf",
		},
		SoftNoticeDirectory: "/run/notices",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// The settings of plugins change nothing else.
func TestPluginsChangeNoOtherOptions(t *testing.T) {
	_, plugins, _ := strings.Cut(full, "\nplugins:")
	c, err := parse([]byte(header+"plugins:"+plugins), withAPI)
	if err != nil {
		t.Fatal(err)
	}
	without := c.DeepCopy()
	without.Plugins = v1alpha1.Default().Plugins
	if !equality.Semantic.DeepEqual(without, v1alpha1.Default()) {
		t.Errorf("beside plugins there is %+v", without)
	}
}

func TestEveryFieldIsInOptions(t *testing.T) {
	c, err := parse([]byte(header+full), withAPI)
	if err != nil {
		t.Fatal(err)
	}
	want := settings.Options{
		MonitoringPeriod: 2 * time.Second,
		MemoryFormula:    v1alpha1.Reclaimable, CountSwap: true, CountHugepages: true, WorstGrowth: 4 << 30,
		KillTime: 5 * time.Second, Patience: time.Minute, LocalStorageLimits: v1alpha1.LimitsDryRun,
		DryRun: []policy.ThresholdID{{Signal: snapshot.MemoryAvailable, Soft: true}, {Signal: snapshot.NodeFsAvailable},
			{Signal: snapshot.PIDAvailable}, {Signal: snapshot.PIDAvailable, Soft: true}},
		Protection: policy.Protection{
			Namespaces: []string{"kube-system", "team-*"}, MaxPods: 3, MaxMemory: 1 << 30, MaxDelay: time.Minute,
		},
	}
	if got := settings.OptionsFrom(c); !reflect.DeepEqual(got, want) {
		t.Errorf("options\n%+v, want\n%+v", got, want)
	}
	// No field has its default, so that a field which is not passed on is found.
	v, d := reflect.ValueOf(want), reflect.ValueOf(settings.DefaultOptions())
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		// The composition sets these two, if the plugin that reads what they report is enabled.
		reported := name == "AllPods" || name == "ReportMemoryGrowth" || name == "ReportOutlook"
		if !reported && reflect.DeepEqual(v.Field(i).Interface(), d.Field(i).Interface()) {
			t.Errorf("%s is at its default here", name)
		}
	}
}

func TestSignalsMatchSnapshot(t *testing.T) {
	known := map[v1alpha1.Signal]bool{}
	for _, s := range snapshot.AllSignals() {
		known[v1alpha1.Signal(s.String())] = true
	}
	for _, name := range v1alpha1.Signals() {
		if !known[name] {
			t.Errorf("%s is not known", name)
		}
		delete(known, name)
	}
	if len(known) > 0 {
		t.Errorf("%v cannot be configured", known)
	}
}

func TestPathOfTheFile(t *testing.T) {
	lookup := func(value string, set bool) func(string) (string, bool) {
		return func(name string) (string, bool) {
			if name != PathVariable {
				t.Errorf("asked for %s", name)
			}
			return value, set
		}
	}
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	l, err := Load(missing, withAPI)
	if err != nil || l.Hash != "" || l.File != missing || !reflect.DeepEqual(l.Config, v1alpha1.Default()) {
		t.Errorf("without a file: %v, %+v", err, l)
	}
	if file, named, err := Path(lookup("", false)); file != DefaultPath || named || err != nil {
		t.Errorf("without the variable: %s, %v, %v", file, named, err)
	}
	if _, err := LoadAtStart(lookup(missing, true), withAPI); err == nil ||
		!strings.Contains(err.Error(), PathVariable) || !strings.Contains(err.Error(), missing) {
		t.Errorf("a file that was named and is not there: %v", err)
	}
	if _, err := LoadAtStart(lookup("pressure.yaml", true), withAPI); err == nil ||
		!strings.Contains(err.Error(), `"pressure.yaml": must be an absolute path`) {
		t.Errorf("a relative path: %v", err)
	}
	if err := os.WriteFile(missing, []byte(header+full), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err = LoadAtStart(lookup(missing, true), withAPI); err != nil || len(l.Hash) != 64 ||
		l.Config.Admission.WaitForRoom.Duration != 0 {
		t.Errorf("%v, %+v", err, l)
	}
}

func TestUnreadableFilesAreRejected(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(dir, withAPI); err == nil || !strings.Contains(err.Error(), "regular file") {
		t.Errorf("a directory: %v", err)
	}
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, make([]byte, maxSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(large, withAPI); err == nil || !strings.Contains(err.Error(), large) ||
		!strings.Contains(err.Error(), "1048576 bytes") {
		t.Errorf("a large file: %v", err)
	}
}

func TestDefaultsWithoutConfiguration(t *testing.T) {
	if got := (&Loaded{}).Configuration(); !reflect.DeepEqual(got, v1alpha1.Default()) {
		t.Errorf("%+v", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(header + full)
	for _, tc := range invalidFiles {
		f.Add(header + tc.text)
	}
	for setting := range needAPI {
		f.Add(header + "plugins: {eviction: {" + setting + "}}\n")
	}
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := parse([]byte(text), standalone); err == nil && len(v1alpha1.ValidateFor(c, standalone)) > 0 {
			t.Fatal("accepted in standalone mode, and not valid")
		}
		c, err := parse([]byte(text), withAPI)
		if (c == nil) == (err == nil) {
			t.Fatalf("%+v and %v", c, err)
		}
		if err == nil {
			if errs := v1alpha1.Validate(c); len(errs) > 0 {
				t.Fatalf("accepted, and not valid: %v", errs)
			}
			_, _ = settings.OptionsFrom(c), plugin.OptionsFrom(c, false)
		}
	})
}
