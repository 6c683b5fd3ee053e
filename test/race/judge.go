package race

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-project/plimsoll/test/cluster/host"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

// rest is what was observed before the hogs began to grow, in bytes.
type rest struct {
	// available to all pods, and used by the hogs.
	available, hogs int64
}

// observation is all that a run is judged by.
type observation struct {
	samples []sample
	ended   time.Time
	rest    rest
	// headroom is the threshold, in bytes.
	headroom int64
	// rateWindow is the time before the crossing over which growth is measured.
	rateWindow time.Duration
}

const mebibyte = int64(1) << 20

// judge fills in what the samples show. What the hogs use beyond their rest is no longer available: this is exact also
// while page cache fills the cgroup of all pods.
func (r *Run) judge(o observation) {
	r.Fenced, r.Ended, r.Freed = -1, -1, -1
	r.Lowest = o.rest.available / mebibyte
	crossed, peak, first := -1, int64(0), -1
	for i, s := range o.samples {
		left := o.rest.available - (s.hogs - o.rest.hogs)
		r.Lowest, peak = min(r.Lowest, left/mebibyte), max(peak, s.hogs)
		if i > 0 {
			r.Gap = max(r.Gap, milliseconds(s.at.Sub(o.samples[i-1].at)))
		}
		if crossed < 0 && left < o.headroom {
			crossed = i
		}
		if first < 0 && s.hogs > o.rest.hogs+mebibyte {
			first = i
		}
	}
	if crossed < 0 {
		return
	}
	r.Crossed = true
	begin := o.samples[crossed].at
	r.Reached = rate(o.samples[max(first, 0):crossed+1], o.rateWindow)
	if !o.ended.IsZero() {
		r.Ended = milliseconds(o.ended.Sub(begin))
	}
	for i, s := range o.samples {
		if i > 0 && r.Fenced < 0 && s.limit > 0 && s.limit < o.samples[0].limit {
			r.Fenced, r.Fence = milliseconds(s.at.Sub(begin)), s.limit/mebibyte
			r.Beyond = (o.headroom - (o.rest.available - (s.hogs - o.rest.hogs))) / mebibyte
		}
		if i > crossed && r.Freed < 0 && s.hogs < peak/10 {
			r.Freed = milliseconds(s.at.Sub(begin))
		}
	}
}

// rate returns the growth in the last part of the samples, in MiB per second.
func rate(samples []sample, window time.Duration) int64 {
	if len(samples) < 2 {
		return 0
	}
	last := samples[len(samples)-1]
	from := samples[0]
	for _, s := range samples {
		if last.at.Sub(s.at) <= window {
			break
		}
		from = s
	}
	seconds := last.at.Sub(from.at).Seconds()
	if seconds <= 0 {
		return 0
	}
	return int64(float64(last.hogs-from.hogs)/seconds) / mebibyte
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()/10) / 100 }

// addOOM adds an OOM kill, unless it has nothing to do with the pods. Names are those of pods by UID; podsCgroup is the
// path of the cgroup of all pods.
func (r *Run) addOOM(k kit.OOMKill, podsCgroup string, names map[string]string) {
	if !strings.HasPrefix(k.Task, podsCgroup+"/") && k.Limited != "" {
		return
	}
	container := strings.TrimSuffix(filepath.Base(k.Task), ".scope")
	r.OOMs = append(r.OOMs, OOM{
		Limit: place(k.Limited, podsCgroup, names), Victim: podOf(k.Task, names),
		Container: container[strings.LastIndex(container, "-")+1:],
	})
}

// checkReasons compares the reasons of the hogs' containers with the kernel log. On cgroup v2 the kernel logs only the
// first of the containers of a pod that it ends together.
func (r *Run) checkReasons() {
	for _, s := range r.Hogs {
		for id, reported := range s.oomKilled {
			killed := slices.ContainsFunc(r.OOMs, func(o OOM) bool { return o.Container == id })
			together := r.Cgroups == kit.CgroupsV2 && slices.ContainsFunc(r.OOMs, func(o OOM) bool { return o.Victim == s.Pod })
			if killed && !reported || reported && !killed && !together {
				r.Misreported = append(r.Misreported, fmt.Sprintf("%s of %s: OOMKilled %t, killed %t", id, s.Pod, reported, killed))
			}
		}
	}
	slices.Sort(r.Misreported)
}

// place names the cgroup whose limit was exceeded.
func place(limited, podsCgroup string, names map[string]string) string {
	pod := podOf(limited, names)
	switch {
	case limited == "":
		return "node"
	case strings.HasPrefix(pod, hogName):
		return "hog"
	case pod != "":
		return pod
	case limited == podsCgroup || filepath.Dir(limited) == podsCgroup:
		return "pods"
	}
	return "other"
}

// podOf returns the name of the pod to which a cgroup belongs, empty for none of them.
func podOf(path string, names map[string]string) string {
	for dir := range strings.SplitSeq(path, "/") {
		if name := names[host.PodOfCgroup(dir)]; name != "" {
			return name
		}
	}
	return ""
}

// decide sets the result.
func (r *Run) decide() {
	r.Won = len(r.Lost) == 0
	for _, oom := range r.OOMs {
		r.Won = r.Won && oom.Limit == "hog"
	}
}
