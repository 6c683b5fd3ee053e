package app

import (
	"context"
	"io"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// stockAsker requests a page that stock kubelets have as well.
type stockAsker interface {
	stock(ctx context.Context, node *nodeInfo, path ...string) (io.ReadCloser, error)
}

func (p proxy) stock(ctx context.Context, n *nodeInfo, path ...string) (io.ReadCloser, error) {
	return p.Get().Resource("nodes").Name(n.Name).SubResource("proxy").Suffix(path...).Stream(ctx)
}

// stockSignals returns what a stock kubelet lets one know: what is available by its summary statistics, and the hard
// thresholds of its configuration. What it does not say, or not to everybody, is left out.
func (c *cluster) stockSignals(ctx context.Context, n *nodeInfo) []debugv1alpha1.PressureSignal {
	ask, ok := c.ask.(stockAsker)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var summary statsapi.Summary
	if err := fetch(&summary)(ask.stock(ctx, n, "stats", "summary")); err != nil {
		return nil
	}
	var running struct {
		Config kubeletv1beta1.KubeletConfiguration `json:"kubeletconfig"`
	}
	if err := fetch(&running)(ask.stock(ctx, n, "configz")); err != nil {
		return signalsOf(&summary.Node, nil)
	}
	return signalsOf(&summary.Node, &running.Config)
}

// signalsOf returns the signals of summary statistics. config is nil if the thresholds are unknown.
func signalsOf(
	s *statsapi.NodeStats, config *kubeletv1beta1.KubeletConfiguration,
) (list []debugv1alpha1.PressureSignal) {
	available := map[snapshot.Signal][2]*uint64{}
	if m := s.Memory; m != nil && m.AvailableBytes != nil && m.WorkingSetBytes != nil {
		available[snapshot.MemoryAvailable] = [2]*uint64{m.AvailableBytes, new(*m.AvailableBytes + *m.WorkingSetBytes)}
	}
	if fs := s.Fs; fs != nil {
		available[snapshot.NodeFsAvailable] = [2]*uint64{fs.AvailableBytes, fs.CapacityBytes}
		available[snapshot.NodeFsInodesFree] = [2]*uint64{fs.InodesFree, fs.Inodes}
	}
	if r := s.Runtime; r != nil && r.ImageFs != nil {
		available[snapshot.ImageFsAvailable] = [2]*uint64{r.ImageFs.AvailableBytes, r.ImageFs.CapacityBytes}
		available[snapshot.ImageFsInodesFree] = [2]*uint64{r.ImageFs.InodesFree, r.ImageFs.Inodes}
	}
	for _, sig := range snapshot.AllSignals() {
		amounts := available[sig]
		if amounts[0] == nil || amounts[1] == nil {
			continue
		}
		g := debugv1alpha1.PressureSignal{
			Signal: sig.String(), Available: new(int64(*amounts[0])), Capacity: new(int64(*amounts[1])), Source: "summary",
		}
		if floor, ok := hardThreshold(config, sig, *g.Capacity); ok {
			g.Threshold, g.Headroom, g.Level = new(floor), new(*g.Available-floor), "calm"
			if *g.Headroom < 0 {
				g.Level = "met"
			}
		}
		list = append(list, g)
	}
	return list
}

// hardThreshold returns the amount below which a hard threshold of a configuration is met; false without one.
func hardThreshold(config *kubeletv1beta1.KubeletConfiguration, sig snapshot.Signal, capacity int64) (int64, bool) {
	if config == nil {
		return 0, false
	}
	thresholds, err := thresholdsOf(config)
	if err != nil {
		return 0, false
	}
	for i := range thresholds {
		if t := &thresholds[i]; t.Signal == sig && !t.Soft {
			return t.Quantity(capacity).Value(), true
		}
	}
	return 0, false
}
