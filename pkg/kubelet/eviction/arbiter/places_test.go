package arbiter

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// E12: requests that no decision serves, since their pods terminate for another reason or opted out, keep no place from
// others for longer than servePatience.
func TestE12RequestsThatAreNotServedGiveTheirPlacesBack(t *testing.T) {
	for _, force := range []bool{true, false} {
		h := newHistory(t, Pod{UID: "stuck0"}, Pod{UID: "stuck1"}, Pod{UID: "stuck2"}, Pod{UID: "z", Priority: 1})
		h.rules.MaxInFlight = 2
		asked := Answer{Plugin: "q", Threshold: &Threshold{}, Demand: &Demand{}}
		for _, uid := range []types.UID{"stuck0", "stuck1", "stuck2"} {
			asked.Demand.Pods = append(asked.Demand.Pods, PodDemand{UID: uid, Force: force})
		}
		other := Answer{Plugin: "p", Threshold: &Threshold{}, Demand: &Demand{
			Pods: []PodDemand{{UID: "z", Force: force}},
		}}
		served := 0
		for begun := h.now; h.now.Sub(begun) < 4*servePatience; {
			out := h.round(asked, other)
			if len(out.Requests) > h.rules.MaxInFlight {
				t.Errorf("%d requests", len(out.Requests))
			}
			for i := range out.Requests {
				if out.Requests[i].UID == "z" {
					served++
				}
			}
		}
		h.expect(fmt.Sprint("requested in some rounds, force ", force), fmt.Sprint(served > 0), "true")
	}
}
