package netutil

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/util/iptables"
	iptablestest "k8s.io/kubernetes/pkg/util/iptables/testing"
)

// fakeHost is one IP family. A send to flush reports a flush of its tables.
type fakeHost struct {
	*iptablestest.FakeIPTables
	flush    chan struct{}
	mu       sync.Mutex
	calls    []string
	failures map[string]error
	watched  []iptables.Table
}

func newFakeHost(f *iptablestest.FakeIPTables) *fakeHost {
	return &fakeHost{FakeIPTables: f, flush: make(chan struct{}), failures: map[string]error{}}
}

func (h *fakeHost) record(call string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, call)
	for prefix, err := range h.failures {
		if strings.HasPrefix(call, prefix) {
			return err
		}
	}
	return nil
}

func (h *fakeHost) EnsureChain(table iptables.Table, chain iptables.Chain) (bool, error) {
	if err := h.record(fmt.Sprintf("chain %s %s", table, chain)); err != nil {
		return false, err
	}
	return h.FakeIPTables.EnsureChain(table, chain)
}

func (h *fakeHost) EnsureRule(
	position iptables.RulePosition, table iptables.Table, chain iptables.Chain, args ...string,
) (bool, error) {
	if err := h.record(fmt.Sprintf("rule %s %s %s %s", position, table, chain, strings.Join(args, " "))); err != nil {
		return false, err
	}
	return h.FakeIPTables.EnsureRule(position, table, chain, args...)
}

func (h *fakeHost) Monitor(
	_ iptables.Chain, tables []iptables.Table, reload func(), _ time.Duration, stop <-chan struct{},
) {
	h.watched = tables
	for {
		select {
		case <-stop:
			return
		case <-h.flush:
			reload()
		}
	}
}

var hint = "chain mangle KUBE-IPTABLES-HINT"

// rulesV4 are stock's, in stock's order: kube-proxy creates the same ones.
var rulesV4 = []string{
	hint,
	"chain filter KUBE-FIREWALL",
	"rule -I filter OUTPUT -j KUBE-FIREWALL",
	"rule -I filter INPUT -j KUBE-FIREWALL",
	"rule -A filter KUBE-FIREWALL -m comment --comment block incoming localnet connections --dst 127.0.0.0/8 ! --src " +
		"127.0.0.0/8 " +
		"-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
}

func TestEnsure(t *testing.T) {
	v4, v6 := newFakeHost(iptablestest.NewFake()), newFakeHost(iptablestest.NewIPv6Fake())
	for _, h := range []*fakeHost{v4, v6} {
		if err := ensure(h); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(rulesV4, v4.calls); diff != "" {
		t.Errorf("IPv4 (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{hint}, v6.calls); diff != "" {
		t.Errorf("IPv6 (-want +got):\n%s", diff)
	}
}

func TestEnsureStopsAtFirstFailure(t *testing.T) {
	for i, call := range rulesV4 {
		h := newFakeHost(iptablestest.NewFake())
		h.failures[call] = errors.New("iptables: resource problem")
		if err := ensure(h); err == nil || !strings.Contains(err.Error(), "resource problem") {
			t.Errorf("%s: error %v", call, err)
		}
		if len(h.calls) != i+1 {
			t.Errorf("%s: went on: %v", call, h.calls)
		}
	}
}

func TestRunRestoresAfterFlushAndStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v4, broken := newFakeHost(iptablestest.NewFake()), newFakeHost(iptablestest.NewIPv6Fake())
		broken.failures["chain"] = errors.New("no")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			runFamilies(ctx, map[v1.IPFamily]monitoredChains{v1.IPv4Protocol: v4, v1.IPv6Protocol: broken})
		}()
		v4.flush <- struct{}{}
		synctest.Wait()
		if diff := cmp.Diff(slices.Concat(rulesV4, rulesV4), v4.calls); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if len(v4.watched) != 3 || v4.watched[0] != iptables.TableMangle {
			t.Errorf("watches %v", v4.watched)
		}
		if broken.watched != nil {
			t.Error("watches a family that does not work")
		}
		cancel()
		<-done
	})
}

func TestRunWithoutIPTables(t *testing.T) { runFamilies(t.Context(), nil) }
