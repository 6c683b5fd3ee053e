package pressure

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestNothingIsReportedBeforeTheFirstOutlook: an empty answer would take the place of that of a checkpoint, so that the
// annotation and the labels would be absent until the first round after a restart.
func TestNothingIsReportedBeforeTheFirstOutlook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		time.Sleep(time.Hour)
		synctest.Wait()
		if contents, err := r.GetReportContent(t.Context()); !errors.Is(err, errNoOutlook) || len(r.sent) > 0 {
			t.Errorf("polled %v, %v, %d messages", contents, err, len(r.sent))
		}
		r.round(outlook(10*gi, 0, time.Time{}))
		contents, err := r.GetReportContent(t.Context())
		if n, node := r.last(); err != nil || len(contents) != 1 || n != 1 || node.Labels[Domain+"/memory"] != "calm" {
			t.Errorf("polled %v, %v, %d messages, %+v", contents, err, n, node)
		}
		r.cancel()
		<-r.ended
	})
}
