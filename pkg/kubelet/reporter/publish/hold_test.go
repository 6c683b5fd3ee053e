package publish

import (
	"slices"
	"testing"
	"time"
)

// After a restart the checkpoint may be older than the object. As long as not all answers are confirmed, the object
// keeps what it has, except for what confirmed answers replace.
func TestUnconfirmedAnswersChangeNothing(t *testing.T) {
	const (
		newTaint = `{"effect":"NoSchedule","key":"node.katalyst.kubewharf.io/New","qosLevel":"shared_cores"}`
		oldTaint = `{"effect":"NoExecute","key":"node.katalyst.kubewharf.io/Old","qosLevel":"shared_cores"}`
	)
	bubble(t, func(a *agent) {
		a.give(labelsPath, `{"a/new":"2","b/x":"2"}`, properties, `[{"propertyName":"new"}]`, policy, `"New"`,
			taintsPath, "["+newTaint+","+ourTaint+"]")
		a.after(2 * time.Second)
		sent := a.api.sent()
		if len(sent) == 0 {
			t.Fatal("nothing was published")
		}
		a.restart()
		unconfirmed := func(fields, confirmed []string) {
			a.Set(Object{Fields: fieldsOf(fields...), Unconfirmed: true, Confirmed: fieldsOf(confirmed...)})
		}
		// No answer has been given, and the checkpoint is lost.
		unconfirmed(nil, nil)
		a.after(time.Minute)
		// The checkpoint is older: of b alone, which has been confirmed, something is replaced.
		old := []string{labelsPath, `{"b/x":"1"}`, policy, `"Old"`, taintsPath, "[" + oldTaint + "]"}
		unconfirmed(old, nil)
		a.after(time.Minute)
		a.expect(labelsPath, `{"a/new":"2","b/x":"2"}`)
		a.expect(properties, `[{"propertyName":"new"}]`)
		a.expect(policy, `"New"`)
		a.expect(taintsPath, "["+newTaint+","+ourTaint+","+oldTaint+"]")
		confirmed := slices.Clone(old)
		confirmed[1] = `{"b/x":"3"}`
		unconfirmed(confirmed, []string{labelsPath, `{"b/x":"3"}`, policy, `"Old"`})
		a.after(time.Minute)
		a.expect(labelsPath, `{"a/new":"2","b/x":"3"}`)
		a.expect(policy, `"Old"`)
		a.expect(properties, `[{"propertyName":"new"}]`)
		// All are confirmed.
		a.give(policy, `"Last"`)
		a.after(time.Minute)
		a.expect(policy, `"Last"`)
		a.expect(labelsPath, ``)
		a.expect(properties, ``)
		a.expect(taintsPath, ``)
	})
}
