package collect

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

var errSource = errors.New("the source fails")

// sources are a node whose sources fail as long as their errors are set.
type sources struct {
	disks
	summary, root, images, pods, processes error
}

func (s *sources) Get(context.Context, bool) (*statsapi.Summary, error) {
	if s.summary != nil {
		return nil, s.summary
	}
	return s.full(), nil
}

func (s *sources) full() *statsapi.Summary {
	full := fullSummary(metav1.Time{})
	full.Pods = []statsapi.PodStats{{PodRef: statsapi.PodReference{UID: "pod"}, EphemeralStorage: fsStats(7, 1)}}
	return full
}

func (s *sources) RootFsStats() (*statsapi.FsStats, error) {
	if s.root != nil {
		return nil, s.root
	}
	return s.full().Node.Fs, nil
}

func (s *sources) RlimitStats() (*statsapi.RlimitStats, error) {
	return s.full().Node.Rlimit, s.processes
}

func (s *sources) ImageFsStats(context.Context) (images, containers *statsapi.FsStats, err error) {
	full := s.full()
	return full.Node.Runtime.ImageFs, full.Node.Runtime.ContainerFs, s.images
}

func (s *sources) ListPodStats(context.Context) ([]statsapi.PodStats, error) {
	return s.full().Pods, s.pods
}

func newCollector(t *testing.T, s Sources) *Collector {
	t.Helper()
	c, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// known lists the signals that stats have, unknown ones that have failed for this cause are left out.
func known(t *testing.T, stats snapshot.Stats, cause error) (list []snapshot.Signal) {
	t.Helper()
	for _, sig := range snapshot.AllSignals() {
		switch o := stats.Signals[sig]; {
		case o.Known():
			list = append(list, sig)
		case !errors.Is(o.Err, cause):
			t.Errorf("%s is unknown: %v, want %v", sig, o.Err, cause)
		}
	}
	return list
}

var (
	nodeSignals  = []snapshot.Signal{snapshot.PIDAvailable, snapshot.NodeFsAvailable, snapshot.NodeFsInodesFree}
	imageSignals = []snapshot.Signal{
		snapshot.ImageFsAvailable, snapshot.ImageFsInodesFree, snapshot.ContainerFsAvailable, snapshot.ContainerFsInodesFree,
	}
)

func TestCollectReadsTheSummary(t *testing.T) {
	s := &sources{}
	stats := newCollector(t, Sources{Summary: s, DiskInfo: s, Parts: s}).Collect(t.Context())
	if got := known(t, stats, nil); len(got) != len(snapshot.AllSignals()) || stats.Err != nil || stats.RuntimeSilent {
		t.Errorf("known signals %v, %+v", got, stats)
	}
	if want := (snapshot.Layout{Known: true}); stats.Layout != want || stats.Images != nil {
		t.Errorf("%+v", stats)
	}
	if stats.Pods.Len() != 1 || stats.Pods.UID(0) != "pod" || stats.Pods.Usages(0, 1)[0].LocalStorage != 7 {
		t.Errorf("pods %+v", stats.Pods)
	}
}

// TestCollectReadsPartsOfASummaryThatFails: each part that fails makes its own signals unknown, with the error of the
// summary. Memory is not among the parts.
func TestCollectReadsPartsOfASummaryThatFails(t *testing.T) {
	for name, test := range map[string]struct {
		sources sources
		known   []snapshot.Signal
		silent  bool
	}{
		"the summary alone":    {sources{}, append(nodeSignals, imageSignals...), false},
		"images":               {sources{images: errSource}, append(nodeSignals, imageSignals...), false},
		"the root file system": {sources{root: errSource}, append(nodeSignals[:1:1], imageSignals...), false},
		"stats of pods":        {sources{pods: errSource}, append(nodeSignals, imageSignals...), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := test.sources
			s.summary = errSource
			stats := newCollector(t, Sources{Summary: &s, DiskInfo: &s, Parts: &s}).Collect(t.Context())
			if diff := cmp.Diff(test.known, known(t, stats, errSource)); diff != "" {
				t.Errorf("known signals (-want +got):\n%s", diff)
			}
			if stats.RuntimeSilent != test.silent || !errors.Is(stats.Err, errSource) {
				t.Errorf("silent %v, %v", stats.RuntimeSilent, stats.Err)
			}
		})
	}
}

