// Package netutil keeps the iptables chains that the agent makes for others. The agent itself needs none of them:
//
//   - KUBE-IPTABLES-HINT in the mangle table shows other components whether the host uses iptables-legacy or
//     iptables-nft;
//   - KUBE-FIREWALL in the filter table drops packets to 127.0.0.0/8 from elsewhere, which route_localnet would let in
//     (kubernetes issue 90259). kube-proxy makes an identical rule; the two must not differ.
//
// Composition, if MakeIPTablesUtilChains is set, in a goroutine:
//
//	netutil.Run(ctx)
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

// table is one IP family's tables on this host.
type table interface {
	EnsureChain(table iptables.Table, chain iptables.Chain) (bool, error)
	EnsureRule(position iptables.RulePosition, table iptables.Table, chain iptables.Chain, args ...string) (bool, error)
	IsIPv6() bool
}

// family can also notice that somebody flushed its tables.
type family interface {
	table
	Protocol() iptables.Protocol
	Monitor(canary iptables.Chain, tables []iptables.Table, reload func(), interval time.Duration, stop <-chan struct{})
}

// Run makes the chains in every IP family of this host and makes them anew when they are flushed. It returns when ctx
// has ended; the chains stay, only the canaries are removed. Failure is logged and costs nothing but the chains.
func Run(ctx context.Context) {
	families := map[v1.IPFamily]family{}
	for name, client := range iptables.NewBestEffort() {
		families[name] = client
	}
	run(ctx, families)
}

func run(ctx context.Context, families map[v1.IPFamily]family) {
	logger := klog.FromContext(ctx)
	if len(families) == 0 {
		// Expected where there is only nftables: then nobody else uses iptables either.
		logger.Info("No iptables support on this system; not creating the KUBE-IPTABLES-HINT chain")
		return
	}
	var watching sync.WaitGroup
	for _, name := range slices.Sorted(maps.Keys(families)) {
		f := families[name]
		if err := ensure(f); err != nil {
			logger.Error(err, "Failed to initialize iptables rules; some functionality may be missing.",
				"protocol", f.Protocol())
			continue
		}
		logger.Info("Initialized iptables rules.", "protocol", f.Protocol())
		watching.Go(func() { watch(ctx, f) })
	}
	watching.Wait()
}

func watch(ctx context.Context, f family) {
	tables := []iptables.Table{iptables.TableMangle, iptables.TableNAT, iptables.TableFilter}
	f.Monitor(canary, tables, func() {
		if err := ensure(f); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to restore iptables rules", "protocol", f.Protocol())
		}
	}, monitorPeriod, ctx.Done())
}

// ensure makes what is missing. It may be repeated.
func ensure(t table) error {
	if _, err := t.EnsureChain(iptables.TableMangle, HintChain); err != nil {
		return fmt.Errorf("iptables hint chain: %w", err)
	}
	if t.IsIPv6() { // the loopback network of IPv6 cannot be routed to
		return nil
	}
	return ensureFirewall(t)
}

func ensureFirewall(t table) error {
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
