package conformance

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// list calls the suite for its specs and returns those of the selection, by their names.
func (s Suite) list(ctx context.Context) ([]spec, error) {
	chosen, err := s.Chooser()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make folder for the list of specs: %w", err)
	}
	report := filepath.Join(s.Dir, "list.json")
	// Without a focus the suite omits some specs.
	cmd := exec.CommandContext(ctx, s.program(), "--ginkgo.dry-run", "--ginkgo.focus=.", "--ginkgo.json-report="+report)
	cmd.Dir = s.Dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("list specs: %w\n%s", err, out)
	}
	specs, err := readReport(report)
	if err != nil {
		return nil, err
	}
	// In a dry run the state of specs that would be run is passed.
	specs = slices.DeleteFunc(specs, func(s spec) bool { return s.State != passed || !chosen(s.name()) })
	slices.SortFunc(specs, func(a, b spec) int { return strings.Compare(a.name(), b.name()) })
	return slices.CompactFunc(specs, func(a, b spec) bool { return a.name() == b.name() }), nil
}
