package decisionlog

import (
	"strings"
	"testing"
	"time"

	"k8s.io/component-base/metrics/testutil"
)

func TestSignalsAreCollected(t *testing.T) {
	w := newWorld(t, 1, Config{})
	w.available = 2 * gi
	w.round(time.Second)
	want := `
# HELP plimsoll_eviction_signal_available [ALPHA] Available amount of a signal in the last round, in bytes, inodes or processes.
# TYPE plimsoll_eviction_signal_available gauge
plimsoll_eviction_signal_available{signal="memory.available"} 2.147483648e+09
# HELP plimsoll_eviction_signal_headroom_ratio [ALPHA] What is available of a signal above its hard threshold, as a share of its capacity; negative while it is met.
# TYPE plimsoll_eviction_signal_headroom_ratio gauge
plimsoll_eviction_signal_headroom_ratio{signal="memory.available"} 0.0625
# HELP plimsoll_eviction_signal_threshold [ALPHA] Amount below which the hard threshold of a signal is met, in bytes, inodes or processes.
# TYPE plimsoll_eviction_signal_threshold gauge
plimsoll_eviction_signal_threshold{signal="memory.available"} 1.073741824e+09
`
	if err := testutil.CustomCollectAndCompare(w.log.Collector(), strings.NewReader(want),
		"plimsoll_eviction_signal_available", "plimsoll_eviction_signal_headroom_ratio",
		"plimsoll_eviction_signal_threshold"); err != nil {
		t.Error(err)
	}
}
