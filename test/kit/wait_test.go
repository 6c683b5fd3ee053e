package kit

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestPollEndsWhenTheCheckHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		err := Poll(t.Context(), time.Minute, func(context.Context) error {
			if calls++; calls < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		if err != nil || calls != 3 {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
}

func TestPollReturnsTheLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := Poll(t.Context(), time.Minute, func(context.Context) error { return errors.New("not ready") })
		if err == nil || !strings.Contains(err.Error(), "not ready") {
			t.Errorf("error is %v", err)
		}
	})
}

func TestPollGivesUpAtOnceWhenHopeless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		pod := &v1.Pod{Status: v1.PodStatus{Phase: v1.PodSucceeded}}
		err := Poll(t.Context(), time.Minute, func(context.Context) error { return InPhase(v1.PodFailed)(pod) })
		if err == nil || time.Since(began) != 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}
