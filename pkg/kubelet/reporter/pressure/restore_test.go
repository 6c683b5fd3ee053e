package pressure

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// nearAnswer is the answer of a run that has found memory near its threshold.
func nearAnswer(t *testing.T) []merge.Content {
	t.Helper()
	r := newRig(t)
	r.round(outlook(10*gi, time.Minute, time.Time{}))
	if _, node := r.last(); node.Labels[Domain+"/memory"] != string(policy.LevelNear) {
		t.Fatalf("%+v", node)
	}
	r.cancel()
	if err := <-r.ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	return r.sent[len(r.sent)-1]
}

// TestLevelsOfAnEarlierRun: after a restart nothing is reported before the first outlook, and a level does not get
// better at once because growth is not measured yet.
func TestLevelsOfAnEarlierRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		earlier := nearAnswer(t)
		r := newRigWith(t, func(p *Plugin) { p.Restore(earlier) })
		polled, err := r.GetReportContent(t.Context())
		if n := r.messages(); n != 0 || !errors.Is(err, reporter.ErrNotCalled) {
			t.Errorf("before the first outlook: polled %v, %v, %d messages", polled, err, n)
		}
		r.round()
		if n := r.messages(); n != 0 {
			t.Errorf("after an outlook without signals there were %d messages", n)
		}
		for second := 0; second <= 70; second += 10 {
			r.round(outlook(10*gi, 0, time.Time{}))
			want := policy.LevelNear
			if second >= 60 {
				want = policy.LevelCalm
			}
			if _, node := r.last(); node.Labels[Domain+"/memory"] != string(want) {
				t.Errorf("after %d s: %+v, want %s", second, node, want)
			}
			time.Sleep(10 * time.Second)
		}
		r.cancel()
		if err := <-r.ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestNoOutlookAfterARestart: a plugin that observes nothing says so, when an observation of the earlier run would be
// too old.
func TestNoOutlookAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		earlier := nearAnswer(t)
		r := newRigWith(t, func(p *Plugin) { p.Restore(earlier) })
		time.Sleep(maxAge - time.Nanosecond)
		if n := r.messages(); n != 0 {
			t.Errorf("%d messages too early", n)
		}
		time.Sleep(time.Nanosecond)
		if n, node := r.last(); n != 1 || len(node.Labels)+len(node.Annotations) != 0 {
			t.Errorf("%d messages, %+v", n, node)
		}
		r.cancel()
		if err := <-r.ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestWhatIsNoAnswerIsNotRestored: a checkpoint may have anything.
func TestWhatIsNoAnswerIsNotRestored(t *testing.T) {
	for name, value := range map[string]string{
		"no map": `[]`, "nothing of ours": `{"example.com/a":"b"}`, "no list": `{"` + SignalsAnnotation + `":"{}"}`,
		"no signal": `{"` + SignalsAnnotation + `":"[{\"signal\":\"x\",\"level\":\"near\"}]"}`,
		"no level":  `{"` + SignalsAnnotation + `":"[{\"signal\":\"memory.available\",\"level\":\"far\"}]"}`,
	} {
		p := New(clock.RealClock{}, func() Settings { return Settings{} })
		p.Restore([]merge.Content{{Kind: merge.NodeKind, Fields: []merge.ReportField{
			{Part: merge.Metadata, Name: "Annotations", Value: []byte(value)},
		}}})
		if contents, err := p.GetReportContent(t.Context()); err != nil || len(contents) != 0 {
			t.Errorf("%s: %v, %v", name, contents, err)
		}
	}
}
