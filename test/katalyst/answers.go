package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewharf/katalyst-api/pkg/protocol/evictionplugin/v1alpha1"
)

// answers is the control file. A pod is given as namespace/name, or by its UID as uid:UID. What is absent is answered
// with the zero value.
type answers struct {
	Serve bool `json:"serve"`
	// Token is the answer to GetToken. Without it the call is not implemented, as in most plugins.
	Token string `json:"token,omitempty"`
	// Evict is the answer to GetEvictPods.
	Evict []evict `json:"evict,omitempty"`
	// Threshold is the answer to ThresholdMet, Top that to GetTopEvictionPods.
	Threshold *threshold `json:"threshold,omitempty"`
	Top       *top       `json:"top,omitempty"`
	// Condition is reported with the answers to GetEvictPods and ThresholdMet.
	Condition *condition `json:"condition,omitempty"`
	// Poll and Stream are what a reporter plugin reports. Without Poll GetReportContent is not implemented; without Stream
	// the stream stays open and has no message. Other values of EndStream end the stream that is open.
	Poll      []content `json:"poll,omitempty"`
	Stream    []content `json:"stream,omitempty"`
	EndStream int       `json:"endStream,omitempty"`
}

type evict struct {
	Pod    string `json:"pod"`
	Reason string `json:"reason,omitempty"`
	Force  bool   `json:"force,omitempty"`
	// GraceSeconds is the grace period in the deletion options, absent without options.
	GraceSeconds *int64 `json:"graceSeconds,omitempty"`
}

type threshold struct {
	// Met is SOFT_MET or HARD_MET.
	Met      string  `json:"met"`
	Scope    string  `json:"scope,omitempty"`
	Target   float64 `json:"target,omitempty"`
	Observed float64 `json:"observed,omitempty"`
	LessThan bool    `json:"lessThan,omitempty"`
	// GraceSeconds is for how long the threshold must be met until pods are asked for.
	GraceSeconds int64    `json:"graceSeconds,omitempty"`
	Candidates   []string `json:"candidates,omitempty"`
}

type top struct {
	Pods         []string `json:"pods"`
	GraceSeconds *int64   `json:"graceSeconds,omitempty"`
}

type condition struct {
	Name    string   `json:"name"`
	Met     bool     `json:"met"`
	Effects []string `json:"effects,omitempty"`
}

func readAnswers(file string) (*answers, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var a answers
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &a, nil
}

// podsOf returns the active pods that are named, in the order of the names. A pod that is not active is made up from
// what is given of it, so that a test can name any pod.
func podsOf(names []string, active []*v1.Pod) (list []*v1.Pod) {
	for _, name := range names {
		list = append(list, podOf(name, active))
	}
	return list
}

func podOf(name string, active []*v1.Pod) *v1.Pod {
	for _, pod := range active {
		if name == pod.Namespace+"/"+pod.Name || name == "uid:"+string(pod.UID) {
			return pod
		}
	}
	made := &v1.Pod{}
	if uid, ok := strings.CutPrefix(name, "uid:"); ok {
		made.UID = types.UID(uid)
	} else {
		made.Name = name
	}
	return made
}

func (c *condition) message() *v1alpha1.Condition {
	if c == nil {
		return nil
	}
	return &v1alpha1.Condition{
		ConditionType: v1alpha1.ConditionType_NODE_CONDITION, Effects: c.Effects, ConditionName: c.Name, MetCondition: c.Met,
	}
}

func options(seconds *int64) *v1alpha1.DeletionOptions {
	if seconds == nil {
		return nil
	}
	return &v1alpha1.DeletionOptions{GracePeriodSeconds: *seconds}
}
