package app

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/utils/cpuset"
)

// nodeConfig returns the settings of the container manager.
func (p *process) nodeConfig(reserved cpuset.CPUSet) (cm.NodeConfig, error) {
	config, flags := p.settings.Config, p.settings.Flags
	node := cm.NodeConfig{
		NodeName:              p.deps.Identity.NodeName,
		KubeletRootDir:        flags.RootDirectory,
		CgroupRoot:            config.CgroupRoot,
		CgroupDriver:          config.CgroupDriver,
		CgroupsPerQOS:         config.CgroupsPerQOS,
		KubeletCgroupsName:    config.KubeletCgroups,
		RuntimeCgroupsName:    flags.RuntimeCgroups,
		SystemCgroupsName:     config.SystemCgroups,
		KubeletOOMScoreAdj:    config.OOMScoreAdj,
		ProtectKernelDefaults: config.ProtectKernelDefaults,
		PodPidsLimit:          config.PodPidsLimit,
		EnforceCPULimits:      config.CPUCFSQuota,
		CPUCFSQuotaPeriod:     config.CPUCFSQuotaPeriod.Duration,
	}
	p.setManagerPolicies(&node)
	return node, p.setReservations(&node, reserved)
}

// setManagerPolicies sets the policies of the CPU, memory and topology managers.
func (p *process) setManagerPolicies(node *cm.NodeConfig) {
	config := p.settings.Config
	node.CPUManagerPolicy = config.CPUManagerPolicy
	node.CPUManagerPolicyOptions = config.CPUManagerPolicyOptions
	node.CPUManagerReconcilePeriod = config.CPUManagerReconcilePeriod.Duration

	node.MemoryManagerPolicy = config.MemoryManagerPolicy
	node.MemoryManagerReservedMemory = config.ReservedMemory
	node.MemoryReservationPolicy = config.MemoryReservationPolicy

	node.TopologyManagerPolicy = config.TopologyManagerPolicy
	node.TopologyManagerScope = config.TopologyManagerScope
	node.TopologyManagerPolicyOptions = config.TopologyManagerPolicyOptions
}

// setReservations sets the resources that are reserved for the system and the kubelet.
func (p *process) setReservations(node *cm.NodeConfig, cpus cpuset.CPUSet) (err error) {
	config := p.settings.Config
	allocatable := &node.NodeAllocatableConfig
	allocatable.EnforceNodeAllocatable = sets.New(config.EnforceNodeAllocatable...)
	allocatable.ReservedSystemCPUs = cpus
	allocatable.SystemReservedCgroupName = config.SystemReservedCgroup
	allocatable.KubeReservedCgroupName = config.KubeReservedCgroup
	if !p.settings.Flags.ExperimentalNodeAllocatableIgnoreEvictionThreshold {
		if allocatable.HardEvictionThresholds, err = reservedForEviction(config.EvictionHard); err != nil {
			return err
		}
	}
	if allocatable.SystemReserved, err = parseReservation(config.SystemReserved); err != nil {
		return fmt.Errorf("systemReserved (--system-reserved): %w", err)
	}
	if allocatable.KubeReserved, err = parseReservation(config.KubeReserved); err != nil {
		return fmt.Errorf("kubeReserved (--kube-reserved): %w", err)
	}
	qos, err := cm.ParseQOSReserved(config.QOSReserved)
	if err != nil {
		return fmt.Errorf("qosReserved (--qos-reserved): %w", err)
	}
	node.QOSReserved = *qos
	return nil
}
