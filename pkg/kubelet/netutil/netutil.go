// Package netutil creates and maintains the iptables chains that other components need:
//
//   - KUBE-IPTABLES-HINT in the mangle table exists in the variant that the host uses, iptables-legacy or iptables-nft;
//   - KUBE-FIREWALL in the filter table drops packets to 127.0.0.0/8 from other hosts, which route_localnet would let
//     pass (kubernetes issue 90259). kube-proxy creates an identical rule; the two must not differ.
package netutil

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/util/iptables"
)

const (
	// HintChain exists in the variant of iptables that the host uses.
	HintChain iptables.Chain = "KUBE-IPTABLES-HINT"
	// FirewallChain holds the rule against martian packets.
	FirewallChain iptables.Chain = "KUBE-FIREWALL"

	canary        iptables.Chain = "KUBE-KUBELET-CANARY"
	monitorPeriod                = time.Minute
)

// chains creates chains and rules of one IP family.
type chains interface {
	EnsureChain(table iptables.Table, chain iptables.Chain) (bool, error)
	EnsureRule(position iptables.RulePosition, table iptables.Table, chain iptables.Chain, args ...string) (bool, error)
	IsIPv6() bool
}

// monitoredChains also reports that the tables were flushed.
type monitoredChains interface {
	chains
	Protocol() iptables.Protocol
	Monitor(canary iptables.Chain, tables []iptables.Table, reload func(), interval time.Duration, stop <-chan struct{})
}

// Run creates the chains in every IP family of this host, and creates them again after a flush. It returns when ctx has
// ended; the chains stay, only the canaries are removed. It logs errors; the agent works without the chains.
func Run(ctx context.Context) {
	families := map[v1.IPFamily]monitoredChains{}
	for name, client := range iptables.NewBestEffort() {
		families[name] = client
	}
	runFamilies(ctx, families)
}

func runFamilies(ctx context.Context, families map[v1.IPFamily]monitoredChains) {
	logger := klog.FromContext(ctx)
	if len(families) == 0 {
		// Expected on a host that has only nftables, where no other component uses iptables either.
		logger.Info("No iptables support on this system; not creating the KUBE-IPTABLES-HINT chain")
		return
	}
	var monitors sync.WaitGroup
	for _, name := range slices.Sorted(maps.Keys(families)) {
		f := families[name]
		if err := ensure(f); err != nil {
			logger.Error(err, "Failed to initialize iptables rules; some functionality may be missing",
				"protocol", f.Protocol())
			continue
		}
		logger.Info("Initialized iptables rules", "protocol", f.Protocol())
		monitors.Go(func() { monitor(ctx, f) })
	}
	monitors.Wait()
}

func monitor(ctx context.Context, f monitoredChains) {
	tables := []iptables.Table{iptables.TableMangle, iptables.TableNAT, iptables.TableFilter}
	f.Monitor(canary, tables, func() {
		if err := ensure(f); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to restore iptables rules", "protocol", f.Protocol())
		}
	}, monitorPeriod, ctx.Done())
}

// ensure creates what is missing. It is idempotent.
func ensure(t chains) error {
	if _, err := t.EnsureChain(iptables.TableMangle, HintChain); err != nil {
		return fmt.Errorf("iptables hint chain: %w", err)
	}
	if t.IsIPv6() { // the loopback network of IPv6 cannot be routed to
		return nil
	}
	return ensureFirewall(t)
}

func ensureFirewall(t chains) error {
	if _, err := t.EnsureChain(iptables.TableFilter, FirewallChain); err != nil {
		return fmt.Errorf("chain %s: %w", FirewallChain, err)
	}
	rules := []struct {
		position iptables.RulePosition
		chain    iptables.Chain
		args     []string
	}{
		{iptables.Prepend, iptables.ChainOutput, []string{"-j", string(FirewallChain)}},
		{iptables.Prepend, iptables.ChainInput, []string{"-j", string(FirewallChain)}},
		{iptables.Append, FirewallChain, dropMartians},
	}
	for _, r := range rules {
		if _, err := t.EnsureRule(r.position, iptables.TableFilter, r.chain, r.args...); err != nil {
			return fmt.Errorf("rule of chain %s: %w", r.chain, err)
		}
	}
	return nil
}

var dropMartians = []string{
	"-m", "comment", "--comment", "block incoming localnet connections",
	"--dst", "127.0.0.0/8", "!", "--src", "127.0.0.0/8",
	"-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP",
}
