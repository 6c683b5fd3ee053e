package reporters

import (
	"testing"

	pressure "github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
)

// scenario is one case. Options and plugins are what it begins with, play goes on with it.
type scenario struct {
	name    string
	options func(*pressure.ReporterPluginsConfiguration)
	plugins func() scripted
	play    func(r *rig)
}

// one is a case with one plugin, p.
func one(s func() *script) func() scripted { return func() scripted { return scripted{"p": s()} } }

// TestReporters plays all cases with plugins in the agent and with the same plugins behind sockets.
func TestReporters(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"in the agent", "behind sockets"} {
		for _, list := range [][]scenario{callCases(), limitCases(), endCases(), refusalCases(), mergeCases(),
			settingCases()} {
			for _, c := range list {
				t.Run(kind+"/"+c.name, func(t *testing.T) {
					t.Parallel()
					r := newRig(t, c.options)
					r.behind = kind == "behind sockets"
					r.begin(c.plugins())
					c.play(r)
				})
			}
		}
	}
}
