package plugin

import (
	"testing"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// An eviction counts for the plugins that have caused it, also when it is no longer requested once it has begun. A pod
// that something else had begun to stop before does not count: the node may have evicted it meanwhile.
func TestEvictionIsCountedAfterTheRequestHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, options(), map[string]Plugin{"counts-a": forcing(), "counts-b": forcing()})
		r.start()
		defer r.stop()
		for _, answer := range []podkill.Answer{podkill.Begun, podkill.Hastened, podkill.Unchanged, podkill.AlreadyStopped} {
			r.Result(t.Context(), &eviction.Result{Kind: eviction.KillAccepted, Answer: answer, Victim: &policy.Victim{
				Pod:   &snapshot.Pod{Facts: &snapshot.Facts{UID: "a"}},
				Cause: policy.Cause{Kind: policy.PluginRequest, Plugins: "counts-a,counts-b"},
			}})
		}
		list := r.List().Plugins
		r.expect("evicted", text(list[0].Pods.Evicted, list[1].Pods.Evicted), "1 1")
	})
}
