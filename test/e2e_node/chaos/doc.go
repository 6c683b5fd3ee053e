// Package chaos is the part of the chaos test that needs no node: what is done
// to the pods of a node and when (a function of a seed), what must come of it
// (a function of what the API server accepted), and what must hold all the
// time (functions of what was observed). Package e2e_node carries it out.
//
//	seed ──Plan──► actions ──carried out──► Ledger ──Expected──► Judge(pod)
//	                              │
//	                              ├─ every status the API shows ──► Phases
//	                              ├─ every container the runtime shows ──► Runs
//	                              └─ what containers and hooks wrote ──► Lives
//
// Nothing here reads a clock, a file or the network.
package chaos
