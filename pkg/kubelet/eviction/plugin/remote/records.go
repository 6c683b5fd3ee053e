package remote

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin/records"
)

// recordFields encodes candidate_eviction_records of GetTopEvictionPodsRequest for pods, in their order, with at most
// limit bytes. Records that do not fit any more are left out; to the plugin they are unknown.
func recordFields(pods []encodedPod, of map[types.UID]records.Record, limit int) mem.SliceBuffer {
	var encoded []byte
	var left int
	for i := range pods {
		record, ok := of[pods[i].uid]
		if !ok {
			continue
		}
		field, err := proto.Marshal(&v1alpha1.GetTopEvictionPodsRequest{
			CandidateEvictionRecords: []*v1alpha1.EvictionRecord{messageOf(&record)},
		})
		if err != nil || len(encoded)+len(field) > limit {
			left++
			continue
		}
		encoded = append(encoded, field...)
	}
	if left > 0 {
		klog.V(2).InfoS("Eviction records are left out of a request to an eviction plugin", "count", left)
	}
	return encoded
}

// messageOf returns a record as Katalyst sends it: with the UID of the pod, and with buckets even if there are none.
// Times are seconds of the Unix epoch, durations are seconds.
func messageOf(r *records.Record) *v1alpha1.EvictionRecord {
	m := &v1alpha1.EvictionRecord{Uid: string(r.UID), Buckets: &v1alpha1.Buckets{}}
	for _, b := range r.Buckets {
		m.Buckets.List = append(m.Buckets.List, &v1alpha1.Bucket{
			Time: b.Start.Unix(), Duration: int64(records.BucketDuration.Seconds()), Count: b.Count,
		})
	}
	if b := r.Budget; b != nil {
		m.HasPdb, m.DisruptionsAllowed, m.CurrentHealthy = true, b.DisruptionsAllowed, b.CurrentHealthy
		m.DesiredHealthy, m.ExpectedPods = b.DesiredHealthy, b.ExpectedPods
	}
	return m
}
