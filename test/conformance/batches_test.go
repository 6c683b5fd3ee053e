package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// manySpecs returns specs of every kind, four in each container.
func manySpecs() []spec {
	var specs []spec
	for i := range 400 {
		label := []string{"", "[Serial]", "[Slow]", "[Serial] [Slow]"}[i/4%4]
		containers := []string{"group", fmt.Sprint(i / 4), label}
		specs = append(specs, spec{Containers: containers, Leaf: fmt.Sprintf("spec %03d", i)})
	}
	return specs
}

func TestBatchesHoldEveryRemainingSpecOnce(t *testing.T) {
	specs, results := manySpecs(), Results{}
	for i, s := range specs {
		// In every second group all have passed, in the others all but one.
		if i/4%2 == 0 || i%4 != 1 {
			results.add(spec{Containers: s.Containers, Leaf: s.Leaf, State: passed})
		}
	}
	groups := remaining(groupsOf(specs), results)
	if len(groups) != 50 || count(groups) != 200 {
		t.Errorf("%d groups with %d specs remain", len(groups), count(groups))
	}
	var seen []string
	for i, chunk := range batches(groups, batch) {
		if len(chunk) == 0 || len(chunk)%4 != 0 || len(chunk) >= batch+4 {
			t.Errorf("batch %d has %d specs: a group was torn, or there are too many", i, len(chunk))
		}
		for _, name := range chunk {
			if strings.Contains(name, "[Serial]") != strings.Contains(chunk[0], "[Serial]") {
				t.Errorf("batch %d mixes specs that run alone with others", i)
			}
		}
		seen = append(seen, chunk...)
	}
	slices.Sort(seen)
	if len(seen) != 200 || len(slices.Compact(seen)) != 200 {
		t.Errorf("%d specs", len(seen))
	}
}

func TestShardsDivideEvenly(t *testing.T) {
	specs := manySpecs()
	// Groups have different sizes: some containers lose specs.
	specs = slices.DeleteFunc(specs, func(s spec) bool {
		return len(s.Containers[1])%2 == 0 && strings.HasSuffix(s.Leaf, "7")
	})
	backwards := slices.Clone(specs)
	slices.Reverse(backwards)
	for _, n := range []int{1, 2, 3, 7} {
		var seen []string
		var all, alone []int
		for i := 1; i <= n; i++ {
			shard := Shard{Index: i, Count: n}
			groups, specsAlone := shard.of(groupsOf(specs)), 0
			for _, g := range groups {
				seen = append(seen, g.container)
				if g.kind == serial {
					specsAlone += len(g.names)
				}
			}
			all, alone = append(all, count(groups)), append(alone, specsAlone)
			again := shard.of(groupsOf(backwards))
			if count(again) != count(groups) || again[0].container != groups[0].container {
				t.Errorf("shard %s depends on the order of specs", shard)
			}
		}
		slices.Sort(seen)
		if len(seen) != 100 || len(slices.Compact(seen)) != 100 {
			t.Errorf("%d shards have %d groups", n, len(seen))
		}
		for what, counts := range map[string][]int{"specs": all, "serial specs": alone} {
			if slices.Max(counts)-slices.Min(counts) > 4 {
				t.Errorf("%d shards have %v %s", n, counts, what)
			}
		}
	}
	if whole := (Shard{}).of(groupsOf(specs)); count(whole) != len(specs) {
		t.Errorf("no shard has %d of %d specs", count(whole), len(specs))
	}
}

func TestParseShard(t *testing.T) {
	for text, want := range map[string]Shard{"": {}, "1/1": {1, 1}, "2/4": {2, 4}} {
		if got, err := ParseShard(text); err != nil || got != want {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"2", "0/4", "5/4", "-1/4", "a/b", "1/2/3", "/", "1/0"} {
		if got, err := ParseShard(text); err == nil || !strings.Contains(err.Error(), "i/n") {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
}
