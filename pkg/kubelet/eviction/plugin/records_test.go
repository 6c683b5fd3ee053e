package plugin

import (
	"context"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin/records"
)

// recordsOf are records of pods, which take some time.
func recordsOf(took time.Duration) func(context.Context, []*v1.Pod) map[types.UID]records.Record {
	return func(ctx context.Context, pods []*v1.Pod) map[types.UID]records.Record {
		select {
		case <-time.After(took):
		case <-ctx.Done():
		}
		of := map[types.UID]records.Record{}
		for _, p := range pods {
			of[p.UID] = records.Record{UID: p.UID}
		}
		return of
	}
}

// choosing has a hard threshold with candidates, and keeps the view of the last question. It names the first pod that
// has a record.
type choosing struct {
	scripted
	view *View
}

func newChoosing(candidates ...types.UID) *choosing {
	c := &choosing{}
	c.threshold = func(context.Context, *View) (*arbiter.Threshold, error) {
		return &arbiter.Threshold{Kind: arbiter.Hard, Scope: "memory", Candidates: candidates}, nil
	}
	c.top = func(ctx context.Context, v *View, _ arbiter.Question) (*arbiter.Reply, error) {
		c.view = v
		reply := &arbiter.Reply{}
		for _, p := range v.Pods {
			if _, ok := v.Records[p.UID]; ok && len(reply.Pods) == 0 {
				reply.Pods = append(reply.Pods, p.UID)
			}
		}
		return reply, ctx.Err()
	}
	return c
}

func (c *choosing) given() (uids []types.UID) {
	for uid := range c.view.Records {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return uids
}

// A question has the records of its candidates that it may name, and of no other pod.
func TestRecordsOfCandidates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newChoosing("c", "b", "d", "gone", "skipped")
		skipped := pod("skipped", func(p *v1.Pod) { p.Labels = map[string]string{"skip": ""} })
		o := options()
		o.Skip.LabelKeys = []string{"skip"}
		r := newRig(t, o, map[string]Plugin{"p": p}, pod("a"), pod("b"), pod("c"), pod("d"), skipped)
		r.Driver.config.Records = recordsOf(0)
		r.set(func() { r.inFlight = []eviction.InFlightPod{{UID: "d"}} })
		r.start()
		defer r.stop()
		pass(time.Second)
		r.expect("records", text(p.given()), "[b c]")
		r.expect("pods", text(len(p.view.Pods)), "3")
		r.expect("requests", r.requested(), "b")
	})
}

// Without candidates, or where there are no records, a question has none.
func TestQuestionsWithoutRecords(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, tc := range map[string]struct {
			plugin  *choosing
			records func(context.Context, []*v1.Pod) map[types.UID]records.Record
		}{
			"no candidates": {newChoosing(), recordsOf(0)},
			"no records":    {newChoosing("a"), nil},
		} {
			r := newRig(t, options(), map[string]Plugin{"p": tc.plugin}, pod("a"))
			r.Driver.config.Records = tc.records
			r.start()
			pass(time.Second)
			r.stop()
			if tc.plugin.view == nil || tc.plugin.view.Records != nil {
				t.Errorf("%s: the view is %+v", name, tc.plugin.view)
			}
		}
	})
}

// The time for records is no part of the time of the call, and other plugins do not wait for them.
func TestRecordsTakeNoTimeOfACall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := options()
		o.CallTimeout = 100 * time.Millisecond
		r := newRig(t, o, map[string]Plugin{"p": newChoosing("a"), "other": forcing("b")}, pod("a"), pod("b"))
		r.Driver.config.Records = recordsOf(time.Second)
		r.start()
		defer r.stop()
		pass(gatherTime)
		r.expect("while records are read", r.requested(), "b")
		pass(time.Second)
		requested := []string{}
		for _, q := range r.Requests() {
			requested = append(requested, string(q.UID))
		}
		slices.Sort(requested)
		r.expect("then", text(requested), "[a b]")
	})
}

// E1: a plugin that is removed while the records for its question are read is not asked.
func TestE1PluginRemovedWhileRecordsAreRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newChoosing("a")
		r := newRig(t, options(), nil, pod("a"))
		r.Driver.config.Records = recordsOf(time.Hour)
		r.setRemote(Remote{Name: "p", Socket: "/p.sock", Plugin: p})
		r.start()
		defer r.stop()
		pass(time.Second)
		r.setRemote()
		pass(2 * time.Hour)
		r.expect("questions", text(p.called("TopEvictionPods")), "0")
	})
}
