// Package chaos is the part of the chaos test that needs no node: which actions are done to the pods of a node and when
// (a function of a seed), what the result must be (a function of what the API server accepted), and what must hold all
// the time (functions of what was observed). Package e2e_node executes it.
//
//	seed ──Plan──► actions ──executed──► Ledger ──Expected──► Judge(pod)
//	                           │
//	                           ├─ every status that the API shows ──► Phases
//	                           ├─ every container that the runtime shows ──► Runs
//	                           └─ what containers and hooks wrote ──► Instances
//
// No function of this package reads a clock, a file or the network.
package chaos
