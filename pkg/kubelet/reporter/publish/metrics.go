package publish

import "github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter"

// The values of the label object.
const (
	objectLabel = "CustomNodeResource"
	statusLabel = objectLabel + "/status"
	taintsLabel = objectLabel + "/taints"
	written     = "written"
)

// countWrite counts a request that has ended.
func countWrite(object string, err error) {
	result := written
	if p := problemOf(err); p != noProblem {
		result = string(p)
	}
	reporter.CountWrite(object, result)
}
