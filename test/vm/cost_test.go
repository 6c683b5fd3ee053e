//go:build vm

package vm

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// costPeriod is one operation of BenchmarkIdleNode: stats are collected and the Node is reported in each.
	costPeriod = 10 * time.Second
	costTurns  = 2
	// costWarmUp is how many periods pass before: a kubelet that starts synchronizes all pods, which takes long under
	// emulation.
	costWarmUp = 6
)

// BenchmarkIdleNode measures the CPU time and the memory of the kubelet's unit on a node with 0, 30 and 60 pods that do
// nothing, ours and stock's in turn on the same machine:
//
//	go test -tags vm -run '^$' -bench IdleNode -benchtime 9x -timeout 2h ./test/vm
//
// Under emulation only the ratios have a meaning.
func BenchmarkIdleNode(b *testing.B) {
	count := 0
	for _, pods := range []int{0, 30, 60} {
		for ; count < pods; count++ {
			// One after the other, since pods that start side by side on an emulated machine time out.
			created := create(b, fmt.Sprintf("idle-%d", count), kit.IdlePod("idle"))
			waitPod(b, created[0], kit.Ready)
		}
		for range costTurns {
			for _, stock := range []bool{true, false} {
				must(b, node.UseKubelet(b.Context(), stock))
				b.Run(fmt.Sprintf("pods=%d/stock=%t", pods, stock), idleCost)
			}
		}
	}
}

// idleCost reports what the kubelet's unit uses in b.N periods.
func idleCost(b *testing.B) {
	tick := time.NewTicker(costPeriod)
	defer tick.Stop()
	for range costWarmUp {
		<-tick.C
	}
	before, began := kubeletUsage(b), time.Now()
	for b.Loop() {
		<-tick.C
	}
	after := kubeletUsage(b)
	b.ReportMetric((after.cpu-before.cpu).Seconds()/time.Since(began).Seconds()*1000, "millicores")
	b.ReportMetric(after.anonymous/(1<<20), "anonymous-MiB")
	b.ReportMetric(after.resident/(1<<20), "resident-MiB")
}

// usage is what the kubelet uses: CPU time of its unit, children included, and memory of its process in bytes.
type usage struct {
	cpu                 time.Duration
	resident, anonymous float64
}

var usageNumber = regexp.MustCompile(`(?m)^(CPUUsageNSec=|VmRSS:|RssAnon:)\s*(\d+)`)

func kubeletUsage(b *testing.B) usage {
	b.Helper()
	out := inMachine(b, "systemctl show -p CPUUsageNSec kubelet; "+
		"cat /proc/$(systemctl show -p MainPID --value kubelet)/status")
	var got usage
	for _, found := range usageNumber.FindAllStringSubmatch(out, -1) {
		number, err := strconv.ParseFloat(found[2], 64)
		must(b, err)
		switch found[1] {
		case "CPUUsageNSec=":
			got.cpu = time.Duration(number)
		case "VmRSS:":
			got.resident = number * 1024
		case "RssAnon:":
			got.anonymous = number * 1024
		}
	}
	if got.cpu == 0 || got.resident == 0 || got.anonymous == 0 {
		b.Fatalf("no usage of the kubelet in\n%s", out)
	}
	return got
}
