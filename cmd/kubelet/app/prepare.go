package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
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

// watchdog starts to notify systemd when the unit asks for it. It begins before there is anything to check, so that a
// slow start is not taken for a dead process; the agent adds its checks later.
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
	metricsfeatures.ApplyFeatureGates(utilfeature.DefaultFeatureGate)
	if p.settings.Config.ShowHiddenMetricsForVersion != "" {
		metrics.SetShowHidden()
	}
	p.deps.Observability.PodStartup = util.NewPodStartupLatencyTracker()
	p.deps.Observability.NodeStartup = util.NewNodeStartupLatencyTracker()
	return nil
}

// makeAbsolute makes the directories independent of where the agent was started: the container runtime gets paths below
// them, and has another working directory.
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

// identify finds out who this node is. An address of --node-ip that cannot be read is left out with a warning, as ever.
func (p *process) identify(ctx context.Context) error {
	hostname, err := nodeutil.GetHostname(p.settings.Flags.HostnameOverride)
	if err != nil {
		return fmt.Errorf("--hostname-override %q: %w", p.settings.Flags.HostnameOverride, err)
	}
	ips, unreadable, err := nodeutil.ParseNodeIPArgument(p.settings.Flags.NodeIP, p.settings.Flags.CloudProvider)
	if err != nil {
		return fmt.Errorf("bad --node-ip %q: %w", p.settings.Flags.NodeIP, err)
	}
	if len(unreadable) > 0 {
		klog.FromContext(ctx).Info("Could not parse some node IP(s), ignoring them", "IPs", unreadable)
	}
	p.deps.Identity = kubelet.Identity{Hostname: hostname, NodeName: types.NodeName(hostname), NodeIPs: ips}
	return nil
}

// prepareProcess sets what the kernel and libraries must know about this process. Without the right to, it only says
// so.
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
