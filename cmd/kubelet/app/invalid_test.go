package app

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet"
)

// mustNotStart fails the test if the program starts an agent.
func mustNotStart(context.Context, kubelet.Dependencies) (Agent, error) {
	return nil, errors.New("the agent was built")
}

// runProgram returns the exit code and both outputs of one invocation.
func runProgram(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	gatesOfProcess(t)
	var out, errs bytes.Buffer
	code = Program{Args: args, Stdout: &out, Stderr: &errs, New: mustNotStart}.Run(t.Context())
	return code, out.String(), errs.String()
}

// Every invalid value ends with exit code 1 and a message with the field or the flag, and the value.
func TestInvalidValues(t *testing.T) {
	tests := []struct {
		name string
		file string
		args []string
		want []string
	}{
		{
			name: "cloud provider", args: []string{"--cloud-provider=aws"},
			want: []string{"--cloud-provider", "aws", "external"},
		},
		{name: "sync frequency", file: "syncFrequency: -1s", want: []string{"syncFrequency", "-1s"}},
		{name: "unknown flag", args: []string{"--no-such-flag"}, want: []string{"no-such-flag"}},
		{name: "argument", args: []string{"run"}, want: []string{`"run"`}},
		{name: "flag of wrong type", args: []string{"--max-pods=many"}, want: []string{"max-pods", "many"}},
		{name: "field of wrong type", file: "maxPods: many", want: []string{"maxPods", "config.yaml"}},
		{name: "duration", file: "nodeStatusUpdateFrequency: 5", want: []string{"nodeStatusUpdateFrequency"}},
		{name: "no such file", args: []string{"--config=/no/such/file"}, want: []string{"--config", "/no/such/file"}},
		{
			name: "no such directory", args: []string{"--config-dir=/no/such/dir"},
			want: []string{"--config-dir", "/no/such/dir"},
		},
		{
			name: "unknown feature gate in flag", args: []string{"--feature-gates=NoSuchGate=true"},
			want: []string{"--feature-gates", "NoSuchGate"},
		},
		{
			name: "unknown feature gate in file", file: "featureGates: {NoSuchGate: true}",
			want: []string{"featureGates", "NoSuchGate", "config.yaml"},
		},
		{
			name: "node label", args: []string{"--node-labels=kubernetes.io/foo=bar"},
			want: []string{"--node-labels", "kubernetes.io/foo"},
		},
		{name: "node IP", args: []string{"--node-ip=10.0.0.1,10.0.0.2"}, want: []string{"--node-ip", "10.0.0.1,10.0.0.2"}},
		{name: "address", file: "address: here", want: []string{"address (--address)", "here"}},
		{name: "port", file: "port: 70000", want: []string{"port (--port)", "70000"}},
		{name: "lease", file: "nodeLeaseDurationSeconds: -1", want: []string{"nodeLeaseDurationSeconds", "-1"}},
		{
			name: "image GC", args: []string{"--image-gc-high-threshold=101"},
			want: []string{"--image-gc-high-threshold", "101"},
		},
		{name: "log files", file: "containerLogMaxFiles: 1", want: []string{"containerLogMaxFiles", "got 1"}},
		{
			name: "log size", file: "containerLogMaxSize: huge",
			want: []string{"containerLogMaxSize (--container-log-max-size)", "huge"},
		},
		{name: "log interval", file: "containerLogMonitorInterval: 1s", want: []string{"containerLogMonitorInterval", "1s"}},
		{
			name: "pod logs directory", file: "podLogsDir: /var/../log",
			want: []string{"podLogsDir (--pod-logs-dir)", "/var/../log"},
		},
		{
			name: "taint", file: "registerWithTaints: [{key: a, effect: Sometimes}]",
			want: []string{"registerWithTaints", "Sometimes"},
		},
		{name: "eviction signal", file: "evictionHard: {memory.free: 1Gi}", want: []string{"evictionHard", "memory.free"}},
		{
			name: "eviction quantity", args: []string{"--eviction-hard=memory.available<lots"},
			want: []string{"evictionHard", "memory.available", "lots"},
		},
		{
			name: "soft threshold without grace", file: "evictionSoft: {memory.available: 1Gi}",
			want: []string{"evictionSoft", "memory.available", "evictionSoftGracePeriod"},
		},
		{
			name: "reserved resource", file: "kubeReserved: {gpu: \"1\"}",
			want: []string{"kubeReserved (--kube-reserved)", "gpu"},
		},
		{
			name: "reserved quantity", args: []string{"--system-reserved=memory=lots"},
			want: []string{"systemReserved (--system-reserved)", "memory", "lots"},
		},
		{name: "negative reservation", file: "systemReserved: {cpu: \"-1\"}", want: []string{"systemReserved", "cpu", "-1"}},
		{
			name: "QoS reserved", file: "qosReserved: {memory: half}\nfeatureGates: {QOSReserved: true}",
			want: []string{"qosReserved (--qos-reserved)", "half"},
		},
		{
			name: "CPU policy", file: "cpuManagerPolicy: dynamic",
			want: []string{"cpuManagerPolicy (--cpu-manager-policy)", "dynamic"},
		},
		{
			name: "memory policy", file: "memoryManagerPolicy: static",
			want: []string{"memoryManagerPolicy (--memory-manager-policy)", "static"},
		},
		{
			name: "topology policy", file: "topologyManagerPolicy: numa",
			want: []string{"topologyManagerPolicy (--topology-manager-policy)", "numa"},
		},
		{name: "ciphers", file: "tlsCipherSuites: [ROT13]", want: []string{"tlsCipherSuites (--tls-cipher-suites)", "ROT13"}},
		{
			name: "TLS version", file: "tlsMinVersion: VersionTLS99",
			want: []string{"tlsMinVersion (--tls-min-version)", "VersionTLS99"},
		},
		{
			name: "authorization mode", file: "authorization: {mode: Sometimes}",
			want: []string{"authorization.mode (--authorization-mode)", "Sometimes"},
		},
		{
			name: "authorization without API server", file: "authorization: {mode: Webhook}",
			want: []string{"authorization.mode", "--kubeconfig"},
		},
		{
			name: "tokens without API server", file: "authentication: {webhook: {enabled: true}}",
			want: []string{"authentication.webhook.enabled", "--kubeconfig"},
		},
		{
			name: "lock file", args: []string{"--exit-on-lock-contention"},
			want: []string{"--exit-on-lock-contention", "--lock-file"},
		},
		{
			name: "kubeconfig", args: []string{"--kubeconfig=/no/such/kubeconfig"},
			want: []string{"--kubeconfig", "/no/such/kubeconfig"},
		},
		{
			name: "bootstrap kubeconfig", args: []string{"--kubeconfig=/no/such/a", "--bootstrap-kubeconfig=/no/such/b"},
			want: []string{"--bootstrap-kubeconfig", "/no/such/b"},
		},
		{
			name: "half a credential provider", args: []string{"--image-credential-provider-bin-dir=/"},
			want: []string{"--image-credential-provider-config"},
		},
		{name: "run once", file: "runOnce: true", want: []string{"runOnce", "true"}},
		{
			name: "runtime endpoint", file: `containerRuntimeEndpoint: ""`, args: []string{"--container-runtime-endpoint="},
			want: []string{"containerRuntimeEndpoint"},
		},
		{name: "logging format", args: []string{"--logging-format=xml"}, want: []string{"logging.format", "xml"}},
		{
			name: "several at once", file: "maxPods: -1\npodsPerCore: -2",
			want: []string{"maxPods (--max-pods) -1", "podsPerCore (--pods-per-core) -2"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s := scenario{args: tc.args}
			if tc.file != "" {
				s.file = header + standaloneYAML(tc.file) + tc.file + "\n"
			}
			code, _, stderr := runProgram(t, s.write(t, t.TempDir())...)
			if code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			for _, want := range tc.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("message does not say %q:\n%s", want, stderr)
				}
			}
			if strings.Contains(stderr, "the agent was built") {
				t.Error("the agent was built in spite of wrong settings")
			}
		})
	}
}

