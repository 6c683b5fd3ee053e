package conformance

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// reason is why specs are in no selection.
type reason struct {
	// specs is a regular expression over their names.
	specs string
	why   string
}

// inNodeSuite is the reason for specs of the cluster suite that selections of the node suite have.
const inNodeSuite = "the suite for nodes has them, and a selection of it runs them"

// Unselected returns the names of the specs of the node suite, or of the cluster suite, that no selection has, by the
// reason. nodes and clusters are the names of all specs of both. The error has specs without a reason.
func Unselected(cluster bool, nodes, clusters []string) (map[string][]string, error) {
	hasNode, err := selected(false)
	if err != nil {
		return nil, err
	}
	if !cluster {
		return sortOut(nodes, hasNode, nodeReasons)
	}
	has, err := selected(true)
	if err != nil {
		return nil, err
	}
	inNode := func(name string) bool { return hasNode(name) && slices.Contains(nodes, name) }
	rest, err := sortOut(clusters, func(name string) bool { return has(name) || inNode(name) }, clusterReasons)
	if err != nil {
		return nil, err
	}
	for _, name := range clusters {
		if !has(name) && inNode(name) {
			rest[inNodeSuite] = append(rest[inNodeSuite], name)
		}
	}
	return rest, nil
}

// sortOut returns the names that are not selected, by the first reason that matches.
func sortOut(names []string, chosen func(string) bool, reasons []reason) (map[string][]string, error) {
	out, patterns := map[string][]string{}, make([]*regexp.Regexp, len(reasons))
	for i, r := range reasons {
		patterns[i] = regexp.MustCompile(r.specs)
	}
	var without []string
	for _, name := range names {
		if chosen(name) {
			continue
		}
		i := slices.IndexFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(name) })
		if i < 0 {
			without = append(without, name)
			continue
		}
		out[reasons[i].why] = append(out[reasons[i].why], name)
	}
	if len(without) > 0 {
		return nil, fmt.Errorf("%d specs are in no selection and have no reason:\n%s",
			len(without), strings.Join(without, "\n"))
	}
	return out, nil
}

// selected returns a function that is true for the names of specs of any selection of a suite.
func selected(cluster bool) (func(name string) bool, error) {
	var choosers []func(string) bool
	for _, s := range Selections() {
		if s.Cluster != cluster {
			continue
		}
		chosen, err := s.Chooser()
		if err != nil {
			return nil, err
		}
		choosers = append(choosers, chosen)
	}
	return func(name string) bool {
		return slices.ContainsFunc(choosers, func(chosen func(string) bool) bool { return chosen(name) })
	}, nil
}

// nodeSpecs is the prefix of the names of specs about nodes.
const nodeSpecs = "[sig-node]"

// WriteUnselected writes which specs of both upstream suites no selection has, and why, into the repository: each by
// its name, except for those of the cluster suite that are not about nodes, or that the node suite has, which are
// counted by container. It builds both suites.
func (s Suite) WriteUnselected(ctx context.Context) error {
	names, containers := map[bool][]string{}, map[string]string{}
	for _, cluster := range []bool{false, true} {
		suite := s
		suite.Selection = Selection{Cluster: cluster, Focus: "."}
		if err := suite.build(ctx); err != nil {
			return err
		}
		specs, err := suite.list(ctx)
		if err != nil {
			return err
		}
		for _, spec := range specs {
			names[cluster] = append(names[cluster], spec.name())
			containers[spec.name()] = spec.Containers[0]
		}
	}
	for cluster, file := range map[bool]string{false: "node.txt", true: "cluster.txt"} {
		byReason, err := Unselected(cluster, names[false], names[true])
		if err != nil {
			return err
		}
		for why, of := range byReason {
			if cluster && (why == inNodeSuite || !strings.HasPrefix(of[0], nodeSpecs)) {
				byReason[why] = counted(of, containers)
			}
		}
		path := filepath.Join(s.Root, "test", "conformance", "unselected", file)
		if err := os.WriteFile(path, []byte(formatUnselected(byReason)), 0o644); err != nil {
			return fmt.Errorf("write what no selection has: %w", err)
		}
	}
	return nil
}

// counted returns the outermost containers of specs, each with the number of its specs.
func counted(names []string, containers map[string]string) []string {
	count := map[string]int{}
	for _, name := range names {
		count[containers[name]]++
	}
	var out []string
	for container, n := range count {
		out = append(out, fmt.Sprintf("%s (%d specs)", container, n))
	}
	return out
}

// formatUnselected returns each reason in a line that begins with a hash, followed by its specs.
func formatUnselected(byReason map[string][]string) string {
	var text strings.Builder
	for _, why := range slices.Sorted(maps.Keys(byReason)) {
		fmt.Fprintf(&text, "# %s\n%s\n", why, strings.Join(slices.Sorted(slices.Values(byReason[why])), "\n"))
	}
	return text.String()
}
