package remote

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin/records"
)

// goldenRequest is a request that Katalyst's generated code decodes and encodes to the same bytes; test/katalyst holds
// that. Its pods are of no importance here.
const goldenRequest = "../../../../../test/katalyst/testdata/kubelet/GetTopEvictionPodsRequest.bin"

// goldenRecords are the records in the golden request.
func goldenRecords() map[types.UID]records.Record {
	const web, api = "0a1b2c3d-0000-4000-8000-000000000001", "0a1b2c3d-0000-4000-8000-000000000002"
	start := time.Unix(1700002800, 0).UTC()
	return map[types.UID]records.Record{
		web: {
			UID:     web,
			Buckets: []records.Bucket{{Start: start, Count: 5}, {Start: start.Add(3 * time.Hour), Count: 300}},
			Budget:  &records.Budget{DisruptionsAllowed: 1, CurrentHealthy: 2, DesiredHealthy: 3, ExpectedPods: 4},
		},
		api: {UID: api},
	}
}

// Records are encoded to the bytes of Katalyst.
func TestRecordsOnTheWire(t *testing.T) {
	golden, err := os.ReadFile(goldenRequest)
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	err = fields(golden, func(number protowire.Number, _ protowire.Type, _, whole []byte) error {
		if number == 4 {
			want = append(want, whole...)
		}
		return nil
	})
	if err != nil || len(want) == 0 {
		t.Fatalf("the golden request has the records %x, %v", want, err)
	}
	of := goldenRecords()
	var pods []encodedPod
	for uid := range of {
		pods = append(pods, encodedPod{uid: uid})
	}
	slices.SortFunc(pods, func(a, b encodedPod) int { return strings.Compare(string(a.uid), string(b.uid)) })
	if got := recordFields(pods, of, maxMessage); !slices.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", []byte(got), want)
	}
}

// A question has the records of the pods in it, and of no others.
func TestRecordsOfTheCandidates(t *testing.T) {
	of := map[types.UID]records.Record{}
	for _, uid := range []types.UID{"a", "b", "other"} {
		of[uid] = records.Record{UID: uid}
	}
	for _, tc := range []struct {
		candidates, want []types.UID
		records          map[types.UID]records.Record
	}{
		{[]types.UID{"c", "b", "gone"}, []types.UID{"b"}, of},
		{[]types.UID{"b", "a"}, []types.UID{"a", "b"}, of},
		{[]types.UID{"b", "a"}, nil, nil},
		{nil, nil, nil},
	} {
		s := &server{top: &v1alpha1.GetTopEvictionPodsResponse{}}
		v := viewOf("a", "b", "c")
		v.Records = tc.records
		_, err := serve(t, s).TopEvictionPods(t.Context(), v, arbiter.Question{Candidates: tc.candidates})
		if err != nil {
			t.Fatal(err)
		}
		var got []types.UID
		for _, r := range s.topRequest.GetCandidateEvictionRecords() {
			got = append(got, types.UID(r.GetUid()))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%v: the plugin was given the records of %v, want %v", tc.candidates, got, tc.want)
		}
	}
}

// A budget without disruptions is not the same as no budget.
func TestRecordOfABudget(t *testing.T) {
	blocked := messageOf(&records.Record{UID: "a", Budget: &records.Budget{}})
	if !blocked.GetHasPdb() || messageOf(&records.Record{UID: "a"}).GetHasPdb() {
		t.Errorf("has_pdb is wrong: %v", blocked)
	}
}

// A record that cannot be encoded costs no other.
func TestInvalidRecord(t *testing.T) {
	pods := []encodedPod{{uid: "\xff"}, {uid: "b"}}
	encoded := recordFields(pods, map[types.UID]records.Record{"\xff": {UID: "\xff"}, "b": {UID: "b"}}, maxMessage)
	var m v1alpha1.GetTopEvictionPodsRequest
	if err := proto.Unmarshal(encoded, &m); err != nil || len(m.GetCandidateEvictionRecords()) != 1 {
		t.Errorf("got %v, %v", &m, err)
	}
}

// A request with records has at most 4 MiB. Records that do not fit are left out, pods are not.
func TestE24RecordsThatDoNotFit(t *testing.T) {
	v := &plugin.View{Records: map[types.UID]records.Record{}}
	q := arbiter.Question{Scope: strings.Repeat("s", maxScope), TopN: math.MaxUint64}
	buckets := slices.Repeat([]records.Bucket{{Start: time.Unix(math.MaxInt32, 0), Count: math.MaxInt64}}, 25)
	const pods = 100
	for i := range pods {
		pod := podNamed(fmt.Sprintf("u%02d", i))
		pod.Annotations = map[string]string{"text": strings.Repeat("x", (maxMessage-(6<<10))/pods-100)}
		v.Pods = append(v.Pods, pod)
		v.Records[pod.UID] = records.Record{UID: pod.UID, Buckets: buckets, Budget: &records.Budget{ExpectedPods: -1}}
		q.Candidates = append(q.Candidates, pod.UID)
	}
	s := &server{top: &v1alpha1.GetTopEvictionPodsResponse{}}
	if _, err := serve(t, s).TopEvictionPods(t.Context(), v, q); err != nil {
		t.Fatal(err)
	}
	given, got := s.topRequest.GetActivePods(), s.topRequest.GetCandidateEvictionRecords()
	if len(given) != pods || len(got) == 0 || len(got) == pods || proto.Size(s.topRequest) > maxMessage {
		t.Errorf("the request has %d pods, %d records and %d bytes", len(given), len(got), proto.Size(s.topRequest))
	}
	for i, r := range got {
		if want := v.Pods[i].UID; types.UID(r.GetUid()) != want || len(r.GetBuckets().GetList()) != len(buckets) {
			t.Errorf("record %d is of %s, want %s with %d buckets", i, r.GetUid(), want, len(buckets))
		}
	}
	if limit := maxMessage - proto.Size(s.topRequest); limit > proto.Size(got[0])+8 {
		t.Errorf("a record is left out although %d bytes are left", limit)
	}
}
