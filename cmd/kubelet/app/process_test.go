package app

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crifake "k8s.io/cri-client/pkg/fake"
	"k8s.io/kubernetes/pkg/capabilities"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet"
)

// agentFunc is a function that implements Agent.
type agentFunc func(context.Context) error

func (f agentFunc) Run(ctx context.Context) error { return f(ctx) }

// validSettings returns the settings of a standalone agent with its own directory.
func validSettings(t *testing.T, args ...string) *Settings {
	t.Helper()
	gatesOfProcess(t)
	root := t.TempDir()
	args = append([]string{
		"--root-dir=" + root, "--cert-dir=" + filepath.Join(root, "pki"), "--fail-cgroupv1=false", "--fail-swap-on=false",
	}, args...)
	line, err := parseCommandLine(args)
	if err != nil {
		t.Fatal(err)
	}
	settings, err := line.settings(t.Context(), utilfeature.DefaultMutableFeatureGate)
	if err != nil {
		t.Fatal(err)
	}
	return settings
}

// standaloneChild is the environment variable of the process in which TestProcessStandalone does its work, because the
// container manager can be made once in a process.
const standaloneChild = "APP_TEST_STANDALONE"

// The whole start in standalone mode with a fake runtime, on the real kernel: all dependencies of the agent are set,
// the runtime's cgroup driver is used, and no goroutine runs when it has ended.
func TestProcessStandalone(t *testing.T) {
	if os.Getenv(standaloneChild) == "" {
		runInChild(t, standaloneChild)
		return
	}
	if os.Getuid() != 0 {
		t.Fatal("this test needs root, for cgroups")
	}
	runtime := crifake.NewFakeRemoteRuntime()
	runtime.RuntimeService.FakeLinuxConfiguration = &runtimeapi.LinuxRuntimeConfiguration{
		CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS,
	}
	endpoint := "unix://" + filepath.Join(t.TempDir(), "cri.sock")
	if err := runtime.Start(endpoint); err != nil {
		t.Fatal(err)
	}
	defer runtime.Stop()
	settings := validSettings(t, "--container-runtime-endpoint="+endpoint, "--cgroup-driver=systemd",
		"--hostname-override=here",
		"--kube-reserved=memory=10Mi", "--node-ip=10.1.2.3,not-an-ip")
	settings.Config.EvictionHard = defaultEvictionHard()

	ctx, cancel := context.WithCancel(t.Context())
	var deps kubelet.Dependencies
	p := &process{settings: settings, newAgent: func(_ context.Context, d kubelet.Dependencies) (Agent, error) {
		deps = d
		return agentFunc(func(ctx context.Context) error { cancel(); <-ctx.Done(); return nil }), nil
	}}
	if err := p.run(ctx); err != nil {
		t.Fatal(err)
	}
	if deps.Config.CgroupDriver != "cgroupfs" || deps.Config.CgroupRoot != "/" {
		t.Errorf("cgroup driver %q, root %q", deps.Config.CgroupDriver, deps.Config.CgroupRoot)
	}
	if id := deps.Identity; id.NodeName != "here" || len(id.NodeIPs) != 1 || id.NodeIPs[0].String() != "10.1.2.3" {
		t.Errorf("identity %+v", id)
	}
	if !deps.Clients.Standalone() || deps.Clients.Heartbeat != nil {
		t.Error("clients without an API server")
	}
	node := deps.Machine.ContainerManager.GetNodeConfig()
	if node.CgroupDriver != "cgroupfs" || len(node.HardEvictionThresholds) == 0 ||
		node.KubeReserved.Memory().String() != "10Mi" {
		t.Errorf("container manager has %+v", node)
	}
	if deps.Serving.Auth == nil || deps.Serving.TLSOptions == nil || deps.Observability.Recorder == nil ||
		deps.Observability.TracerProvider == nil ||
		deps.Runtime.Runtime == nil || deps.Runtime.Images == nil || len(deps.Volumes.Plugins) < 12 ||
		deps.Machine.Subpather == nil {
		t.Errorf("incomplete dependencies: %+v", deps)
	}
	if !capabilities.Get().AllowPrivileged {
		t.Error("privileged pods are not allowed")
	}
}

// runInChild runs this test again in a process of its own, in which variable is set.
func runInChild(t *testing.T, variable string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), variable+"=1")
	output, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(output, []byte("--- PASS: "+t.Name())) {
		t.Fatalf("%v\n%s", err, output)
	}
}

// withSteps replaces the steps of the start for one test.
func withSteps(t *testing.T, replacement ...step) {
	t.Helper()
	before := steps
	steps = replacement
	t.Cleanup(func() { steps = before })
}

