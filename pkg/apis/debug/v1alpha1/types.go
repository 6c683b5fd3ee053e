// Package v1alpha1 has the JSON types of the pages below /debug that stock does not have. They are for people and for
// tools that examine a node. They may change in each release; CHANGELOG.md lists the changes.
package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// PodWorkerList is the page /debug/pods: all pod workers at one time.
type PodWorkerList struct {
	Time time.Time `json:"time"`
	// Workers are in the order of namespace, name and UID.
	Workers []PodWorker `json:"workers"`
	// Omitted is the number of workers beyond the longest list that is shown.
	Omitted int `json:"omitted,omitempty"`
}

// PodWorker is the state of one pod worker. It contains the pod's name, and no other part of its specification except
// what LastError repeats (ADR 12).
type PodWorker struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Static    bool      `json:"static"`
	Phase     string    `json:"phase"`
	// Operation is the operation in progress, "none" without one.
	Operation string `json:"operation"`
	// WaitsFor describes what the worker waits for. It is empty if it does not wait.
	WaitsFor string         `json:"waitsFor,omitempty"`
	Since    PodWorkerTimes `json:"since"`
	// Termination is nil until the termination of the pod is requested.
	Termination *Termination `json:"termination,omitempty"`
	// LastError is the error of the last operation that failed, nil if none has.
	LastError *OperationError `json:"lastError,omitempty"`
}

// PodWorkerTimes are the times at which the phases of a pod began. A phase that has not begun has no time. Operation is
// the start of the operation in progress.
type PodWorkerTimes struct {
	Seen       time.Time `json:"seen,omitzero"`
	Started    time.Time `json:"started,omitzero"`
	Requested  time.Time `json:"terminationRequested,omitzero"`
	Terminated time.Time `json:"terminated,omitzero"`
	Finished   time.Time `json:"finished,omitzero"`
	Operation  time.Time `json:"operation,omitzero"`
}

// Termination is the state of a requested termination.
type Termination struct {
	Cause string `json:"cause"`
	// GraceSeconds is the accepted grace period. Deadline is its end; it begins when it is accepted.
	GraceSeconds int64     `json:"gracePeriodSeconds"`
	Deadline     time.Time `json:"deadline,omitzero"`
	// Begun is true when no more containers are started.
	Begun bool `json:"begun"`
	// Hastened is true if an eviction or a shorter grace period was requested after the first request.
	Hastened bool `json:"hastened"`
	// Waiters is the number of requests that wait for the end of the containers.
	Waiters int `json:"waiters"`
	// Stuck is true if the grace period has ended, and the time after it in which the runtime should have stopped the
	// containers.
	Stuck bool `json:"stuck"`
	// Detail is what the message in the status of the pod has in addition: whether and where an evicted pod was fenced.
	Detail string `json:"detail,omitempty"`
	// Overdue is nil until a step beyond the request to the runtime was taken.
	Overdue *Overdue `json:"overdue,omitempty"`
}

// Overdue is the escalation of a termination that the runtime has not completed in time (ADR 6).
type Overdue struct {
	// Since is the end of the grace period.
	Since time.Time `json:"since"`
	// Tried is the last step that was taken.
	Tried string `json:"tried"`
	// Left describes what was left of the pod at the time Seen: containers and processes.
	Left string    `json:"left"`
	Seen time.Time `json:"seen"`
}

// OperationError is the error of an operation of a pod worker.
type OperationError struct {
	Time time.Time `json:"time"`
	// Message is the beginning of the error's text, one line of at most 4 KiB. It may repeat the pod's specification and
	// the output of hooks.
	Message string `json:"message"`
	// Failures is the number of failed operations since the last one that succeeded.
	Failures int `json:"failures"`
}
