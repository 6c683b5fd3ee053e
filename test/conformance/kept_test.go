package conformance

import (
	"maps"
	"os"
	"testing"
)

func testSuite(t *testing.T) Suite {
	t.Helper()
	return Suite{Dir: t.TempDir(), Party: "ours", Selection: Selection{Name: "some"}}
}

func mustKeep(t *testing.T, s Suite) Results {
	t.Helper()
	results, err := s.Kept()
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func TestResultsAreKept(t *testing.T) {
	s := testSuite(t)
	results := mustKeep(t, s)
	if len(results) != 0 {
		t.Fatalf("no file is %v", results)
	}
	good, err := s.record(results, []spec{{Leaf: "b", State: passed}, {Leaf: "c", State: "failed"}})
	if err != nil || good != 1 {
		t.Fatalf("%d passed, %v", good, err)
	}
	if _, err := s.record(results, []spec{{Leaf: "c", State: passed}}); err != nil {
		t.Fatal(err)
	}
	again := mustKeep(t, s)
	if !maps.Equal(again, results) || again["c"].Tries != 2 {
		t.Errorf("read %v", again)
	}
	if err := s.forget([]group{{names: []string{"c"}}}); err != nil {
		t.Fatal(err)
	}
	if left := mustKeep(t, s); !maps.Equal(left, Results{"b": {State: passed, Tries: 1}}) {
		t.Errorf("after one was forgotten %v", left)
	}
}

func TestShardsKeepTheirOwnResults(t *testing.T) {
	whole := testSuite(t)
	first, second := whole, whole
	first.Shard, second.Shard = Shard{Index: 1, Count: 2}, Shard{Index: 2, Count: 2}
	if _, err := whole.record(Results{}, []spec{{Leaf: "a", State: "failed"}, {Leaf: "b", State: passed}}); err != nil {
		t.Fatal(err)
	}
	if _, err := first.record(mustKeep(t, first), []spec{{Leaf: "a", State: passed}}); err != nil {
		t.Fatal(err)
	}
	// The other machine has no results of these.
	if _, err := second.record(Results{}, []spec{{Leaf: "b", State: "failed"}, {Leaf: "c", State: "failed"}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"results.json", "results-1of2.json", "results-2of2.json"} {
		if _, err := os.Stat(whole.file(name)); err != nil {
			t.Error(err)
		}
	}
	want := Results{"a": {State: passed, Tries: 2}, "b": {State: passed, Tries: 1}, "c": {State: "failed", Tries: 1}}
	if got := mustKeep(t, second); !maps.Equal(got, want) {
		t.Errorf("together they are %v", got)
	}
	if err := first.forget([]group{{names: []string{"a"}}}); err != nil {
		t.Fatal(err)
	}
	delete(want, "a")
	if got := mustKeep(t, whole); !maps.Equal(got, want) {
		t.Errorf("after a part was forgotten they are %v", got)
	}
}

func TestMergeTakesWhatSaysMore(t *testing.T) {
	once, thrice := Outcome{State: "failed", Tries: 1}, Outcome{State: "timedout", Tries: 3}
	good := Outcome{State: passed, Tries: 1}
	for _, test := range []struct{ a, b, want Outcome }{
		{once, thrice, thrice},
		{thrice, good, good},
		{good, Outcome{State: passed, Tries: 2}, Outcome{State: passed, Tries: 2}},
	} {
		for _, pair := range [][2]Outcome{{test.a, test.b}, {test.b, test.a}} {
			results := Results{"x": pair[0]}
			results.Merge(Results{"x": pair[1]})
			if results["x"] != test.want {
				t.Errorf("%v and %v give %v", pair[0], pair[1], results["x"])
			}
		}
	}
	// Stock's results in the repository have no tries.
	results := Results{}
	results.Merge(Results{"x": {State: passed}})
	if results["x"].State != passed {
		t.Error("what is new is not taken")
	}
}

func TestResultsOfARunAreThoseOfItsSpecs(t *testing.T) {
	kept := Results{"a": {State: passed}, "b": {State: "failed"}, "other": {State: passed}}
	results := kept.of([]group{{names: []string{"a", "new"}}})
	if !maps.Equal(results, Results{"a": {State: passed}, "new": {}}) {
		t.Errorf("results are %v", results)
	}
	stock := Results{"a": {State: passed}, "new": {State: passed}, "other": {State: passed}}
	c := Compare(stock.Only(results.Has), results)
	if len(c.Both) != 1 || len(c.OnlyStock) != 1 || c.OnlyStock[0] != "new" || len(c.OnlyOurs)+len(c.Neither) != 0 {
		t.Errorf("comparison is %+v", c)
	}
}