func TestProcessOutcome(t *testing.T) {
	broken := errors.New("broken")
	tests := []struct {
		name string
		run  func(p *process, stop func()) agentFunc
		want error
	}{
		{"signal", func(_ *process, stop func()) agentFunc {
			return func(ctx context.Context) error { stop(); <-ctx.Done(); return nil }
		}, nil},
		{"signal, agent returns the context's error", func(_ *process, stop func()) agentFunc {
			return func(ctx context.Context) error { stop(); return ctx.Err() }
		}, nil},
		{"agent fails", func(*process, func()) agentFunc {
			return func(context.Context) error { return broken }
		}, broken},
		{"lock contention", func(p *process, _ func()) agentFunc {
			return func(ctx context.Context) error { p.cancel(errLockContention); return ctx.Err() }
		}, nil},
		{"client certificate lost", func(p *process, _ func()) agentFunc {
			return func(ctx context.Context) error { p.cancel(broken); <-ctx.Done(); return nil }
		}, broken},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			withSteps(t)
			ctx, cancel := context.WithCancel(t.Context())
			closed := false
			p := &process{settings: validSettings(t)}
			p.closers = append(p.closers, func(context.Context) { closed = true })
			p.newAgent = func(context.Context, kubelet.Dependencies) (Agent, error) { return tc.run(p, cancel), nil }
			if err := p.run(ctx); !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if !closed {
				t.Error("not cleaned up")
			}
		})
	}
}

// A step that fails ends the start: later steps are not executed, no agent is created, nothing runs in the background.
func TestFailedStep(t *testing.T) {
	withSteps(t,
		step{"first", func(p *process, _ context.Context) error {
			p.background = append(p.background, func(context.Context) { t.Error("ran in the background") })
			return nil
		}},
		step{"second", func(*process, context.Context) error { return errors.New("broken") }},
		step{"third", func(*process, context.Context) error { t.Error("begun"); return nil }},
	)
	p := &process{settings: validSettings(t), newAgent: func(context.Context, kubelet.Dependencies) (Agent, error) {
		t.Error("agent built")
		return nil, nil
	}}
	if err := p.run(t.Context()); err == nil || err.Error() != "second: broken" {
		t.Errorf("got %v", err)
	}
}

// A stop during a step that waits is not a failure.
func TestStopDuringStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	withSteps(t, step{"runtime", func(_ *process, ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return errors.New("rpc error: code = Canceled")
	}})
	if err := (&process{settings: validSettings(t)}).run(ctx); err != nil {
		t.Errorf("got %v", err)
	}
}

// The lock file is released as soon as another process opens it.
func TestLockContention(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	p := &process{settings: validSettings(t, "--lock-file="+file, "--exit-on-lock-contention")}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	p.cancel = cancel
	if err := p.lock(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(file); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
		if !errors.Is(context.Cause(ctx), errLockContention) {
			t.Errorf("ended because of %v", context.Cause(ctx))
		}
	case <-time.After(20 * time.Second):
		t.Fatal("lock not released")
	}
}

func TestInvalidLockFile(t *testing.T) {
	p := &process{settings: validSettings(t, "--lock-file=/no/such/dir/lock")}
	if err := p.lock(t.Context()); err == nil || !strings.Contains(err.Error(), `--lock-file "/no/such/dir/lock"`) {
		t.Errorf("got %v", err)
	}
}

// Secrets of static pod URLs are not logged.
func TestMaskSecrets(t *testing.T) {
	config := validSettings(t).Config
	config.StaticPodURLHeader = map[string][]string{"Authorization": {"secret"}}
	shown := maskSecrets(config)
	if shown.StaticPodURLHeader["Authorization"][0] != "<masked>" ||
		config.StaticPodURLHeader["Authorization"][0] != "secret" {
		t.Errorf("shown %v, kept %v", shown.StaticPodURLHeader, config.StaticPodURLHeader)
	}
}

func TestSelfSignedCertificateIsKept(t *testing.T) {
	p := &process{settings: validSettings(t)}
	p.deps.Identity.Hostname = "here"
	read := func() []byte {
		if err := p.makeTLS(t.Context()); err != nil {
			t.Fatal(err)
		}
		cert, err := os.ReadFile(p.deps.Serving.TLSOptions.CertFile)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	first := read()
	p.settings.Config.TLSCertFile, p.settings.Config.TLSPrivateKeyFile = "", ""
	if !bytes.Equal(first, read()) {
		t.Error("a new certificate at the second start")
	}
	if want := filepath.Join(p.settings.Flags.CertDirectory, "kubelet.crt"); p.deps.Serving.TLSOptions.CertFile != want {
		t.Errorf("certificate in %s, want %s", p.deps.Serving.TLSOptions.CertFile, want)
	}
}
