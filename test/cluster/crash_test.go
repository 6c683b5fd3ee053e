package cluster

import (
	"slices"
	"testing"
)

func TestRunningTasks(t *testing.T) {
	got, err := runningTasks(
		"TASK    PID     STATUS    \nabc     12      RUNNING\ndef     13      STOPPED\nghi     14      RUNNING\n")
	if want := []string{"abc", "ghi"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("tasks are %v, %v, want %v", got, err, want)
	}
	if _, err := runningTasks("TASK PID STATUS\nabc 12\n"); err == nil {
		t.Error("a line without a status is taken for granted")
	}
}
