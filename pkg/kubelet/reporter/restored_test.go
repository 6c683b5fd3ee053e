package reporter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/answers"
)

func restorable(plugin, socket, value string) answers.Answer {
	now := time.Now()
	return answers.Answer{
		Key: answers.Key{Plugin: plugin, Socket: socket}, Contents: answer(value), Received: now, Confirmed: now,
	}
}

// Answers of a checkpoint are served before any plugin is called, plugins in the agent included, and each until its
// plugin has answered or the grace period is over, also if no plugin ever registers.
func TestRestoredAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, map[string]Plugin{"c": polled("new")}).restored(
			restorable("c", "", "old"), restorable("p", "/1", "old"), restorable("q", "/1", "old"))
		r.expect("c=old p=old q=old")
		select {
		case <-r.Changed():
		default:
			t.Error("the restored answers are not reported as a change")
		}
		r.start()
		defer r.stop()
		r.expect("c=new p=old q=old")
		pass(grace - 1)
		r.register(at("/2", polled("new")))
		r.expect("c=new p=new q=old")
		pass(1)
		r.expect("c=new p=new")
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil).restored(restorable("p", "/1", "old"))
		r.start()
		defer r.stop()
		pass(grace - 1)
		r.expect("p=old")
		pass(1)
		r.expect("")
	})
}

// AnswersChanged has a value after each change of what a checkpoint has, removals included, and none while plugins
// give the same answers.
func TestAnswersChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, at("/1", polled("a")))
		r.start()
		defer r.stop()
		expect := func(what string, want bool) {
			t.Helper()
			synctest.Wait()
			select {
			case <-r.AnswersChanged():
				if !want {
					t.Errorf("%s is a change", what)
				}
			default:
				if want {
					t.Errorf("%s is no change", what)
				}
			}
		}
		expect("the first answer", true)
		pass(time.Hour)
		expect("the same answer", false)
		if list := r.Answers(); len(list) != 1 || list[0].Plugin != "p" || !list[0].Lost.IsZero() ||
			!list[0].Confirmed.Equal(time.Now()) {
			t.Errorf("%+v", list)
		}
		r.register()
		expect("the stop", true)
		pass(grace)
		expect("the removal", true)
		if list := r.Answers(); len(list) != 0 {
			t.Errorf("%+v", list)
		}
	})
}
