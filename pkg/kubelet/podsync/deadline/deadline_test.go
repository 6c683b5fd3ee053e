package deadline

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"
)

type statuses map[types.UID]v1.PodStatus

func (s statuses) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	status, ok := s[uid]
	return status, ok
}

func TestDeadline(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	started := func(ago time.Duration) v1.PodStatus {
		return v1.PodStatus{StartTime: &metav1.Time{Time: now.Add(-ago)}}
	}
	for _, tc := range []struct {
		name      string
		limit     *int64
		published *v1.PodStatus
		fromAPI   v1.PodStatus
		want      bool
	}{
		{name: "no deadline", published: new(started(time.Hour))},
		{name: "not started", limit: new(int64(10))},
		{name: "before", limit: new(int64(10)), published: new(started(9999 * time.Millisecond))},
		{name: "at the moment", limit: new(int64(10)), published: new(started(10 * time.Second)), want: true},
		{name: "after", limit: new(int64(10)), published: new(started(time.Hour)), want: true},
		{name: "known to the API only", limit: new(int64(10)), fromAPI: started(time.Hour), want: true},
		{name: "published wins", limit: new(int64(10)), published: new(started(time.Second)), fromAPI: started(time.Hour)},
		{name: "zero", limit: new(int64(0)), published: new(started(0)), want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := statuses{}
			if tc.published != nil {
				s["uid"] = *tc.published
			}
			events := record.NewFakeRecorder(10)
			h := New(s, events, testingclock.NewFakePassiveClock(now))
			pod := &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{UID: "uid"}, Spec: v1.PodSpec{ActiveDeadlineSeconds: tc.limit}, Status: tc.fromAPI,
			}
			if got := h.ShouldSync(pod); got != tc.want || len(events.Events) != 0 {
				t.Errorf("ShouldSync %t with %d events", got, len(events.Events))
			}
			got := h.ShouldEvict(pod)
			if got.Evict != tc.want {
				t.Fatalf("ShouldEvict %+v", got)
			}
			if !tc.want {
				return
			}
			if got.Reason != "DeadlineExceeded" ||
				got.Message != "Pod was active on the node longer than the specified deadline" {
				t.Errorf("got %+v", got)
			}
			const event = "Normal DeadlineExceeded Pod was active on the node longer than the specified deadline"
			if e := <-events.Events; e != event {
				t.Error(e)
			}
		})
	}
}
