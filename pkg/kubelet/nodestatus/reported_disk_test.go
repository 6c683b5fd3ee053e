package nodestatus

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// A full disk costs the fields that are not recorded: those that are change at their pace, however long it is full.
func TestReportedFieldsChangeWhileOthersAreUnrecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w, r := newAPIServer(reportedNode()), newWorld(), newReporters(t)
		u := newUpdater(t, s, w, r.configure)
		runUpdater(t, u)
		r.report(u, true, labelled("0"))
		time.Sleep(3 * time.Second)
		directory := filepath.Dir(r.file)
		if err := errors.Join(os.RemoveAll(directory), os.WriteFile(directory, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		content := slots("1", "1")
		content.Labels = labelled("0").Labels
		r.report(u, true, content)
		time.Sleep(time.Hour)
		for i := range 10 {
			content.Labels = labelled(fmt.Sprint(i + 1)).Labels
			r.report(u, true, content)
			time.Sleep(13 * time.Second)
			wantReported(t, s, fmt.Sprintf("%d - - -", i+1))
		}
		if n := w.count(eventReportedUnrecorded); n != 1 {
			t.Errorf("%d events: %v", n, w.events)
		}
	})
}

// A shorter time between writes counts for a write that waits already.
func TestReportedPaceIsReloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w, r := newAPIServer(reportedNode()), newWorld(), newReporters(t)
		r.setSustained(5 * time.Minute)
		u := newUpdater(t, s, w, r.configure)
		runUpdater(t, u)
		for i := range 8 {
			r.report(u, true, labelled(fmt.Sprint(i)))
			time.Sleep(3 * time.Second)
		}
		wantReported(t, s, "4 - - -")
		r.setSustained(time.Second)
		time.Sleep(10 * time.Second)
		wantReported(t, s, "7 - - -")
	})
}