func TestCollectLocalNeedsNoRuntime(t *testing.T) {
	s := &sources{summary: errSource, images: errSource, pods: errSource}
	c := newCollector(t, Sources{Summary: s, DiskInfo: s, Parts: s})
	for _, test := range []struct {
		layout snapshot.Layout
		want   []snapshot.Signal
	}{
		{snapshot.Layout{}, nodeSignals},
		{snapshot.Layout{Known: true}, append(nodeSignals, imageSignals...)},
		{snapshot.Layout{Known: true, DedicatedImageFs: true}, nodeSignals},
	} {
		stats := c.CollectLocal(t.Context(), test.layout)
		if stats.Err != nil || stats.Pods != nil || stats.Layout != test.layout {
			t.Errorf("%+v: %+v", test.layout, stats)
		}
		stats.FailUnknown(errSource)
		if diff := cmp.Diff(test.want, known(t, stats, errSource)); diff != "" {
			t.Errorf("%+v: known signals (-want +got):\n%s", test.layout, diff)
		}
	}
	stats := newCollector(t, Sources{Summary: s, DiskInfo: s}).CollectLocal(t.Context(), snapshot.Layout{})
	if !errors.Is(stats.Err, errNoParts) || len(known(t, stats, stats.Signals[snapshot.PIDAvailable].Err)) > 0 {
		t.Errorf("without parts: %+v", stats)
	}
}

// TestCollectNodeIsAllOrNothing: it observes what Collect observes of file systems and processes, and fails with any of
// its sources.
func TestCollectNodeIsAllOrNothing(t *testing.T) {
	s := &sources{summary: errSource, pods: errSource}
	stats := newCollector(t, Sources{Summary: s, DiskInfo: s, Parts: s}).CollectNode(t.Context())
	if stats.Err != nil || stats.Pods != nil || !stats.Layout.Known {
		t.Errorf("%+v", stats)
	}
	stats.FailUnknown(errSource)
	if diff := cmp.Diff(append(nodeSignals, imageSignals...), known(t, stats, errSource)); diff != "" {
		t.Errorf("known signals (-want +got):\n%s", diff)
	}
	whole := &sources{}
	want := newCollector(t, Sources{Summary: whole, DiskInfo: whole}).Collect(t.Context())
	for _, sig := range append(nodeSignals, imageSignals...) {
		if got := stats.Signals[sig]; got != want.Signals[sig] {
			t.Errorf("%s: %+v, want %+v", sig, got, want.Signals[sig])
		}
	}
	for name, c := range map[string]Sources{
		"images": {Parts: &sources{images: errSource}}, "root": {Parts: &sources{root: errSource}},
		"processes": {Parts: &sources{processes: errSource}}, "parts": {},
		"rates that are computed by Collect": {Parts: s, CPURates: true},
	} {
		c.Summary, c.DiskInfo = s, s
		stats := newCollector(t, c).CollectNode(t.Context())
		if got := known(t, stats, stats.Signals[snapshot.PIDAvailable].Err); stats.Err == nil || len(got) > 0 {
			t.Errorf("without %s: %v, known %v", name, stats.Err, got)
		}
	}
}

func TestCollectReadsImagesWhereTheyAreApart(t *testing.T) {
	for split, want := range map[bool]map[types.UID]snapshot.Bytes{true: {"pod": 7}, false: nil} {
		s := &sources{disks: disks{dedicated: true, split: split}}
		c := newCollector(t, Sources{
			Summary: s, DiskInfo: s, SeparateDiskGC: true,
			PodImages: func(context.Context) (map[types.UID]snapshot.Bytes, error) {
				return map[types.UID]snapshot.Bytes{"pod": 7}, nil
			},
		})
		if diff := cmp.Diff(want, c.Collect(t.Context()).Images); diff != "" {
			t.Errorf("split %v (-want +got):\n%s", split, diff)
		}
	}
}

func TestSourcesAreRequired(t *testing.T) {
	s := &sources{}
	for _, incomplete := range []Sources{{Summary: s}, {DiskInfo: s}} {
		if _, err := New(incomplete); err == nil {
			t.Errorf("%+v is accepted", incomplete)
		}
	}
}
