package kubelet

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ndf "k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/allocation"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/sysctl"
	"k8s.io/kubernetes/pkg/security/apparmor"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/admission"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodestatus"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/preemption"
)

// admissionParts decide which pods may start.
type admissionParts struct {
	declared nodestatus.Declared
	victims  *preemption.Handler
	gate     *admission.Gate
}

func (b *build) makeAdmission(ctx context.Context) error {
	a := &b.admission
	if err := b.declareFeatures(ctx); err != nil {
		return err
	}
	chain, err := b.admitChain(ctx)
	if err != nil {
		return err
	}
	b.pods.allocations.AddPodAdmitHandlers(chain.Handlers())
	a.gate = admission.NewGate(b.pods.allocations, b.pressure.readmission, b.pressure.room, b.workers.rejector)
	return nil
}

// declareFeatures finds out which features of pods this node has (KEP-5328); the runtime is asked once, a failure leaves its part out.
func (b *build) declareFeatures(ctx context.Context) (err error) {
	if !enabled(features.NodeDeclaredFeatures) {
		return nil
	}
	status, err := b.runtime.manager.Status(ctx)
	if err != nil {
		b.logger(ctx).V(4).Info("The runtime did not tell its features yet", "err", err)
	} else if status != nil {
		b.volumes.state.SetRuntimeFeatures(status.Features)
	}
	b.admission.declared, err = nodestatus.DiscoverFeatures(gates, b.volumes.state.RuntimeFeatures())
	return err
}

func (b *build) admitChain(ctx context.Context) (admission.Chain, error) {
	containers := b.Machine.ContainerManager
	// Sysctls that are safe may be named as unsafe ones too.
	allowed := slices.Concat(sysctl.SafeSysctlAllowlist(ctx), b.Config.AllowedUnsafeSysctls)
	sysctls, err := sysctl.NewAllowlist(allowed)
	if err != nil {
		return admission.Chain{}, fmt.Errorf("--allowed-unsafe-sysctls: %w", err)
	}
	b.admission.victims = preemption.NewHandler(preemption.Config{
		Pods: preemptionPods{b}, Lifecycle: b.pods.lifecycle, Kill: b.workers.workers.KillPod,
		EverythingTried: b.workers.workers.EverythingTried, OnAttemptEnd: b.pressure.room.RequestRetry, Recorder: b.Observability.Recorder,
	})
	predicates := admission.NewBeforeAndAfterPreemption(
		b.admission.victims.Predicates(func(failed lifecycle.AdmissionFailureHandler) lifecycle.PodAdmitHandler {
			return lifecycle.NewPredicateAdmitHandler(b.sources.view.CachedNode, failed, containers.UpdatePluginResources)
		}), b.pressure.room, b.admission.victims)
	chain := admission.Chain{
		Resize:          allocation.NewPodResizesAdmitHandler(containers, b.runtime.manager, b.pods.allocations, b.logger(ctx)),
		Pressure:        b.pressure.eviction,
		Sysctls:         sysctls,
		Resources:       containers.GetAllocateResourcesPodAdmitHandler(),
		Predicates:      predicates,
		EarlyPreemption: admission.NewEarlyPreemption(predicates, b.admission.victims),
		AppArmor:        lifecycle.NewAppArmorAdmitHandler(apparmor.NewValidator()),
		PodFeatures:     lifecycle.NewPodFeaturesAdmitHandler(),
		Shutdown:        b.pressure.shutdown,
	}
	if enabled(features.NodeDeclaredFeatures) {
		chain.DeclaredFeatures = lifecycle.NewDeclaredFeaturesAdmitHandler(ndf.DefaultFramework, b.admission.declared.Set, b.admission.declared.Version)
	}
	return chain, nil
}

// preemptionPods answers what preemption asks about pods.
type preemptionPods struct{ b *build }

func (p preemptionPods) IsWaiting(uid types.UID) bool { return p.b.pressure.room.IsWaiting(uid) }
func (p preemptionPods) Readmitted(pod *v1.Pod) bool  { return p.b.pressure.readmission.Readmitted(pod) }

// enteredPods are the active pods with what was allocated to them, without those that wait to enter.
func (b *build) enteredPods() []*v1.Pod { return b.pressure.room.Exclude(b.pods.view.Allocated()) }

// enteredPod is the one of enteredPods that has the UID.
func (b *build) enteredPod(uid types.UID) (*v1.Pod, bool) {
	if b.pressure.room.IsWaiting(uid) {
		return nil, false
	}
	return b.pods.view.AllocatedByUID(uid)
}
