package parity

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
)

// The tables depend on the functions that fill them: they must find a name that was removed from the source.
func TestALostPackageIsFound(t *testing.T) {
	whole := mustLoad(t)
	for _, make := range []func(context.Context, *tree) (*section, error){
		flagFieldSection, configSection, gateSection, metricSection, eventSection, admissionSection,
	} {
		s, err := make(t.Context(), whole)
		if err != nil {
			t.Fatal(err)
		}
		lost, name := onlyHolder(s)
		if lost == "" {
			t.Errorf("%s: no package of ours is the only one to have a name", s.title)
			continue
		}
		poorer := *whole
		poorer.linkedByOurs = maps.Clone(whole.linkedByOurs)
		delete(poorer.linkedByOurs, ourModule+lost)
		if s, err = make(t.Context(), &poorer); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(s.differences(), func(d difference) bool { return d.name == name }) {
			t.Errorf("%s: %s is not missed without %s", s.title, name, lost)
		}
	}
}

// onlyHolder returns a name that both have, and that only one package of ours has.
func onlyHolder(s *section) (place, name string) {
	for _, name := range s.names() {
		if len(s.stock[name]) > 0 && len(s.ours[name]) == 1 && s.difference(name) == "" {
			return s.ours[name][0], name
		}
	}
	return "", ""
}

func TestALostCallIsFound(t *testing.T) {
	whole := mustLoad(t)
	poorer := *whole
	poorer.linkedByOurs = maps.Clone(whole.linkedByOurs)
	delete(poorer.linkedByOurs, ourModule+"pkg/kubelet")
	s, err := callSection(t.Context(), &poorer)
	if err != nil {
		t.Fatal(err)
	}
	if len(unexplained([]*section{s}, exceptions)) == 0 {
		t.Error("nothing is missed when the package that puts everything together is gone")
	}
}

func TestALostPackageOfStockIsFound(t *testing.T) {
	poorer := *mustLoad(t)
	poorer.linkedByOurs = maps.Clone(poorer.linkedByOurs)
	const lost = stockModule + "pkg/kubelet/kuberuntime"
	delete(poorer.linkedByOurs, lost)
	s, err := linkedSection(t.Context(), &poorer)
	if err != nil {
		t.Fatal(err)
	}
	if s.difference(lost) == "" {
		t.Errorf("%s is not missed", lost)
	}
}

func TestALostFlagIsFound(t *testing.T) {
	const help = "Flags:\n      --a string    first\n  -b, --bee int   second,\n      and more (default 3)\n      --c  " +
		" third\n"
	texts := helpTexts(help)
	if want := []string{"--a", "--bee", "--c"}; !slices.Equal(slices.Sorted(maps.Keys(texts)), want) {
		t.Errorf("flags %v, want %v", slices.Sorted(maps.Keys(texts)), want)
	}
	if changed := helpTexts(strings.ReplaceAll(help, "default 3", "default 4")); changed["--bee"] == texts["--bee"] ||
		changed["--c"] != texts["--c"] {
		t.Errorf("a default that changed: %q, was %q", changed["--bee"], texts["--bee"])
	}
}

func TestALostEndpointIsFound(t *testing.T) {
	mustBuild(t) // sets the feature gates
	s := newSection("", "")
	err := s.compareHTTP(t.Context(), func(config *kubeletconfig.KubeletConfiguration) {
		config.EnableDebuggingHandlers = false
		config.EnableProfilingHandler = false
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kubelet API: GET /runningpods/", "kubelet API: GET /debug/pprof/{subpath:*}"} {
		if len(s.stock[name]) == 0 {
			t.Errorf("stock has no %s", name)
		}
		if s.difference(name) == "" {
			t.Errorf("%s is not missed", name)
		}
	}
	for path := range debugPages {
		if s.difference("kubelet API: GET "+path) == "" {
			t.Errorf("our own %s is not missed", path)
		}
	}
}
