package race

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Run is what one run has shown. Times are in milliseconds after the crossing of the threshold unless they say
// otherwise; -1 is for what did not happen.
type Run struct {
	Cell
	Began  time.Time `json:"began"`
	Kernel string    `json:"kernel"`
	// Cgroups is kit.CgroupsV1 or kit.CgroupsV2.
	Cgroups string `json:"cgroups"`
	// Version is what the kubelet reports.
	Version string `json:"version"`
	// Program is a digest of the kubelet.
	Program string `json:"program"`

	// Reached is how fast the hog has grown in the last 100 ms before the crossing, in MiB per second.
	Reached int64 `json:"reached"`
	Crossed bool  `json:"crossed"`
	// Fenced is when the limit of the pod was lowered, Fence the limit in MiB, Beyond by how much the pod had exceeded the
	// threshold then, in MiB.
	Fenced float64 `json:"fenced"`
	Fence  int64   `json:"fence"`
	Beyond int64   `json:"beyond"`
	// Ended is when the last process of the hog had ended, Freed when its pod used no more than a tenth of its peak.
	Ended float64 `json:"ended"`
	Freed float64 `json:"freed"`
	// Lowest is the least amount that was left, in MiB.
	Lowest int64 `json:"lowest"`
	// Gap is the longest time between two observations, in milliseconds.
	Gap float64 `json:"gap"`

	// OOMs are the OOM kills.
	OOMs []OOM `json:"ooms,omitempty"`
	// Misreported names each container whose reason OOMKilled is wrong by the kernel log, or missing.
	Misreported []string `json:"misreported,omitempty"`
	// Lost says what became of other pods, one line for each that was changed.
	Lost []string `json:"lost,omitempty"`
	// Hogs are the final statuses of the hogs.
	Hogs []Status `json:"hogs"`
	// Won is the result: the OOM killer was not called for the limit of a cgroup above a hog, and no other pod was lost.
	Won bool `json:"won"`
}

// OOM is one call of the OOM killer.
type OOM struct {
	// Limit is the place of the exceeded limit: hog, pods, node or other. Victim is the pod of the killed process,
	// Container its container's ID.
	Limit     string `json:"limit"`
	Victim    string `json:"victim"`
	Container string `json:"container,omitempty"`
}

// Status is the final status of a pod.
type Status struct {
	Pod     string `json:"pod"`
	Phase   string `json:"phase"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Containers have a line each: name, reason, exit code.
	Containers []string `json:"containers"`
	// oomKilled are the IDs of the containers, and whether their reason is OOMKilled.
	oomKilled map[string]bool
}

// Load reads all runs from a file; none if it does not exist.
func Load(file string) ([]Run, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var runs []Run
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var run Run
		if err := json.Unmarshal(lines.Bytes(), &run); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", file, n, err)
		}
		runs = append(runs, run)
	}
	return runs, lines.Err()
}

// Append adds a run to a file, which it creates if need be.
func Append(file string, run *Run) error {
	line, err := json.Marshal(run)
	if err != nil {
		return fmt.Errorf("encode run: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}
