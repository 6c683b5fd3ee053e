package host

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
)

// RemoveLink deletes the network device called name, if it exists.
func RemoveLink(name string) error {
	if _, err := net.InterfaceByName(name); err != nil {
		return nil
	}
	if out, err := exec.Command("ip", "link", "delete", name).CombinedOutput(); err != nil {
		return fmt.Errorf("delete network device %s: %w: %s", name, err, out)
	}
	return nil
}

var firewallPrograms = []string{"iptables", "ip6tables"}

var firewallTables = []string{"mangle", "nat", "filter"}

// ourChainPrefixes are the prefixes of the chains of a kubelet and of the CNI plugins.
var ourChainPrefixes = []string{"KUBE-", "CNI-"}

type table struct{ program, name string }

// listChains returns every chain that could belong to a cluster.
func listChains() []string {
	var chains []string
	forEachTable(func(t table, rules []string) {
		for _, chain := range chainsIn(rules) {
			chains = append(chains, t.key(chain))
		}
	})
	slices.Sort(chains)
	return chains
}

func (f Footprint) removeNewChains() error {
	var errs []error
	forEachTable(func(t table, rules []string) {
		isNew := func(chain string) bool { return !slices.Contains(f.Chains, t.key(chain)) }
		chains := slices.DeleteFunc(chainsIn(rules), func(chain string) bool { return !isNew(chain) })
		errs = append(errs, t.remove(rules, chains))
	})
	return errors.Join(errs...)
}

// forEachTable visits the tables that exist. If the program is missing or lacks the table, there are no chains.
func forEachTable(visit func(t table, rules []string)) {
	for _, program := range firewallPrograms {
		for _, name := range firewallTables {
			out, err := exec.Command(program, "-w", "-t", name, "-S").Output()
			if err == nil {
				visit(table{program, name}, strings.Split(strings.TrimSpace(string(out)), "\n"))
			}
		}
	}
}

func (t table) key(chain string) string { return t.program + " " + t.name + " " + chain }

// remove deletes the rules that jump to chains, then the chains.
func (t table) remove(rules, chains []string) error {
	var errs []error
	for _, rule := range rules {
		args := splitRule(rule)
		if len(args) > 2 && args[0] == "-A" && jumpsTo(args, chains) {
			errs = append(errs, t.run(append([]string{"-D"}, args[1:]...)...))
		}
	}
	for _, chain := range chains {
		errs = append(errs, t.run("-F", chain))
	}
	for _, chain := range chains {
		errs = append(errs, t.run("-X", chain))
	}
	return errors.Join(errs...)
}

func (t table) run(args ...string) error {
	args = append([]string{"-w", "-t", t.name}, args...)
	if out, err := exec.Command(t.program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", t.program, strings.Join(args, " "), err, out)
	}
	return nil
}

func chainsIn(rules []string) []string {
	var chains []string
	for _, rule := range rules {
		name, isChain := strings.CutPrefix(rule, "-N ")
		ours := slices.ContainsFunc(ourChainPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		if isChain && ours {
			chains = append(chains, name)
		}
	}
	return chains
}

func jumpsTo(args, chains []string) bool {
	at := slices.Index(args, "-j")
	return at >= 0 && at+1 < len(args) && slices.Contains(chains, args[at+1])
}

// splitRule splits a printed rule into arguments; comments are in quotes.
func splitRule(rule string) []string {
	var args []string
	var current strings.Builder
	quoted := false
	for _, r := range rule {
		switch {
		case r == '"':
			quoted = !quoted
		case r == ' ' && !quoted:
			args = append(args, current.String())
			current.Reset()
		default:
			current.WriteRune(r)
		}
	}
	return append(args, current.String())
}
