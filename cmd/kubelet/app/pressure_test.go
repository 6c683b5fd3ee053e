package app

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/pressureconfig"
)

// An invalid file ends the start, with the path of the field, its value and the allowed values.
func TestInvalidPressureConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pressure.yaml")
	text := "apiVersion: nodepressure.plimsoll.dev/v1alpha1\nkind: NodePressureConfiguration\neviction: {settling: 2h}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(pressureconfig.PathVariable, file)
	gatesOfProcess(t)
	var errs bytes.Buffer
	args := []string{"--fail-cgroupv1=false", "--fail-swap-on=false", "--authorization-mode=AlwaysAllow",
		"--authentication-token-webhook=false", "--anonymous-auth=true", "--container-runtime-endpoint=unix:///run/none.sock"}
	code := Program{Args: args, Stdout: &errs, Stderr: &errs,
		New: func(context.Context, kubelet.Dependencies) (Agent, error) {
			t.Error("an agent is built")
			return nil, nil
		}}.Run(t.Context())
	want := "pressure configuration: " + file + `: eviction.settling: Invalid value: "2h0m0s": must be from 0s to 1h0m0s`
	if code != 1 || !strings.Contains(errs.String(), want) {
		t.Errorf("exit code %d, %s; want %s", code, errs.String(), want)
	}
}

// The loaded configuration is passed to the agent.
func TestPressureConfigurationIsPassedToTheAgent(t *testing.T) {
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
	if _, err := p.build(t.Context()); err != nil || deps.Pressure.File != "/here" {
		t.Errorf("%v, %+v", err, deps.Pressure)
	}
}
