package kubelet

import (
	"context"
	"fmt"
	"slices"

	ndf "k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/klog/v2"
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
	declared   nodestatus.DeclaredFeatures
	preemption *preemption.Handler
	gate       *admission.Gate
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
	a.gate = admission.NewGate(b.pods.allocations, b.pressure.readmission, b.pressure.waiting, b.workers.rejector)
	return nil
}

// declareFeatures discovers the features that the node declares (KEP-5328). It requests the features of the runtime
// once; if that fails, they are not declared.
func (b *build) declareFeatures(ctx context.Context) (err error) {
	if !b.enabled(features.NodeDeclaredFeatures) {
		return nil
	}
	status, err := b.runtime.manager.Status(ctx)
	if err != nil {
		klog.FromContext(ctx).V(4).Info("Failed to read the features of the container runtime", "err", err)
	} else if status != nil {
		b.volumes.state.SetRuntimeFeatures(status.Features)
	}
	b.admission.declared, err = nodestatus.DiscoverFeatures(b.FeatureGates, b.volumes.state.RuntimeFeatures())
	return err
}

func (b *build) admitChain(ctx context.Context) (admission.Chain, error) {
	containers := b.Machine.ContainerManager
	// A safe sysctl may also be listed in allowedUnsafeSysctls.
	allowed := slices.Concat(sysctl.SafeSysctlAllowlist(ctx), b.Config.AllowedUnsafeSysctls)
	sysctls, err := sysctl.NewAllowlist(allowed)
	if err != nil {
		return admission.Chain{}, fmt.Errorf("--allowed-unsafe-sysctls: %w", err)
	}
	handler := preemption.NewHandler(preemption.Config{
		Pods: preemptionPods{b.pressure.waiting, b.pressure.readmission}, Lifecycle: b.pods.lifecycle,
		Kill: b.workers.workers.KillPod, EscalationExhausted: b.workers.workers.EscalationExhausted,
		OnAttemptEnd: b.pressure.waiting.RequestRetry, Recorder: b.Observability.Recorder,
		Planned: b.pressure.log.Preemption,
	})
	b.admission.preemption, b.forward.preemption = handler, handler
	node := b.sources.view.CachedNode
	predicates := admission.NewBeforeAndAfterPreemption(
		handler.Predicates(func(failed lifecycle.AdmissionFailureHandler) lifecycle.PodAdmitHandler {
			return lifecycle.NewPredicateAdmitHandler(node, failed, containers.UpdatePluginResources)
		}), b.pressure.waiting, handler)
	chain := admission.Chain{
		Resize: allocation.NewPodResizesAdmitHandler(containers, b.runtime.manager, b.pods.allocations,
			klog.FromContext(ctx)),
		Pressure:        b.pressure.eviction,
		Sysctls:         sysctls,
		Resources:       containers.GetAllocateResourcesPodAdmitHandler(),
		Predicates:      predicates,
		EarlyPreemption: admission.NewEarlyPreemption(predicates, handler),
		AppArmor:        lifecycle.NewAppArmorAdmitHandler(apparmor.NewValidator()),
		PodFeatures:     lifecycle.NewPodFeaturesAdmitHandler(),
		Shutdown:        b.pressure.shutdown,
	}
	if b.enabled(features.NodeDeclaredFeatures) {
		declared := b.admission.declared
		chain.DeclaredFeatures = lifecycle.NewDeclaredFeaturesAdmitHandler(
			ndf.DefaultFramework, declared.Set, declared.Version)
	}
	return chain, nil
}

// preemptionPods implements preemption.Pods.
type preemptionPods struct {
	*admission.WaitingPods
	*admission.Readmission
}