// standaloneYAML makes a file valid without an API server, unless the test is about that.
func standaloneYAML(file string) string {
	yaml := "failCgroupV1: false\n"
	if !strings.Contains(file, "authentication:") {
		yaml += "authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}\n"
	}
	if !strings.Contains(file, "authorization:") {
		yaml += "authorization: {mode: AlwaysAllow}\n"
	}
	return yaml
}

func TestInvalidDropIns(t *testing.T) {
	tests := []struct{ name, content, want string }{
		{"no kind", "maxPods: 3", "apiVersion/kind must be"},
		{"wrong kind", "apiVersion: v1\nkind: Pod\n", "apiVersion/kind"},
		{"empty", "", "empty"},
		{"wrong type", header + "maxPods: many", "maxPods"},
		{"unknown feature gate", header + "featureGates: {NoSuchGate: true}", "NoSuchGate"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			dropIns := map[string]string{"10.conf": header + "maxPods: 4", "20.conf": tc.content}
			code, _, stderr := runProgram(t, scenario{dropIns: dropIns}.write(t, t.TempDir())...)
			if code != 1 || !strings.Contains(stderr, tc.want) ||
				!strings.Contains(stderr, filepath.Join("config.d", "20.conf")) {
				t.Errorf("exit code %d, message %q; want 1, %q and the file's name", code, stderr, tc.want)
			}
		})
	}
}

// A binary without a version is rejected after all other checks.
func TestUnsetVersionIsRejected(t *testing.T) {
	code, _, stderr := runProgram(t, "--fail-cgroupv1=false", "--container-runtime-endpoint=unix:///run/none.sock")
	if code != 1 || !strings.Contains(stderr, "v0.0.0-") {
		t.Errorf("exit code %d, message %q", code, stderr)
	}
}

func TestHelpAndVersion(t *testing.T) {
	code, stdout, _ := runProgram(t, "--help")
	for _, want := range []string{
		"Usage:\n  kubelet", "--kubeconfig", "--eviction-hard", "--housekeeping-interval", "--version",
	} {
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("--help: exit code %d, no %q in it", code, want)
		}
	}
	t.Cleanup(func() { // the flag belongs to a library, and so to the process
		if err := pflag.Set("version", "false"); err != nil {
			t.Fatal(err)
		}
	})
	code, stdout, _ = runProgram(t, "--version")
	if code != 0 || !strings.HasPrefix(stdout, "Kubernetes v") || strings.Count(stdout, "\n") != 1 {
		t.Errorf("--version: exit code %d, printed %q", code, stdout)
	}
}
