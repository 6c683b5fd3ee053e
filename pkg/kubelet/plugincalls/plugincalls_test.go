package plugincalls

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestLabelsAreBounded(t *testing.T) {
	var l Labels
	for i := range maxLabels {
		if name := fmt.Sprint(i); l.Of(name) != name {
			t.Errorf("the label of %s is %s", name, l.Of(name))
		}
	}
	if l.Of("one more") != otherPlugins || l.Of("0") != "0" {
		t.Errorf("the label of one more is %s, that of the first %s", l.Of("one more"), l.Of("0"))
	}
}

func TestGuard(t *testing.T) {
	failed := errors.New("failed")
	if err := Guard(func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
	p := (*PanicError)(nil)
	err := Guard(func() error { panic("out of range") })
	if !errors.As(err, &p) || err.Error() != "panic: out of range" || !strings.Contains(p.Stack, "TestGuard") {
		t.Errorf("error %v", err)
	}
}

func TestNotify(t *testing.T) {
	c := make(chan struct{}, 1)
	Notify(c)
	Notify(c)
	if len(c) != 1 {
		t.Errorf("%d tokens", len(c))
	}
}
