package simulate

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog/trace"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// FuzzTrace passes traces that may come from anywhere to a plan: a line is refused or not, and nothing panics.
func FuzzTrace(f *testing.F) {
	files, err := filepath.Glob("testdata/*.jsonl.gz")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		packed, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			f.Fatal(err)
		}
		text, err := io.ReadAll(z)
		if err != nil {
			f.Fatal(err)
		}
		// The first lines of each run: longer inputs are hard to vary.
		lines := strings.SplitAfterN(string(text), "\n", 8)
		f.Add(strings.Join(lines[:min(7, len(lines))], ""), true)
	}
	other := below(snapshot.MemoryAvailable, "100Gi")
	f.Fuzz(func(t *testing.T, text string, grow bool) {
		var decoder trace.Decoder
		plan := New(Settings{GrowSpared: grow, Rules: func(r *policy.Rules, l snapshot.Layout) (*policy.Rules, error) {
			if grow {
				return other(r, l)
			}
			return r, nil
		}})
		s := bufio.NewScanner(strings.NewReader(text))
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			line, err := decoder.Decode(s.Bytes())
			if err != nil {
				continue
			}
			if err := plan.Add(&line); err != nil {
				t.Errorf("%v", err)
			}
		}
		if r := plan.Result(); len(r.Pairs()) > len(r.Recorded)+len(r.Planned) {
			t.Error("more pods than evictions")
		}
	})
}
