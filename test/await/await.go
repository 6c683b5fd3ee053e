// Package await lets tests wait for other goroutines and processes where a synctest bubble cannot be used.
package await

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	pollInterval = 20 * time.Millisecond
	// limit is far more than anything takes, on a machine that is busy with other tests.
	limit = time.Minute
)

// Until calls check until it returns nil. After a minute the test fails with the last error of check. It may only be
// called from the goroutine that runs the test.
func Until(t testing.TB, what string, check func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, limit, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, errors.Join(err, last))
	}
}

// True is Until for a condition that has no error to show.
func True(t testing.TB, what string, condition func() bool) {
	t.Helper()
	Until(t, what, func() error {
		if !condition() {
			return errors.New("the condition does not hold")
		}
		return nil
	})
}
