package kubelet

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/prober"
	"k8s.io/kubernetes/pkg/kubelet/util"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/admission"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/cgroupkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/housekeeping"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus/generator"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync/deadline"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/terminations"
)

const (
	// workerBackOff is the time after which a pod worker repeats a failed operation; as in stock.
	workerBackOff = 10 * time.Second
	// instrumentationScope is the scope of the agent's spans. It equals stock's, so that traces can be compared.
	instrumentationScope = "k8s.io/kubernetes/pkg/kubelet"
)

// workerParts are the pod workers, their operations, and housekeeping.
type workerParts struct {
	probes   prober.Manager
	deadline *deadline.Handler
	backOff  *flowcontrol.Backoff
	disk     *housekeeping.Disk
	rejector *admission.Rejector
	syncer   *podsync.Syncer
	records  *terminations.Store
	workers  *podworkers.Workers
	cleaner  *housekeeping.Cleaner
	// killer kills the processes of pods, cgroupMounts are the mount points by controller; nil if pods have no cgroups.
	killer       *cgroupkill.Killer
	cgroupMounts map[string]string
	// fences is nil if pods have no cgroups.
	fences *podFences
}

func (b *build) makeWorkers(context.Context) error {
	w, recorder, probes := &b.workers, b.Observability.Recorder, b.pods.probes
	w.probes = prober.NewManager(b.pods.status, probes.liveness, probes.readiness, probes.startup, b.runtime.manager,
		recorder)
	w.deadline = deadline.New(b.pods.status, recorder, b.clock)
	w.backOff = podsync.NewBackOff(b.Config.CrashLoopBackOff.MaxContainerRestartPeriod,
		podsync.FeaturesFrom(b.FeatureGates))
	w.disk = housekeeping.NewDisk(b.layout, b.Machine.Mounter, b.volumes.manager)
	w.rejector = admission.NewRejector(b.recordedAdmissions(decisionlog.Rejected), b.pods.status)
	w.records = terminations.New(terminations.Config{
		Directory: b.layout.Terminations(), Clock: b.clock,
		ShuttingDown: b.forward.shuttingDown,
	})
	if b.Config.CgroupsPerQOS {
		if err := b.makeKiller(); err != nil {
			return err
		}
		w.fences = b.newPodFences()
	}
	syncer := b.syncer()
	if w.fences != nil {
		syncer.Processes, syncer.RepairFence = w.killer, w.fences.repair
	}
	w.syncer = podsync.New(syncer)
	w.workers = podworkers.New(b.podWorkers())
	b.forward.workers = w.workers
	w.cleaner = housekeeping.New(b.cleaner())
	return nil
}

// statusGenerator returns the generator, which computes the status of a pod from the status in the runtime.
func (b *build) statusGenerator() *generator.Generator {
	containers, terminating := b.Machine.ContainerManager, b.pods.lifecycle.IsPodTerminationRequested
	cfg := generator.Config{
		Statuses: b.pods.status, Resizes: b.pods.status, Reasons: b.pods.reasons, Probes: b.workers.probes,
		Devices: b.Machine.ContainerManager, Images: b.runtime.manager,
		PodCgroups: func() generator.PodCgroups {
			return unfencedCgroups{containers.NewPodContainerManager(), terminating}
		},
		RuntimeHandlers: b.volumes.state.RuntimeHandlers,
		NodeIPs:         b.Identity.NodeIPs,
		Evictors:        []generator.Evictor{b.workers.deadline},
		Recorder:        b.Observability.Recorder,
		Features:        generator.FeaturesFrom(b.FeatureGates),
	}
	if !util.IsCgroup2UnifiedMode() {
		cfg.OOMVictims = b.workers.fences.oomVictims
	}
	if !b.Clients.Standalone() {
		cfg.RuntimeClasses, cfg.HostIPs = b.objects.runtimeClasses, b.sources.view.HostIPs
	}
	return generator.New(cfg)
}

func (b *build) syncer() podsync.Config {
	cfg := podsync.Config{
		Generator: b.statusGenerator(), Statuses: b.pods.status, Runtime: b.runtime.manager, Stopper: b.Runtime.Runtime,
		Containers: b.Machine.ContainerManager, CgroupsPerQOS: b.Config.CgroupsPerQOS, Lifecycle: b.pods.lifecycle,
		Shutdown:      forwardShutdown{b.forward},
		NetworkErrors: b.volumes.state.NetworkErrors, Mirrors: b.pods.mirrors, Node: b.sources.view.Lookup,
		DataDirs: b.runtime.helper,
		Volumes:  b.volumes.manager, VolumePaths: b.workers.disk, UnmountsVolumes: b.sources.ready.AllReady,
		Probes: b.workers.probes, StartErrors: b.pods.reasons,
		UserNamespaces: b.volumes.userNamespaces, BackOff: b.workers.backOff, Reject: b.workers.rejector.RejectAndCount,
		Requeue:  b.forward.requeue,
		Relist:   b.forward.relist,
		Recorder: b.Observability.Recorder, Tracer: b.Observability.TracerProvider.Tracer(instrumentationScope),
		Features: podsync.FeaturesFrom(b.FeatureGates),
	}
	if b.objects.secrets != nil {
		cfg.Secrets, cfg.ConfigMaps = b.objects.secrets, b.objects.configMaps
	}
	return cfg
}

// makeKiller makes the killer of the processes of pods that the runtime does not stop, or not soon enough.
func (b *build) makeKiller() error {
	cgroups, err := cm.GetCgroupSubsystems()
	if err != nil {
		return fmt.Errorf("finding the mount points of cgroups: %w", err)
	}
	w := &b.workers
	w.cgroupMounts = cgroups.MountPoints
	w.killer = cgroupkill.New(cgroupkill.Config{Unified: util.IsCgroup2UnifiedMode(), Mounts: w.cgroupMounts})
	return nil
}

func (b *build) podWorkers() podworkers.Config {
	return podworkers.Config{
		Store: b.pods.lifecycle, Syncer: b.workers.syncer, Runtime: b.workers.syncer, Hastener: b.workers.syncer,
		PodCache: b.pods.cache, Queue: b.pods.queue,
		Recorder: b.Observability.Recorder, Allocation: b.pods.allocations, Terminations: b.workers.records,
		Overdue:           b.workers.syncer.Overdue,
		EarlierStaticPods: podworkers.NewEarlierStaticPods(b.Runtime.Runtime, b.runtime.manager),
		ResyncInterval:    b.Config.SyncFrequency.Duration, BackoffPeriod: workerBackOff, Clock: b.clock,
	}
}

func (b *build) cleaner() housekeeping.Config {
	cfg := housekeeping.Config{
		Pods: b.pods.manager, Workers: b.workers.workers, Mirrors: b.pods.mirrors, Lifecycle: b.pods.lifecycle,
		Active: b.pods.view, Runtime: b.runtime.cache, Disk: b.workers.disk, Probes: b.workers.probes,
		Statuses: b.pods.status,
		Waiting:  b.forward.isWaiting, ShuttingDown: b.forward.shuttingDown,
		Allocations: b.pods.allocations, UserNamespaces: b.volumes.userNamespaces, BackOff: b.workers.backOff, Clock: b.clock,
	}
	if b.Config.CgroupsPerQOS {
		containers := b.Machine.ContainerManager
		cfg.Cgroups = func() housekeeping.PodCgroups { return containers.NewPodContainerManager() }
	}
	return cfg
}
