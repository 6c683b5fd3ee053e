// Package fakeworkers has fakes without effect for the parts of pod workers that a test does not need.
package fakeworkers

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/terminations"
)

// Terminations stores no records.
type Terminations struct{}

// Save drops the record.
func (Terminations) Save(terminations.Record) bool { return true }

// Get finds no record.
func (Terminations) Get(types.UID) (terminations.Record, bool) { return terminations.Record{}, false }

// DeleteFunc has no records to delete.
func (Terminations) DeleteFunc(func(terminations.Record) bool) {}

// Hastener always fails, so that pod workers repeat a termination with the shorter grace period.
type Hastener struct{}

// Hasten returns an error.
func (Hastener) Hasten(context.Context, podsync.TerminateRequest) error {
	return errors.New("a termination in progress cannot be shortened")
}

// Allocation has no allocated resources.
type Allocation struct{}

// UpdatePodFromAllocation returns the pod unchanged.
func (Allocation) UpdatePodFromAllocation(pod *v1.Pod) (*v1.Pod, bool) { return pod, false }

// EarlierStaticPods has no static pods of an earlier run of the agent.
type EarlierStaticPods struct{}

// RunningStaticPods returns no pods.
func (EarlierStaticPods) RunningStaticPods(context.Context, string) ([]*kubecontainer.Pod, error) {
	return nil, nil
}

// NoneOverdue returns no overdue pods.
func NoneOverdue() map[types.UID]escalation.Overdue { return nil }
