package kubelet

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/terminations"
)

// While the machine goes down only what has a reason of its own is kept for the next boot.
func TestShutdownIsNotKept(t *testing.T) {
	var down error
	kept := terminations.New(terminations.Config{Directory: t.TempDir()})
	u := uptime{Terminations: kept, goingDown: func() error { return down }}
	for _, tc := range []struct {
		uid   types.UID
		cause terminations.Cause
		down  bool
		want  bool
	}{
		{"killed before", terminations.Kill, false, true},
		{"shut down", terminations.Kill, true, false},
		{"evicted", terminations.Eviction, true, true},
		{"deleted", terminations.Deletion, true, true},
	} {
		if down = nil; tc.down {
			down = errors.New("node is shutting down")
		}
		if !u.Keep(terminations.Record{UID: tc.uid, Cause: tc.cause}) {
			t.Errorf("%s: no room", tc.uid)
		}
		if _, got := u.Get(tc.uid); got != tc.want {
			t.Errorf("%s: kept %v, want %v", tc.uid, got, tc.want)
		}
	}
}
