package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	metricsfeatures "k8s.io/component-base/metrics/features"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/credentialprovider"
	"k8s.io/kubernetes/pkg/kubelet/util"
	"k8s.io/kubernetes/pkg/kubelet/watchdog"
	"k8s.io/kubernetes/pkg/util/oom"
	"k8s.io/kubernetes/pkg/util/rlimit"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet"
)

// watchdog starts the notifications of systemd's watchdog, if the unit has one. They begin before there is anything to
// check, so that a slow start does not end the process; the agent adds its health checks later.
func (p *process) watchdog(ctx context.Context) error {
	checker, err := watchdog.NewHealthChecker(klog.FromContext(ctx))
	if err != nil {
		return err
	}
	checker.Start(ctx)
	p.deps.Observability.HealthChecker = checker
	return nil
}

func (p *process) metrics(context.Context) error {
	metricsfeatures.ApplyFeatureGates(p.settings.FeatureGates)
	if p.settings.Config.ShowHiddenMetricsForVersion != "" {
		metrics.SetShowHidden()
	}
	p.deps.Observability.PodStartup = util.NewPodStartupLatencyTracker()
	p.deps.Observability.NodeStartup = util.NewNodeStartupLatencyTracker()
	return nil
}

// makeAbsolute makes the paths of directories absolute: the container runtime gets paths below them, and has another
// working directory.
func (p *process) makeAbsolute(context.Context) (err error) {
	flags := p.settings.Flags
	if flags.RootDirectory, err = filepath.Abs(flags.RootDirectory); err != nil {
		return fmt.Errorf("--root-dir %q: %w", flags.RootDirectory, err)
	}
	if flags.CertDirectory, err = filepath.Abs(flags.CertDirectory); err != nil {
		return fmt.Errorf("--cert-dir %q: %w", flags.CertDirectory, err)
	}
	return nil
}

// setIdentity sets host name, node name and node IPs. As in stock, addresses of --node-ip that cannot be parsed are
// ignored with a warning.
func (p *process) setIdentity(ctx context.Context) error {
	hostname, err := nodeutil.GetHostname(p.settings.Flags.HostnameOverride)
	if err != nil {
		return fmt.Errorf("--hostname-override %q: %w", p.settings.Flags.HostnameOverride, err)
	}
	ips, invalid, err := nodeutil.ParseNodeIPArgument(p.settings.Flags.NodeIP, p.settings.Flags.CloudProvider)
	if err != nil {
		return fmt.Errorf("bad --node-ip %q: %w", p.settings.Flags.NodeIP, err)
	}
	if len(invalid) > 0 {
		klog.FromContext(ctx).Info("Could not parse some node IP(s), ignoring them", "IPs", invalid)
	}
	p.deps.Identity = kubelet.Identity{Hostname: hostname, NodeName: types.NodeName(hostname), NodeIPs: ips}
	return nil
}

// prepareProcess sets the OOM score, resource limits, and global variables of libraries. It only logs missing
// permissions.
func (p *process) prepareProcess(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	if uid := os.Getuid(); uid != 0 {
		logger.Error(nil, "Kubelet running with insufficient permissions: it needs to run as root", "uid", uid)
	}
	if err := oom.NewOOMAdjuster().ApplyOOMScoreAdj(0, int(p.settings.Config.OOMScoreAdj)); err != nil {
		logger.Info("Failed to ApplyOOMScoreAdj", "err", err)
	}
	if err := rlimit.SetNumFiles(uint64(p.settings.Config.MaxOpenFiles)); err != nil {
		logger.Error(err, "Failed to set rlimit on max file handles")
	}
	capabilities.Initialize(capabilities.Capabilities{AllowPrivileged: true})
	credentialprovider.SetPreferredDockercfgPath(p.settings.Flags.RootDirectory)
	logger.V(2).Info("Using root directory", "path", p.settings.Flags.RootDirectory)
	return nil
}

// gcPercent is by how much the heap may grow before the next garbage collection, in percent of the live heap. Go's
// default is 100. With 110 pods the agent uses some MiB less, for a few percent more CPU time.
const gcPercent = 75

// setGCPercent sets the garbage collection percentage to gcPercent, unless the environment variable GOGC is set.
func (*process) setGCPercent(context.Context) error {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(gcPercent)
	}
	return nil
}
