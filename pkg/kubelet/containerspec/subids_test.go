package containerspec

import (
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"testing"

	"k8s.io/klog/v2"
)

func TestParseSubordinateIDs(t *testing.T) {
	for input, want := range map[string]struct {
		first, length uint32
		ok            bool
	}{
		"0: kubelet 65536 2147483648\n":             {65536, 2147483648, true},
		"0: kubelet 65536 2147483648":               {65536, 2147483648, true},
		"0: kubelet 65536 1\n1: kubelet 655360 2\n": {},
		"":                                {},
		"0: kubelet 65536":                {},
		"0: kubelet 65536 1 more":         {},
		"0: kubelet x 1":                  {},
		"0: kubelet 1 x":                  {},
		"0: kubelet 4294967296 1":         {},
		"0: kubelet -1 1":                 {},
		"\n\n0: kubelet 131072 65536\n\n": {131072, 65536, true},
		"0: kubelet 65536 1\n\n1: kubelet 655360 2":        {},
		"0:\tkubelet\t65536\t65536":                        {65536, 65536, true},
		"Error fetching ranges of kubelet from the server": {},
	} {
		first, length, err := parseSubordinateIDs(input)
		if first != want.first || length != want.length || (err == nil) != want.ok {
			t.Errorf("%q: got %d, %d, %v; want %+v", input, first, length, err, want)
		}
	}
}

func TestSubordinateIDs(t *testing.T) {
	boom := errors.New("boom")
	const line = "0: kubelet 65536 131072\n"
	good := func() idTools {
		return idTools{
			enabled:    true,
			lookupUser: func(string) error { return nil },
			lookPath:   func(string) (string, error) { return "/usr/bin/getsubids", nil },
			run:        func(string, ...string) ([]byte, error) { return []byte(line), nil },
		}
	}
	onGroups := func(output string, err error) func(string, ...string) ([]byte, error) {
		return func(_ string, args ...string) ([]byte, error) {
			if args[0] == "-g" {
				return []byte(output), err
			}
			return []byte(line), nil
		}
	}
	for name, test := range map[string]struct {
		change func(*idTools)
		want   error
		failed bool
	}{
		"configured":     {change: func(*idTools) {}},
		"feature is off": {change: func(i *idTools) { i.enabled = false }, want: errNoSubordinateIDs},
		"no such user": {change: func(i *idTools) {
			i.lookupUser = func(string) error { return user.UnknownUserError("kubelet") }
		}, want: errNoSubordinateIDs},
		"lookup fails": {change: func(i *idTools) { i.lookupUser = func(string) error { return boom } }, want: boom},
		"no tool":      {change: func(i *idTools) { i.lookPath = noTool }, want: errNoSubordinateIDs},
		"tool is unusable": {change: func(i *idTools) {
			i.lookPath = func(string) (string, error) { return "", boom }
		}, want: boom},
		"tool fails": {change: func(i *idTools) {
			i.run = func(string, ...string) ([]byte, error) { return nil, boom }
		}, want: boom},
		"groups fail":   {change: func(i *idTools) { i.run = onGroups("", boom) }, want: boom},
		"groups differ": {change: func(i *idTools) { i.run = onGroups("0: kubelet 65536 65536\n", nil) }, failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			tools := good()
			test.change(&tools)
			first, length, err := subordinateIDs(klog.Background(), tools)
			switch {
			case test.want != nil && !errors.Is(err, test.want), test.failed && err == nil:
				t.Fatalf("got error %v", err)
			case test.want == nil && !test.failed && (err != nil || first != 65536 || length != 131072):
				t.Fatalf("got %d, %d, %v", first, length, err)
			}
		})
	}
}

func noTool(tool string) (string, error) {
	return "", &exec.Error{Name: tool, Err: fmt.Errorf("looking: %w", exec.ErrNotFound)}
}
