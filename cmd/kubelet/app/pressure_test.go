package app

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/component-base/featuregate"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/pressureconfig"
)

// An invalid file ends the start, with the path of the field, its value and the allowed values.
func TestInvalidPressureConfiguration(t *testing.T) {
	root := t.TempDir()
	inside := filepath.Join(root, "plugins")
	for text, want := range map[string]string{
		"eviction: {settling: 2h}": `eviction.settling: Invalid value: "2h0m0s": must be from 0s to 1h0m0s`,
		"plugins: {directories: [" + inside + "]}": `plugins.directories[0]: Invalid value: "` + inside +
			`": must not be, contain, or be inside ` + root,
	} {
		expectInvalid(t, text, want, "--root-dir="+root)
	}
}

// Without --kubeconfig there is no API server. With it, taints need another identity; relative paths are absolute ones.
func TestKubeconfigAndPressureConfiguration(t *testing.T) {
	t.Chdir(t.TempDir())
	own, err := filepath.Abs("kubelet.conf")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, own, "not read here")
	taints := "plugins: {eviction: {taints: {kubeconfig: " + own + "}}}"
	const standalone = "there is no API server (standalone): "
	path := `plugins.eviction.taints.kubeconfig: Invalid value: "` + own + `": `
	expectInvalid(t, taints, path+standalone+"must be absent")
	expectInvalid(t, "plugins: {eviction: {softKiller: EvictionAPI}}",
		`plugins.eviction.softKiller: Invalid value: "EvictionAPI": `+standalone+"must be PodWorker")
	for _, flag := range []string{own, "./kubelet.conf"} {
		expectInvalid(t, taints, path+"must not be the kubeconfig of the kubelet itself", "--kubeconfig="+flag)
	}
}

// expectInvalid runs the program with the text in the file, and fails the test unless the start ends with the error.
func expectInvalid(t *testing.T, text, want string, flags ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pressure.yaml")
	text = "apiVersion: nodepressure.plimsoll.dev/v1alpha1\nkind: NodePressureConfiguration\n" + text + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(pressureconfig.PathVariable, file)
	gatesOfProcess(t)
	var errs bytes.Buffer
	args := append([]string{"--fail-cgroupv1=false", "--fail-swap-on=false", "--authorization-mode=AlwaysAllow",
		"--authentication-token-webhook=false", "--anonymous-auth=true",
		"--container-runtime-endpoint=unix:///run/none.sock"}, flags...)
	code := Program{Args: args, Stdout: &errs, Stderr: &errs,
		New: func(context.Context, kubelet.Dependencies) (Agent, error) {
			t.Error("an agent is built")
			return nil, nil
		}}.Run(t.Context())
	want = "pressure configuration: " + file + ": " + want
	if code != 1 || !strings.Contains(errs.String(), want) {
		t.Errorf("exit code %d, %s; want %s", code, errs.String(), want)
	}
}

// The loaded configuration and the feature gates are passed to the agent.
func TestSettingsArePassedToTheAgent(t *testing.T) {
	settings := validSettings(t)
	settings.Pressure = pressureconfig.Loaded{File: "/here", Hash: "x"}
	var deps kubelet.Dependencies
	all := steps
	t.Cleanup(func() { steps = all })
	steps = nil // nothing of the node is touched
	p := &process{settings: settings, newAgent: func(_ context.Context, d kubelet.Dependencies) (Agent, error) {
		deps = d
		return nil, nil
	}}
	if _, err := p.build(t.Context()); err != nil || deps.Pressure.File != "/here" ||
		deps.FeatureGates != featuregate.FeatureGate(settings.FeatureGates) {
		t.Errorf("%v, %+v, %v", err, deps.Pressure, deps.FeatureGates)
	}
}
