package admission

import (
	"context"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	v1qos "k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/kubernetes/pkg/kubelet/sysctl"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/tainttoleration"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown"
)

// countedReasons are the label values of the rejections metric, fixed to bound its cardinality.
var countedReasons = sets.New(
	policy.ReasonEvicted,
	lifecycle.AppArmorNotAdmittedReason,
	lifecycle.InitContainerRestartPolicyForbidden,
	lifecycle.InvalidNodeInfo,
	lifecycle.OutOfCPU,
	lifecycle.OutOfEphemeralStorage,
	lifecycle.OutOfMemory,
	lifecycle.OutOfPods,
	lifecycle.PodFeatureUnsupported,
	lifecycle.PodLevelResourcesNotAdmittedReason,
	lifecycle.PodOSNotSupported,
	lifecycle.PodOSSelectorNodeLabelDoesNotMatch,
	lifecycle.SupplementalGroupsPolicyNotSupported,
	lifecycle.UnexpectedAdmissionError,
	lifecycle.UnexpectedPredicateFailureType,
	lifecycle.UnknownReason,
	nodeshutdown.ReasonNotAdmitted,
	sysctl.ForbiddenReason,
	tainttoleration.ErrReasonNotMatch,
	topologymanager.ErrorTopologyAffinity,
	volumemanager.VolumeAttachmentLimitExceededReason,
)

// StatusSetter publishes a pod's status.
type StatusSetter interface {
	SetPodStatus(logger klog.Logger, pod *v1.Pod, status v1.PodStatus) (v1.PodStatus, bool)
}

// Rejector reports to the API server that a pod was rejected.
type Rejector struct {
	recorder record.EventRecorder
	status   StatusSetter
}

// NewRejector returns a rejector that writes to the given recorder and status manager.
func NewRejector(recorder record.EventRecorder, status StatusSetter) *Rejector {
	return &Rejector{recorder: recorder, status: status}
}

// Reject writes a warning event with the reason and sets the pod's phase to Failed. It does not stop containers.
func (r *Rejector) Reject(ctx context.Context, pod *v1.Pod, reason, message string) {
	r.recorder.Event(pod, v1.EventTypeWarning, reason, message)
	r.status.SetPodStatus(klog.FromContext(ctx), pod, v1.PodStatus{
		Phase:    v1.PodFailed,
		QOSClass: v1qos.GetPodQOS(pod),
		Reason:   reason,
		Message:  "Pod was rejected: " + message,
	})
}

// RejectAndCount is Reject for refusals outside the chain of admit handlers, such as a volume attachment limit.
func (r *Rejector) RejectAndCount(ctx context.Context, pod *v1.Pod, reason, message string) {
	r.Reject(ctx, pod, reason, message)
	countRejection(reason)
}

func countRejection(reason string) {
	metrics.AdmissionRejectionsTotal.WithLabelValues(rejectionLabel(reason)).Inc()
}

// rejectionLabel maps a reason to the fixed set of label values that stock uses.
func rejectionLabel(reason string) string {
	switch {
	case countedReasons.Has(reason):
		return reason
	case strings.HasPrefix(reason, lifecycle.InsufficientResourcePrefix):
		return "OutOfExtendedResources"
	default:
		return "Other"
	}
}
