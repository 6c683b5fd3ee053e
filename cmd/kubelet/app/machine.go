package app

import (
	"context"
	"fmt"
	"strconv"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/mount-utils"
	"k8s.io/utils/cpuset"
)

// makeCAdvisor creates cAdvisor, which measures file systems and the cgroups of pods, kubelet, runtime and system.
func (p *process) makeCAdvisor(ctx context.Context) (err error) {
	config := p.settings.Config
	images := cadvisor.NewImageFsInfoProvider(config.ContainerRuntimeEndpoint)
	p.deps.Machine.CAdvisor, err = cadvisor.New(klog.FromContext(ctx), images, p.settings.Flags.RootDirectory,
		p.watchedCgroups(ctx),
		cadvisor.UsingLegacyCadvisorStats(config.ContainerRuntimeEndpoint), config.LocalStorageCapacityIsolation)
	return err
}

func (p *process) watchedCgroups(ctx context.Context) []string {
	config := p.settings.Config
	roots := []string{cm.NodeAllocatableRoot(config.CgroupRoot, config.CgroupsPerQOS, config.CgroupDriver)}
	own, err := cm.GetKubeletContainer(klog.FromContext(ctx), config.KubeletCgroups)
	if err != nil {
		klog.FromContext(ctx).Info("Failed to get the kubelet's cgroup. Kubelet system container metrics may be missing",
			"err", err)
	}
	for _, cgroup := range []string{own, p.settings.Flags.RuntimeCgroups, config.SystemCgroups} {
		if cgroup != "" {
			roots = append(roots, cgroup)
		}
	}
	return roots
}

// makeContainerManager creates the container manager, with the managers of CPUs, memory and devices.
func (p *process) makeContainerManager(ctx context.Context) error {
	config := p.settings.Config
	if config.CgroupsPerQOS && config.CgroupRoot == "" {
		klog.FromContext(ctx).Info("--cgroups-per-qos enabled, but --cgroup-root was not specified.  Defaulting to /")
		config.CgroupRoot = "/"
	}
	machine, err := p.deps.Machine.CAdvisor.MachineInfo()
	if err != nil {
		return err
	}
	reserved, err := reservedCPUs(klog.FromContext(ctx), machine, config.ReservedSystemCPUs)
	if err != nil {
		return err
	}
	p.overrideReservedCPU(ctx, reserved)
	node, err := p.nodeConfig(reserved)
	if err != nil {
		return err
	}
	p.deps.Machine.Mounter = mount.New(p.settings.Flags.ExperimentalMounterPath)
	p.deps.Machine.ContainerManager, err = cm.NewContainerManager(ctx, p.deps.Machine.Mounter, p.deps.Machine.CAdvisor,
		node,
		config.FailSwapOn, p.deps.Observability.Recorder, p.deps.Clients.Kube)
	return err
}

// reservedCPUs parses the list of CPUs that are reserved for the system.
func reservedCPUs(logger klog.Logger, machine *cadvisorapi.MachineInfo, list string) (cpuset.CPUSet, error) {
	if list == "" {
		return cpuset.New(), nil
	}
	const name = "reservedSystemCPUs (--reserved-cpus)"
	found, err := topology.Discover(logger, machine)
	if err != nil {
		return cpuset.New(), fmt.Errorf("unable to discover CPU topology info: %w", err)
	}
	reserved, err := cpuset.Parse(list)
	if err != nil {
		return cpuset.New(), fmt.Errorf("%s %q: %w", name, list, err)
	}
	if online := found.CPUDetails.CPUs(); !reserved.IsSubsetOf(online) {
		return cpuset.New(), fmt.Errorf("%s %q is not a subset of online-cpus: %s", name, list, online)
	}
	return reserved, nil
}

// overrideReservedCPU replaces the reserved amounts of CPU by the reserved list of CPUs.
func (p *process) overrideReservedCPU(ctx context.Context, reserved cpuset.CPUSet) {
	if reserved.IsEmpty() {
		return
	}
	config := p.settings.Config
	logger := klog.FromContext(ctx)
	logger.Info(
		"Option --reserved-cpus is specified, it will overwrite the cpu setting in KubeReserved and SystemReserved",
		"kubeReserved", config.KubeReserved, "systemReserved", config.SystemReserved)
	delete(config.KubeReserved, "cpu")
	if config.SystemReserved == nil {
		config.SystemReserved = map[string]string{}
	}
	config.SystemReserved["cpu"] = strconv.Itoa(reserved.Size())
	logger.Info("After cpu setting is overwritten", "kubeReserved", config.KubeReserved,
		"systemReserved", config.SystemReserved)
}
